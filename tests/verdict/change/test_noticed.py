"""Differences of verdicts that the sensitivity of the sides may explain are not called changes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.fault import FaultEffects
from raidproof.record.bisection import CandidateAnswer, RepetitionResult
from raidproof.record.cell import Explored
from raidproof.record.comparison import PromiseChange
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord
from raidproof.record.sensitivity import Defect, Noticed, Sensitivity, noticed_in_states
from raidproof.verdict.change.comparison import differences_in_words, outcome_of_differences
from raidproof.verdict.change.difference import judge_cuts, promise_changes
from raidproof.verdict.change.noticed import comparable, less_sensitive, pooled, why_no_change
from raidproof.verdict.change.statistics import share_interval
from raidproof.verdict.crash_states import noticed_by
from tests.verdict.change.test_comparison import cell as cell_of

SHARES = st.integers(1, 2000).flatmap(
    lambda of: st.integers(0, of).map(lambda noticed: Noticed(noticed=noticed, of=of))
)


def share(noticed: int, of: int = 100) -> Noticed:
    return Noticed(noticed=noticed, of=of)


@given(SHARES)
def test_the_interval_contains_the_share_and_lies_within_0_and_1(one: Noticed) -> None:
    low, high = share_interval(one.noticed, one.of)
    assert 0 <= low <= one.noticed / one.of <= high <= 1


@pytest.mark.parametrize(
    ("count", "of", "low", "high"), [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129)]
)
def test_the_interval_is_that_of_clopper_and_pearson(count: int, of: int, low: float, high: float) -> None:
    assert share_interval(count, of) == pytest.approx((low, high), abs=1e-4)


@given(SHARES, SHARES)
def test_at_most_one_of_two_crash_tests_is_less_sensitive(one: Noticed, other: Noticed) -> None:
    assert not less_sensitive(one, one)
    assert not (less_sensitive(one, other) and less_sensitive(other, one))
    if less_sensitive(one, other):
        assert one.noticed / one.of < other.noticed / other.of
        assert not why_no_change(other, one)
        assert why_no_change(one, other)


@given(SHARES, SHARES, st.integers(1, 2000))
def test_a_pass_that_would_have_noticed_more_is_never_doubted_more(one: Noticed, failed: Noticed, more: int) -> None:
    better = Noticed(noticed=min(one.of, one.noticed + more), of=one.of)
    assert less_sensitive(one, failed) or not less_sensitive(better, failed)


@given(SHARES)
def test_nothing_is_doubted_if_a_sensitivity_is_not_known(one: Noticed) -> None:
    assert not why_no_change(None, one)
    assert not why_no_change(one, None)


def cycle(outcome: Outcome, noticed: int | None, of: int = 100, states: int | None = None) -> CrashTestRecord:
    found = CrashTestRecord(
        name="cut", title="cut", asked={}, cache_mode="volatile", fault="power-cut", seed=1, effects=FaultEffects()
    )
    found.verdicts = [
        Verdict(checker="write + fsync", kind="fsync", outcome=outcome, reason="it"),
        Verdict(checker="array", outcome=outcome, reason="mismatch"),
    ]
    found.outcome = outcome
    if noticed is not None:
        found.sensitivity = [
            Sensitivity(defect=Defect.FLUSH_OF_A_MEMBER, instances=of, in_some_state=of, in_this_cut=noticed)
        ]
    if states is not None:
        found.explored = [
            Explored(file="e.json", judged=60, broken=0, noticed=states, outcome=Outcome.PASS, reason="held")
        ]
    return found


def after_states(noticed: int, of: int = 100) -> Noticed:
    """Return a share of missing flushes after 60 checked crash states."""
    return share(noticed, of).model_copy(update={"states": 60})


def test_crash_states_of_several_crash_tests_add_up() -> None:
    found = pooled([after_states(3), None, after_states(4), share(1)])
    assert found == Noticed(noticed=8, of=300, states=120)


@pytest.mark.parametrize(
    ("found", "noticed"),
    [
        (None, None),
        (cycle(Outcome.PASS, None), None),
        (cycle(Outcome.PASS, 0, of=0), None),
        (cycle(Outcome.PASS, 3), share(3)),
        (cycle(Outcome.PASS, 3, states=37), after_states(37)),
        (cycle(Outcome.PASS, 3, states=2), after_states(3)),
        (cycle(Outcome.PASS, 3, of=10, states=37), after_states(10, 10)),
    ],
)
def test_of_power_cut_and_crash_states_the_more_sensitive_one_counts(
    found: CrashTestRecord | None, noticed: Noticed | None
) -> None:
    assert noticed_by(found) == noticed


def test_the_checked_states_of_an_exploration_would_have_noticed() -> None:
    one = Sensitivity(defect=Defect.FLUSH_OF_A_MEMBER, instances=9, in_some_state=8, in_checked_states=5)
    expected = Noticed(noticed=5, of=9, states=60)
    assert noticed_in_states([one.model_copy(update={"defect": Defect.FUA}), one], 60) == expected
    assert noticed_in_states([one.model_copy(update={"in_checked_states": None})], 60) is None
    assert noticed_in_states([], 60) is None


PASSED_BLIND, FAILED_SEEING = cycle(Outcome.PASS, 0), cycle(Outcome.FAIL, 50)
PASSED_SEEING, FAILED_BLIND = cycle(Outcome.PASS, 50), cycle(Outcome.FAIL, 0)


def changes(base: CrashTestRecord, new: CrashTestRecord) -> dict[str, PromiseChange]:
    return {one.checker: one for one in promise_changes((base, None), (new, None))}


@pytest.mark.parametrize(
    ("base", "new", "broken", "kept", "doubt"),
    [
        (PASSED_BLIND, FAILED_SEEING, False, False, True),
        (FAILED_SEEING, PASSED_BLIND, False, False, True),
        (PASSED_SEEING, FAILED_BLIND, True, False, False),
        (FAILED_BLIND, PASSED_SEEING, False, True, False),
        (cycle(Outcome.PASS, None), FAILED_SEEING, True, False, False),
    ],
)
def test_a_pass_that_would_have_noticed_less_is_no_change(
    base: CrashTestRecord, new: CrashTestRecord, *, broken: bool, kept: bool, doubt: bool
) -> None:
    found = changes(base, new)
    promise, array = found["write + fsync"], found["array"]
    assert (promise.newly_broken, promise.newly_kept, bool(promise.doubt)) == (broken, kept, doubt)
    # What a scrub finds does not depend on the data at risk.
    assert array.newly_broken or array.newly_kept


def test_a_comparison_with_a_doubt_is_inconclusive() -> None:
    one = cell_of(10.0).model_copy(update={"cycle": "cut"})
    for side in (PASSED_BLIND, FAILED_SEEING):
        side.verdicts = side.verdicts[:1]
    (cut,) = judge_cuts([(one, one)], [{"cut": PASSED_BLIND}, {"cut": FAILED_SEEING}])
    assert cut.base is not None
    assert cut.base.noticed == share(0)
    assert outcome_of_differences([], [cut], 0.03, alike=False) is Outcome.INCONCLUSIVE
    assert "1 promise in doubt" in differences_in_words([], [cut], alike=False)
    certain = cut.model_copy(update={"promises": [cut.promises[0].model_copy(update={"doubt": ""})]})
    assert outcome_of_differences([], [certain], 0.03, alike=False) is Outcome.FAIL


def repetition(answer: CandidateAnswer, noticed: Noticed | None) -> RepetitionResult:
    return RepetitionResult(answer=answer, reason="seen", noticed=noticed)


GOOD, BAD, UNKNOWN = CandidateAnswer.GOOD, CandidateAnswer.BAD, CandidateAnswer.UNKNOWN


def test_a_good_repetition_that_would_have_noticed_less_than_the_bad_ones_has_no_answer() -> None:
    bad = [repetition(BAD, share(50)), repetition(BAD, share(40))]
    results = [repetition(GOOD, share(0)), repetition(GOOD, share(45)), repetition(GOOD, None)]
    assert [one.answer for one in comparable(results, bad)] == [UNKNOWN, GOOD, GOOD]
    assert "0 of 100 missing flushes, the other one 90 of 200" in comparable(results, bad)[0].reason
    assert comparable(results, []) == results
    assert comparable(results, [repetition(GOOD, share(50))]) == results


@given(st.lists(st.tuples(st.sampled_from(CandidateAnswer), st.none() | SHARES)))
def test_only_good_answers_change_and_those_without_a_share_do_not(
    drawn: list[tuple[CandidateAnswer, Noticed | None]],
) -> None:
    results = [repetition(*one) for one in drawn]
    for before, after in zip(results, comparable(results, ()), strict=True):
        assert before == after or (before.answer, after.answer) == (GOOD, UNKNOWN)
        assert before.noticed is not None or before == after


@given(st.lists(SHARES, min_size=1))
def test_shares_are_pooled_by_their_sums(shares: list[Noticed]) -> None:
    together = pooled([None, *shares])
    assert together is not None
    each = sorted(one.noticed / one.of for one in shares)
    assert each[0] - 1e-9 <= together.noticed / together.of <= each[-1] + 1e-9
    assert all(low <= high for low, high in pairwise(each))
    assert pooled([None]) is None
