"""Faults of clients, and faults of the server without a loss of power, lose no acknowledged operation."""

import pytest

from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outage import Work


def test_clean_reboot_of_the_server_loses_nothing(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fault="clean-reboot").must_keep_every_promise()


def test_kernel_panic_of_the_server_loses_nothing(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), fault="kernel-panic").must_keep_every_promise()
    (outage,) = ended.record.outages
    assert {one.client for one in outage.rto} == {"client1", "client2"}
    assert all((one.seconds or 0) > 0 for one in outage.rto if one.work is Work.WRITES)
    assert outage.lost == 0


@pytest.mark.exhaustive
def test_restart_of_nfsd_loses_nothing(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fault="nfsd-restart").must_keep_every_promise()


def test_operations_acknowledged_to_a_dead_client_are_kept(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), fault="client-power-cut").must_keep_every_promise()
    assert ended.record.lost_power == ["client2"]
    assert ended.went_on("client1")
