"""The decisions of a bisection, on simulated candidates: their errors, and the candidate that is tested next."""

from collections.abc import Callable
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.bisection import CandidateAnswer, RepetitionResult
from raidproof.verdict.change.bisection import (
    BAD_WANTED,
    Decision,
    MoreThanShare,
    Reproduction,
    Rule,
    Seen,
    SlowerThan,
    first_bad,
    looks,
    miss_probability,
    next_candidate,
    open_candidates,
    steps_left,
    without_answer,
)

GOOD, BAD, UNTESTABLE = CandidateAnswer.GOOD, CandidateAnswer.BAD, CandidateAnswer.UNTESTABLE


def answer(of: CandidateAnswer, **counts: float) -> RepetitionResult:
    return RepetitionResult.model_validate({"answer": of, "reason": "simulated", **counts})


def decided_by(
    rule: Rule, draw: Callable[[], RepetitionResult], seen: Seen, *, bad_end: bool = False
) -> tuple[Decision, list[RepetitionResult]]:
    results: list[RepetitionResult] = []
    while (decision := rule.decide(results, seen, bad_end=bad_end) or without_answer(results)) is None:
        results.append(draw())
    return decision, results


def searched(truth: int, skipped: set[int], number: int) -> dict[int, CandidateAnswer]:
    """Bisect candidates of which the first bad one is ``truth``, without noise."""
    decided = {0: GOOD, number - 1: BAD}
    while (index := next_candidate(decided)) is not None:
        assert index not in decided
        decided[index] = UNTESTABLE if index in skipped else BAD if index >= truth else GOOD
    return decided


@given(st.integers(2, 300).flatmap(lambda number: st.tuples(st.just(number), st.integers(1, number - 1))))
def test_the_first_bad_candidate_is_found_in_logarithmic_steps(case: tuple[int, int]) -> None:
    number, truth = case
    expected = steps_left({0: GOOD, number - 1: BAD})
    decided = searched(truth, set(), number)
    assert first_bad(decided) == [truth]
    assert len(decided) - 2 <= expected


@given(st.data())
def test_what_cannot_be_tested_leaves_a_set_with_the_first_bad_one(data: st.DataObject) -> None:
    number = data.draw(st.integers(3, 60))
    truth = data.draw(st.integers(1, number - 1))
    skipped = data.draw(st.sets(st.integers(1, number - 2)))
    found = first_bad(searched(truth, skipped, number))
    assert truth in found
    # All but the last of the set were skipped, and no candidate that could be tested remains.
    assert set(found[:-1]) <= skipped


def test_next_to_a_broken_range_the_search_leaps() -> None:
    decided = searched(900, set(range(300, 700)), 1000)
    assert first_bad(decided) == [900]
    assert sum(one is UNTESTABLE for one in decided.values()) < 12


def test_steps_left() -> None:
    decided = {0: GOOD, 16: BAD}
    assert (next_candidate(decided), steps_left(decided), len(open_candidates(decided))) == (8, 4, 15)
    assert steps_left({0: GOOD, 1: BAD}) == 0
    assert next_candidate({0: GOOD, 1: BAD}) is None


def repetitions_needed(seen: Seen, error: float) -> int:
    return Reproduction(error=error).expected(seen)


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("error", [0.01, 0.1])
def test_a_bad_candidate_is_missed_with_at_most_the_stated_probability(rate: float, error: float) -> None:
    """The exact probability: the bad end takes m repetitions to the fifth failure, by the negative binomial."""
    missed = reached = 0.0
    total = BAD_WANTED
    while reached < 1 - 1e-6:
        weight = comb(total - 1, BAD_WANTED - 1) * rate**BAD_WANTED * (1 - rate) ** (total - BAD_WANTED)
        missed += weight * (1 - rate) ** repetitions_needed(Seen(BAD_WANTED, total), error)
        reached += weight
        total += 1
    assert missed + (1 - reached) <= error


def test_how_many_repetitions_a_good_candidate_needs() -> None:
    assert repetitions_needed(Seen(5, 5), 0.01) == 4
    assert repetitions_needed(Seen(5, 20), 0.01) == 28
    assert repetitions_needed(Seen(10, 10), 0.01) == 3
    assert miss_probability(Seen(5, 5), 0) == 1


@pytest.mark.parametrize(("rate", "truth"), [(1.0, 5), (0.6, 1), (0.3, 9), (0.3, 15)])
def test_noisy_bisections_find_the_planted_candidate(rate: float, truth: int) -> None:
    number, wrong, tests = 17, 0, 150
    for seed in range(tests):
        random, rule = Random(seed), Reproduction(most=500)
        decided: dict[int, CandidateAnswer] = {}
        seen = [0, 0]

        def test(
            index: int,
            bad_end: bool = False,
            random: Random = random,
            rule: Reproduction = rule,
            decided: dict[int, CandidateAnswer] = decided,
            seen: list[int] = seen,
        ) -> None:
            def draw() -> RepetitionResult:
                return answer(BAD if index >= truth and random.random() < rate else GOOD)

            decision, results = decided_by(rule, draw, Seen(*seen), bad_end=bad_end)
            decided[index] = decision.answer
            if decision.answer is BAD:
                seen[0] += sum(one.answer is BAD for one in results)
                seen[1] += len(results)

        test(number - 1, bad_end=True)
        test(0)
        while (index := next_candidate(decided)) is not None:
            test(index)
        wrong += first_bad(decided) != [truth]
    # At most four decisions of a bisection can be wrong, each with 1 %: 6 expected, 14 with three standard deviations.
    assert wrong <= (0 if rate == 1 else 14)


def test_one_failure_proves_a_candidate_bad() -> None:
    rule = Reproduction()
    decision = rule.decide([answer(GOOD), answer(BAD)], Seen(5, 9), bad_end=False)
    assert decision == Decision(BAD, "the failure occurred in 1 of 2 repetitions")


def test_the_bad_end_must_fail_several_times_and_may_be_good() -> None:
    rule = Reproduction(most=10)
    assert rule.decide([answer(BAD)] * 4, Seen(), bad_end=True) is None
    assert decided_by(rule, lambda: answer(BAD), Seen(), bad_end=True)[0].answer is BAD
    decision, results = decided_by(rule, lambda: answer(GOOD), Seen(), bad_end=True)
    assert (decision.answer, len(results)) == (GOOD, 10)


def test_a_failure_that_is_too_rare_decides_nothing() -> None:
    decision, results = decided_by(Reproduction(most=20), lambda: answer(GOOD), Seen(1, 20))
    assert (decision.answer, len(results)) == (UNTESTABLE, 20)
    assert "are needed: it occurs too rarely" in decision.reason


def test_once_is_once() -> None:
    rule = Reproduction(once=True)
    for bad_end in (True, False):
        for one in (GOOD, BAD):
            decision, results = decided_by(rule, lambda one=one: answer(one), Seen(), bad_end=bad_end)  # type: ignore[misc]
            assert (decision.answer, len(results)) == (one, 1)


def test_repetitions_without_an_answer() -> None:
    assert without_answer([answer(CandidateAnswer.UNKNOWN)] * 2) is None
    decision = without_answer([answer(CandidateAnswer.UNKNOWN)] * 3)
    assert decision is not None
    assert decision.answer is UNTESTABLE
    decision = without_answer([answer(GOOD), answer(UNTESTABLE)])
    assert decision is not None
    assert decision.answer is UNTESTABLE


@pytest.mark.parametrize(("factor", "expected"), [(0.95, BAD), (1.05, GOOD), (0.9, BAD), (1.2, GOOD)])
def test_a_cell_slower_than_a_bound(factor: float, expected: CandidateAnswer) -> None:
    wrong = 0
    for seed in range(200):
        random = Random(seed)

        def draw(random: Random = random) -> RepetitionResult:
            return answer(CandidateAnswer.MEASURED, value=100 * factor * random.lognormvariate(0, 0.03))

        decision, _ = decided_by(SlowerThan(100.0), draw, Seen())
        wrong += decision.answer not in (expected, UNTESTABLE)
    assert wrong <= 6  # 1 % of 200, and three standard deviations


def test_a_cell_at_the_bound_is_undecided_and_a_constant_one_decided() -> None:
    values = iter([99.0, 101.0] * 25)
    decision, results = decided_by(
        SlowerThan(100.0), lambda: answer(CandidateAnswer.MEASURED, value=next(values)), Seen()
    )
    assert (decision.answer, len(results)) == (UNTESTABLE, 50)
    decision, results = decided_by(SlowerThan(100.0), lambda: answer(CandidateAnswer.MEASURED, value=80.0), Seen())
    assert (decision.answer, len(results)) == (BAD, 3)


@pytest.mark.parametrize(("share", "expected"), [(0.0, GOOD), (0.02, GOOD), (0.1, BAD), (1.0, BAD)])
def test_more_broken_crash_states_than_a_bound(share: float, expected: CandidateAnswer) -> None:
    wrong = 0
    for seed in range(100):
        random = Random(seed)

        def draw(random: Random = random) -> RepetitionResult:
            return answer(
                CandidateAnswer.MEASURED, broken=sum(random.random() < share for _ in range(100)), judged=100
            )

        wrong += decided_by(MoreThanShare(0.05), draw, Seen())[0].answer is not expected
    assert wrong <= 4  # 1 % of 100, and three standard deviations


@given(st.integers(0, 5000), st.integers(1, 5))
def test_the_errors_of_all_tests_sum_up_to_less_than_the_bound(repetitions: int, first: int) -> None:
    tests = looks(repetitions, first, 0.01)
    assert sum(level for _, level in tests) <= 0.01
    assert [number for number, _ in tests] == sorted({number for number, _ in tests})


@pytest.mark.parametrize("rule", [Reproduction(), Reproduction(once=True), SlowerThan(5.0), MoreThanShare(0.1)])
def test_each_model_is_described(rule: Rule) -> None:
    assert "candidate" in rule.model
    assert rule.expected(Seen(5, 5)) >= 1
