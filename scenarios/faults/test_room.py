"""The exported filesystem runs full under its clients: they are told so, and what they had been told before stays."""

import pytest

from raidproof.core.units import MIB
from raidproof.fault import FilesystemFull, InodesExhausted
from raidproof.pytest_plugin.fixtures import CrashTestResult, CrashTestRunner, stack_of
from raidproof.storage.filesystem import Ext4Spec

FEW_INODES = 1024


def told(ended: CrashTestResult) -> str:
    """What is said of the errors that the clients were told of."""
    return next(one.reason for one in ended.record.verdicts if one.checker == "errors told to clients")


def test_full_filesystem_is_told_to_clients_and_loses_nothing(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), fault=FilesystemFull()).must_keep_every_promise()
    assert "ENOSPC" in told(ended)
    assert ended.went_on("client1")


@pytest.mark.exhaustive
def test_full_ext4_is_told_to_clients_and_loses_nothing(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(filesystem=Ext4Spec()), fault=FilesystemFull()).must_keep_every_promise()
    assert "ENOSPC" in told(ended)


@pytest.mark.exhaustive
def test_power_cut_of_a_full_filesystem_loses_nothing(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), during=[FilesystemFull(left=MIB, held_s=0)]).must_keep_every_promise()
    assert "ENOSPC" in told(ended)


def test_exhausted_inodes_are_told_to_clients_and_lose_nothing(cycle: CrashTestRunner) -> None:
    stack = stack_of(filesystem=Ext4Spec(inodes=FEW_INODES))
    ended = cycle(stack, fault=InodesExhausted()).must_keep_every_promise()
    assert "ENOSPC" in told(ended)
    assert ended.went_on("client1")
