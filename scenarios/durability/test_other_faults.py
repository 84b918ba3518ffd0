"""Faults that leave the disks their power, or that hit a client: nothing that was acknowledged may go."""

import pytest

from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of


def test_clean_reboot_of_the_server_loses_nothing(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fault="clean-reboot").must_keep_every_promise()


def test_kernel_panic_of_the_server_loses_nothing(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fault="kernel-panic").must_keep_every_promise()


@pytest.mark.exhaustive
def test_restart_of_nfsd_loses_nothing(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fault="nfsd-restart").must_keep_every_promise()


def test_what_a_dead_client_had_been_told_is_there(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), fault="client-power-cut").must_keep_every_promise()
    assert ended.record.lost_power == ["client2"]
    assert ended.went_on("client1")
