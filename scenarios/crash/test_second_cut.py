"""Second power cuts during the recovery of crash states: md's resync, and the replay of the file system's log.

The disks of the recorded run execute all flushes, so that each first crash state keeps every promise. In the planted
defect a disk drops flushes only while a recovery is recorded: no first state shows it.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from raidproof.crash.checker import RecordedLab
from raidproof.crash.exploration import Budget
from raidproof.disk.client import EngineClient
from raidproof.disk.disk_fault import drop_flushes
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.exploration import ExplorationRecord, SecondCutsRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_states import Options
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.exploration import explore_cycle
from raidproof.run.run import Run
from raidproof.run.source import source_of
from scenarios.crash.known_findings import others
from scenarios.crash.small_lab import small_lab

LEDGER_SECONDS = 0.7
STATES = 25
"""Number of crash states of the first cut, from which those to be recovered are chosen."""
CUTS, EACH = 2, 10
"""Number of recoveries, and of states of a second cut during each of them."""
FLAWED = "disk1"


@pytest.fixture(scope="module")
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run with one client."""
    with small_lab(current_run, "second-cut") as one:
        yield one


def cut_twice(own: Run, name: str) -> tuple[ExplorationRecord, SecondCutsRecord]:
    """Record a crash test on RAID5 with XFS; return an exploration of it with second cuts, and their record."""
    own.cycle(CrashTestSpec(name=name, title=name.replace("-", " "), stack=stack_of(), ledger_seconds=LEDGER_SECONDS))
    # Torn requests are left out: XFS does not mount after a torn write of its log recovery (docs/findings.md).
    options = Options(Budget(STATES), tear=4096, second_cuts=CUTS, second_states=EACH, cold=False, crash_page=False)
    explored, _ = explore_cycle(source_of(own.store, name), options)
    assert explored.second_cuts is not None
    assert not [one for one in others(explored) if one.recovery is None], explored.reason
    assert len(explored.second_cuts.recoveries) == CUTS
    return explored, explored.second_cuts


def test_a_second_cut_during_the_recovery_loses_nothing(own: Run) -> None:
    explored, second = cut_twice(own, "sound")
    # INCONCLUSIVE is allowed, as some kinds have too few operations before the cuts: this test is about false alarms.
    assert explored.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE} or explored.failures, explored.reason
    assert not others(explored), explored.reason
    assert second.judged == CUTS * EACH
    assert len(second.phases) > 1, second.phases


def test_a_disk_that_drops_flushes_only_during_the_recovery_is_found(
    own: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = RecordedLab._start_engine

    def planted(lab: RecordedLab, undo: ExitStack) -> EngineClient:
        engine = start(lab, undo)
        engine.set_disk_fault(FLAWED, drop_flushes())
        return engine

    monkeypatch.setattr(RecordedLab, "_start_engine", planted)
    explored, second = cut_twice(own, "flawed-recovery")
    assert explored.outcome is Outcome.FAIL, explored.reason
    assert second.broken, second
    confirmed = [one for one in others(explored) if one.confirmed]
    assert confirmed, explored.failures
    assert all(one.recovery for one in others(explored))
    assert all(str(one.blame).startswith(f"the disks: {FLAWED} ") for one in confirmed), confirmed
