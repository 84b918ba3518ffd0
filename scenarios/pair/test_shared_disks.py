"""Two servers on the same disks: the active one loses its power, and the standby takes over."""

import pytest

from raidproof.core.blame import Culprit
from raidproof.fault import Takeover
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.pair import PairSpec


def test_a_takeover_keeps_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of(pair=PairSpec()), fault=Takeover()).must_keep_every_promise()


@pytest.mark.exhaustive
def test_clients_get_errors_if_the_standby_does_not_know_what_they_hold(current_run: Run) -> None:
    # Each server has its own recovery database, so that the standby lets no client reclaim its locks.
    stack = stack_of(pair=PairSpec(shared_records=False))
    current_run.discard_lab()
    # A separate run, so that the expected failure does not fail the shared run.
    with Run("own-records", current_run.store.path, current_run.topology) as own:
        record = own.cycle(
            CrashTestSpec(name="own-records", title="own records", stack=stack, fault=Takeover(), ledger_seconds=1.5)
        )
    assert record.outcome is Outcome.FAIL
    (failed,) = (one for one in record.verdicts if one.outcome is Outcome.FAIL)
    assert failed.checker == "errors told to clients"
    assert "EIO" in failed.reason
    assert failed.blame is not None
    assert failed.blame.culprit is Culprit.STACK
