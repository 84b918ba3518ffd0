"""The verdict on a storm, and the pairs that it covered."""

import pytest

from raidproof.record.outcome import Outcome
from raidproof.record.storm import DrawnCase, StormRow
from raidproof.verdict.storm import conclude_storm, faults_in_phases, pairs_of_faults


def row(seed: int, outcome: Outcome, *names: str) -> StormRow:
    drawn = DrawnCase(
        array="md RAID5",
        members=4,
        cache_mode="volatile",
        kinds=["fsync"],
        faults=list(names),
        names=list(names),
        phases=["work"] * len(names),
        tables=[],
    )
    return StormRow(seed=seed, drawn=drawn, cycles=[], outcome=outcome, reason=f"it is {outcome.value}", seconds=1.0)


@pytest.mark.parametrize(
    ("outcomes", "outcome", "reason"),
    [
        ([], Outcome.INCONCLUSIVE, "no seed showed"),
        ([Outcome.INCONCLUSIVE, Outcome.SKIP], Outcome.INCONCLUSIVE, "no seed showed"),
        ([Outcome.PASS] * 2, Outcome.PASS, "every promise held in 2 random schedules of faults"),
        ([Outcome.PASS, Outcome.INCONCLUSIVE], Outcome.PASS, "1 showed nothing"),
        ([Outcome.PASS, Outcome.ERROR], Outcome.ERROR, "seed 1: it is ERROR"),
        ([Outcome.ERROR, Outcome.PASS, Outcome.FAIL, Outcome.FAIL], Outcome.FAIL, "seeds 2, 3: it is FAIL"),
        ([Outcome.FAIL] * 7, Outcome.FAIL, "seeds 0, 1, 2, 3, 4 and 2 more"),
    ],
)
def test_a_storm_fails_if_a_seed_fails_and_passes_if_one_held(
    outcomes: list[Outcome], outcome: Outcome, reason: str
) -> None:
    found, said = conclude_storm([row(seed, one) for seed, one in enumerate(outcomes)])
    assert found is outcome
    assert reason in said


def test_only_crash_tests_that_show_something_cover_a_pair_and_each_counts_once() -> None:
    rows = [
        row(1, Outcome.PASS, "a", "b", "a"),
        row(2, Outcome.FAIL, "a", "b"),
        row(3, Outcome.INCONCLUSIVE, "c", "d"),
        row(4, Outcome.ERROR, "c"),
    ]
    assert pairs_of_faults(rows) == {("a", "b"): 2, ("b", "a"): 1, ("a", "a"): 1}
    assert faults_in_phases(rows) == {("a", "work"): 2, ("b", "work"): 2}
