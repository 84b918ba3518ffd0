"""Two servers on the same disks: the active one loses its power, and the standby takes over."""

from itertools import product

import pytest

from raidproof.core.blame import Culprit
from raidproof.fault import Fault, MemberFails, Switchover, Takeover
from raidproof.fault.schedule import after_recovery, at
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outage import Outage, Work
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.pair import PairSpec


def _every_client_was_served_again(outage: Outage) -> None:
    """Assert that no client was served while neither server was up, and each one afterwards; nothing was lost."""
    classes = {Work.WRITES, Work.METADATA, Work.LOCKS}
    assert {(one.client, one.work) for one in outage.rto} == {*product(["client1", "client2"], classes)}
    assert (outage.lost, outage.lost_s) == (0, 0.0)
    assert outage.down_s > 0
    # The clients finish soon after the outage, so that some may not have requested another lock.
    assert all(one.seconds is not None for one in outage.rto if one.work is Work.WRITES)
    for seconds, dated in ((one.seconds, one.dated) for one in outage.rto if one.seconds is not None):
        assert seconds > 0
        # A client's report may arrive after the outage has begun; a reply on the network cannot.
        assert seconds >= outage.down_s or not dated


def test_a_takeover_keeps_every_promise(cycle: CrashTestRunner) -> None:
    taken_over = cycle(stack_of(pair=PairSpec()), fault=Takeover()).must_keep_every_promise()
    (outage,) = taken_over.record.outages
    _every_client_was_served_again(outage)


@pytest.mark.exhaustive
def test_a_planned_switchover_keeps_every_promise(cycle: CrashTestRunner) -> None:
    moved = cycle(stack_of(pair=PairSpec()), fault=Switchover()).must_keep_every_promise()
    (outage,) = moved.record.outages
    _every_client_was_served_again(outage)


@pytest.mark.exhaustive
def test_a_failback_after_a_takeover_keeps_every_promise(cycle: CrashTestRunner) -> None:
    # The server that lost its power boots again while clients work, and gets the service back.
    faults = [at(1.0, Takeover()), after_recovery(1.0, Switchover())]
    moved = cycle(stack_of(pair=PairSpec()), faults=faults).must_keep_every_promise()
    assert [(one.fault, one.target) for one in moved.record.outages] == [
        ("takeover", "server"),
        ("switchover", "server2"),
    ]
    for outage in moved.record.outages:
        _every_client_was_served_again(outage)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("level", "fault"), [("10", Takeover()), ("5", Switchover())], ids=["takeover", "switchover"])
def test_a_degraded_array_moves_and_keeps_every_promise(cycle: CrashTestRunner, level: str, fault: Fault) -> None:
    # md starts no degraded RAID5 that a takeover left dirty, as at the boot after a power cut; a RAID10 has no parity.
    stack = stack_of(level, pair=PairSpec())
    moved = cycle(stack, during=[MemberFails("disk1")], fault=fault).must_keep_every_promise()
    _every_client_was_served_again(moved.record.outages[-1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", [Takeover(), Switchover()], ids=lambda fault: fault.name)
def test_clients_get_errors_if_the_standby_does_not_know_what_they_hold(current_run: Run, fault: Fault) -> None:
    # Each server has its own recovery database, so that the standby lets no client reclaim its locks.
    stack = stack_of(pair=PairSpec(shared_records=False))
    current_run.discard_lab()
    # A separate run, so that the expected failure does not fail the shared run.
    with Run("own-records", current_run.store.path, current_run.topology) as own:
        record = own.cycle(
            CrashTestSpec(name="own-records", title="own records", stack=stack, fault=fault, ledger_seconds=1.5)
        )
    assert record.outcome is Outcome.FAIL
    (failed,) = (one for one in record.verdicts if one.outcome is Outcome.FAIL)
    assert failed.checker == "errors told to clients"
    assert "EIO" in failed.reason
    assert failed.blame is not None
    assert failed.blame.culprit is Culprit.STACK
