"""A control that does not see is INVALID; what else it shows is evidence about the system under test."""

from typing import Any

import pytest

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.core.waiting import wall_clock
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import ControlSpec, CrashTestRecord, RunRecord
from raidproof.verdict.controls import (
    against,
    blind,
    conclude_control,
    conclude_control_explored,
    conclude_control_not_recovered,
    doubt,
)
from tests.verdict.test_crash_states import crash_test

LYING = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
REBOOT = ControlSpec(expects_loss=False)
DISKS = Blame(culprit=Culprit.DISKS, cause=Cause.LOST_FLUSHES)
STACK = Blame(culprit=Culprit.STACK)


def verdict(outcome: Outcome, **changes: Any) -> Verdict:
    return Verdict(checker="array", outcome=outcome, reason="mismatch_cnt 8", **changes)


@pytest.mark.parametrize(
    ("lost", "blame", "beyond", "bad", "outcome", "said"),
    [
        (1375, DISKS, 0, [], Outcome.PASS, "control behaved: 1,375 operations lost, blamed on the disks"),
        # What no disk explains does not matter for a control of disks, unless no defect of a disk can explain it.
        (1375, DISKS, 0, [verdict(Outcome.FAIL)], Outcome.PASS, "control behaved"),
        (1375, DISKS, 0, [verdict(Outcome.FAIL, of_the_stack=True)], Outcome.FAIL, "control: array: mismatch_cnt 8"),
        (1375, DISKS, 0, [verdict(Outcome.INCONCLUSIVE, of_the_stack=True)], Outcome.INCONCLUSIVE, "control: array"),
        (
            1375,
            STACK,
            1,
            [],
            Outcome.FAIL,
            "control: 1 of 1,375 lost operations blamed on the stack; expected: the disks",
        ),
        (1375, STACK, 0, [], Outcome.FAIL, "control: 1,375 lost operations blamed on the stack; expected: the disks"),
        (
            3,
            Blame(culprit=Culprit.ASYNC_EXPORT),
            0,
            [],
            Outcome.INVALID,
            "control: 3 lost operations blamed on the async",
        ),
        (0, DISKS, 0, [], Outcome.INVALID, "control: expected a loss of acknowledged operations, but none was lost"),
    ],
)
def test_lying_disks(lost: int, blame: Blame, beyond: int, bad: list[Verdict], outcome: Outcome, said: str) -> None:
    found = conclude_control(LYING, lost, 2000, blame, beyond, bad)
    assert (found[0], found[1][: len(said)]) == (outcome, said)


@pytest.mark.parametrize(
    ("lost", "bad", "outcome", "said"),
    [
        (0, [], Outcome.PASS, "control behaved: all 2,000 acknowledged operations survived"),
        (0, [verdict(Outcome.FAIL, blame=STACK)], Outcome.FAIL, "control: array: mismatch_cnt 8; blamed on the stack"),
        (3, [], Outcome.FAIL, "control: expected no failure, but 3 operations lost; blamed on the stack"),
        (0, [verdict(Outcome.INCONCLUSIVE)], Outcome.INCONCLUSIVE, "control: array: mismatch_cnt 8"),
    ],
)
def test_clean_reboot(lost: int, bad: list[Verdict], outcome: Outcome, said: str) -> None:
    found = conclude_control(REBOOT, lost, 2000, STACK, 0, bad)
    assert (found[0], found[1][: len(said)]) == (outcome, said)


@pytest.mark.parametrize(
    ("control", "blame", "outcome"),
    [
        (LYING, DISKS, Outcome.PASS),
        (LYING, Blame(culprit=Culprit.KERNEL), Outcome.FAIL),
        (LYING, Blame(culprit=Culprit.ASYNC_EXPORT), Outcome.INVALID),
        (REBOOT, STACK, Outcome.FAIL),
    ],
)
def test_storage_that_did_not_recover(control: ControlSpec, blame: Blame, outcome: Outcome) -> None:
    found, reason = conclude_control_not_recovered(control, "mount: bad superblock", blame)
    assert found is outcome
    assert "mount: bad superblock" in reason
    assert str(blame) in reason


def test_an_exploration_that_finds_a_failure_of_no_known_part_does_not_see() -> None:
    found = conclude_control_explored(LYING, "so", broken=True, complete=True, by_another=("fsync: lost is", None))
    assert found == (Outcome.INVALID, "control: fsync: lost is blamed on no part of the system; expected: the disks")


def run_of(*cycles: CrashTestRecord) -> RunRecord:
    return RunRecord(run="r", started=wall_clock(), command=[], cycles=[*cycles])


def control(outcome: Outcome) -> CrashTestRecord:
    return crash_test(outcome=outcome, control=LYING).model_copy(update={"title": "control"})


def test_what_controls_say_about_other_results() -> None:
    behaved, unseen, defect = control(Outcome.PASS), control(Outcome.INVALID), control(Outcome.FAIL)
    other = crash_test(outcome=Outcome.FAIL)
    assert (blind(run_of(behaved, other)), against(run_of(behaved, other)), doubt(run_of(behaved, other))) == (
        None,
        None,
        "",
    )
    assert blind(run_of(behaved, unseen)) is unseen
    assert against(run_of(behaved, defect)) is defect
    assert doubt(run_of(unseen, defect)) == "control did not show what it had to show"
    assert doubt(run_of(behaved, defect)) == "control shows a defect"
