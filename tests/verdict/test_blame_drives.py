from typing import Any

import pytest

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.disk.disk_fault import DiskFaultKind
from raidproof.disk.messages import Counters
from raidproof.record.observation import ArraySeen
from raidproof.record.outcome import Outcome
from raidproof.verdict.blame import corrupted_by
from raidproof.verdict.checks.array import judge_array
from raidproof.verdict.checks.flushes import LEAST_SYNCS, judge_flushes
from raidproof.verdict.conditions import Conditions

MISPLACED = Blame(
    culprit=Culprit.DISKS,
    cause=Cause.MISPLACED_WRITES,
    members=("disk0",),
    detail="3 writes to disk0 were written to another place",
)
BEFORE = {
    "disk0": Counters("disk0", writes=50, flushes=9, fua=1),
    "disk1": Counters("disk1", writes=50, flushes=9),
}


def after(**changes: dict[str, int]) -> dict[str, Any]:
    worked = {"disk0": {"writes": 90, "flushes": 20, "fua": 1}, "disk1": {"writes": 90, "flushes": 20}}
    return {serial: counters | changes.get(serial, {}) for serial, counters in worked.items()}


def test_flushes_that_reach_all_members_pass() -> None:
    assert judge_flushes(BEFORE, after(), 30).outcome is Outcome.PASS


def test_a_member_that_was_written_and_never_flushed_is_named() -> None:
    verdict = judge_flushes(BEFORE, after(disk1={"flushes": 9}), 30)
    assert verdict.outcome is Outcome.FAIL
    assert "no flush reached disk1 (40 writes)" in verdict.reason
    assert "disk0" not in verdict.reason
    assert "disk1" in str(verdict.blame)


def test_a_member_that_was_not_counted_before_has_begun_at_nothing() -> None:
    end = {"disk0": {"writes": 40, "flushes": 0, "fua": 0}}
    assert judge_flushes({}, end, 30).outcome is Outcome.FAIL
    assert judge_flushes({}, {"disk0": {"writes": 40, "flushes": 1}}, 30).outcome is Outcome.PASS


def test_forced_writes_count_too() -> None:
    assert judge_flushes(BEFORE, after(disk1={"flushes": 9, "fua": 5}), 30).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("end", "synced"),
    [(after(disk1={"writes": 50, "flushes": 9}), 30), ({}, 30)],
    ids=["a member that nothing was written to", "disks that nobody counts"],
)
def test_where_nothing_can_be_missed_nothing_is(end: dict[str, Any], synced: int) -> None:
    assert judge_flushes(BEFORE, end, synced).outcome is Outcome.PASS


def test_too_few_operations_prove_nothing() -> None:
    assert judge_flushes(BEFORE, after(disk1={"flushes": 9}), LEAST_SYNCS - 1).outcome is Outcome.INCONCLUSIVE
    assert judge_flushes(BEFORE, after(disk1={"flushes": 9}), LEAST_SYNCS - 1).of_the_stack


@pytest.mark.parametrize(
    "kind", [DiskFaultKind.MISDIRECTED, DiskFaultKind.MISDIRECTED.value], ids=["fresh", "read back"]
)
def test_drives_that_corrupted_writes_are_named(kind: object) -> None:
    disks: dict[str, Any] = {"disk0": {"struck": [{"kind": kind, "times": 3}]}, "disk1": {"struck": []}}
    assert corrupted_by(disks) == MISPLACED


def test_drives_that_were_slow_or_did_nothing_wrong_are_not() -> None:
    slow: dict[str, Any] = {"disk0": {"struck": [{"kind": "slow", "times": 3}]}, "disk1": {}}
    assert corrupted_by(slow) is None


def test_drives_that_corrupted_writes_are_blamed_and_excuse_nothing() -> None:
    conditions = Conditions(export_sync=True, corrupted_by=MISPLACED)
    differs = ArraySeen(mismatch_cnt={"/dev/md0": 8}, repaired={"/dev/md0": 0})
    verdict = judge_array(differs, conditions)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.blame == conditions.blame == conditions.corrupted_by
