"""What the controls of a run say about its other results."""

from raidproof.core.blame import Culprit
from raidproof.core.waiting import wall_clock
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec, CrashTestRecord, RunRecord
from raidproof.verdict.controls import against, blind, doubt
from tests.verdict.test_crash_states import crash_test

LYING = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)


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
