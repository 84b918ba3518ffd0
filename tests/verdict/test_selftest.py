"""The verdict on the harness itself."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome
from raidproof.record.selftest import SelftestAnswer, SelftestRow
from raidproof.verdict.selftest import WRONG, answer_of, conclude_selftest

DISKS, STACK = Blame(culprit=Culprit.DISKS), Blame(culprit=Culprit.STACK)


def row(answer: SelftestAnswer, outcome: Outcome = Outcome.FAIL) -> SelftestRow:
    return SelftestRow(defect="d", says="", cycle="d", outcome=outcome, reason="why", seconds=1, answer=answer)


@pytest.mark.parametrize(
    ("outcome", "blamed", "answer"),
    [
        (Outcome.FAIL, [DISKS], SelftestAnswer.FOUND),
        (Outcome.FAIL, [STACK, DISKS], SelftestAnswer.FOUND),
        (Outcome.FAIL, [STACK], SelftestAnswer.WRONG_BLAME),
        (Outcome.FAIL, [], SelftestAnswer.WRONG_BLAME),
        (Outcome.PASS, [], SelftestAnswer.MISSED),
        (Outcome.INCONCLUSIVE, [], SelftestAnswer.MISSED),
        (Outcome.ERROR, [DISKS], SelftestAnswer.UNDECIDED),
    ],
)
def test_a_planted_defect_must_fail_and_be_blamed_on_the_disks(
    outcome: Outcome, blamed: Sequence[Blame], answer: SelftestAnswer
) -> None:
    assert answer_of(outcome, blamed, planted=True) is answer


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (Outcome.PASS, SelftestAnswer.PASSED),
        (Outcome.FAIL, SelftestAnswer.FALSE_ALARM),
        (Outcome.INCONCLUSIVE, SelftestAnswer.UNDECIDED),
        (Outcome.ERROR, SelftestAnswer.UNDECIDED),
    ],
)
def test_sound_disks_must_pass(outcome: Outcome, answer: SelftestAnswer) -> None:
    assert answer_of(outcome, [DISKS], planted=False) is answer


@given(st.lists(st.sampled_from(SelftestAnswer)))
def test_only_a_self_test_without_any_wrong_answer_passes(answers: list[SelftestAnswer]) -> None:
    rows = [row(one, Outcome.ERROR if one is SelftestAnswer.UNDECIDED else Outcome.FAIL) for one in answers]
    outcome, reason = conclude_selftest(rows)
    assert reason
    assert (outcome is Outcome.FAIL) == bool(WRONG & {*answers})
    assert (outcome is Outcome.PASS) == ({*answers} == {SelftestAnswer.FOUND, SelftestAnswer.PASSED})


def test_the_reason_names_what_is_wrong() -> None:
    assert conclude_selftest([row(SelftestAnswer.MISSED), row(SelftestAnswer.UNDECIDED, Outcome.ERROR)]) == (
        Outcome.FAIL,
        "d: missed",
    )
    undecided = [row(SelftestAnswer.FOUND), row(SelftestAnswer.UNDECIDED, Outcome.INCONCLUSIVE)]
    assert conclude_selftest(undecided) == (Outcome.INCONCLUSIVE, "d: undecided: why")
