"""The search on tables of speeds: no machine boots."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.advice import Drop, PickedBy, RungRecord
from raidproof.run.advise.search import (
    FINALISTS,
    RANDOM_SHARE,
    Candidate,
    Result,
    Search,
    adjusted,
    by_round,
    settled,
)

SIZES = (3, 3, 2, 2)
Places = tuple[int | None, ...]
Speed = Callable[[Places], float]


def candidates(expected: Speed | None = None) -> list[Candidate]:
    every = product(*map(range, SIZES))
    return [Candidate(str(places), places, None if expected is None else expected(places)) for places in every]


BASE = str((0,) * len(SIZES))


def product_of_effects(places: Places) -> float:
    first, second, third, _ = (place or 0 for place in places)
    return float(100 * 1.3**first * 0.8**second * 1.1**third)


def carried_out(
    search: Search, speed: Speed, repetitions: int, noise: float = 0.0, failing: Sequence[str] = ()
) -> tuple[list[RungRecord], list[Result]]:
    source = random.Random(1)
    rungs: list[RungRecord] = []
    results: list[Result] = []
    while (rung := search.next_rung(rungs, results, repetitions - len(results))) is not None:
        rungs.append(rung)
        for name in rung.names:
            value = speed(search.candidates[name].places) * source.lognormvariate(0, noise)
            results.append(Result(name, rung.round, None if name in failing else value))
    return rungs, results


def test_the_best_of_a_table_is_found() -> None:
    search = Search(candidates(), BASE, seed=1)
    rungs, results = carried_out(search, product_of_effects, 60, noise=0.02)
    leader = search.candidates[search.leaders(rungs, results)[0]].places
    assert product_of_effects(leader) >= 0.97 * max(map(product_of_effects, product(*map(range, SIZES))))


def test_a_wrong_model_is_found_out() -> None:
    search = Search(candidates(lambda places: 1 / product_of_effects(places)), BASE, seed=1)
    rungs, results = carried_out(search, product_of_effects, 60, noise=0.02)
    leader = search.candidates[search.leaders(rungs, results)[0]].places
    assert product_of_effects(leader) >= 0.9 * max(map(product_of_effects, product(*map(range, SIZES))))


def test_the_first_rung_has_what_the_model_expects_to_be_fast_and_a_random_share() -> None:
    search = Search(candidates(product_of_effects), BASE, seed=1)
    first = search.next_rung([], [], 60)
    assert first is not None
    by_model = [one for one in first.picked if one.by is PickedBy.MODEL]
    by_chance = [one for one in first.picked if one.by is PickedBy.CHANCE]
    assert first.picked[0].by is PickedBy.CURRENT
    assert len(by_chance) >= RANDOM_SHARE * (len(first.picked) - 1)
    least = min(one.expected or 0 for one in by_model)
    left = [one for one in search.candidates.values() if one.name not in first.names]
    assert all((one.expected or 0) <= least for one in left)


def test_without_a_model_all_are_chosen_at_random_and_another_seed_chooses_others() -> None:
    one, other = (Search(candidates(), BASE, seed=seed).next_rung([], [], 40) for seed in (1, 2))
    assert one is not None
    assert other is not None
    assert {picked.by for picked in one.picked} == {PickedBy.CURRENT, PickedBy.CHANCE}
    assert one.names != other.names
    assert one == Search(candidates(), BASE, seed=1).next_rung([], [], 40)


def test_each_rung_says_which_were_dropped_and_why() -> None:
    search = Search(candidates(), BASE, seed=1)
    failing = [search.next_rung([], [], 60).names[3]]  # type: ignore[union-attr]
    rungs, _ = carried_out(search, product_of_effects, 60, noise=0.02, failing=failing)
    dropped = {(one.name, one.why) for one in rungs[1].dropped}
    assert (failing[0], Drop.FAILED) in dropped
    assert Drop.SLOWER in {why for _, why in dropped}
    gone = set(rungs[0].names) - set(rungs[1].names)
    assert gone == {name for name, _ in dropped}
    assert all(failing[0] not in rung.names for rung in rungs[1:])


def test_the_current_configuration_is_in_each_rung() -> None:
    rungs, _ = carried_out(Search(candidates(), BASE, seed=1), product_of_effects, 60)
    assert len(rungs) > 3
    assert all(rung.names[0] == BASE for rung in rungs)


def test_the_search_ends_early_if_the_leader_is_settled() -> None:
    _, results = carried_out(
        Search(candidates(), BASE, seed=1), lambda places: 10.0 ** sum(place or 0 for place in places), 10_000
    )
    assert len(results) < 150


def test_the_leader_without_changes_that_have_no_effect_is_measured() -> None:
    # The last axis has no effect, and no configuration with its current value is fast before.
    search = Search(candidates(lambda places: product_of_effects(places) * 2.0 ** (places[3] or 0)), BASE, seed=1)
    rungs, _ = carried_out(search, product_of_effects, 30, noise=0.01)
    tried = {name: one.by for rung in rungs for one in rung.picked if (name := one.name)}
    best = str((2, 0, 1, 0))
    assert best in tried


@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_a_budget_that_is_too_small_ends_the_search(left: int) -> None:
    assert Search(candidates(), BASE, seed=1).next_rung([], [], left) is None


@given(st.integers(8, 200), st.integers(0, 1000), st.booleans())
def test_the_budget_is_never_exceeded_by_more_than_the_finalists(repetitions: int, seed: int, model: bool) -> None:
    search = Search(candidates(product_of_effects if model else None), BASE, seed=seed)
    rungs, results = carried_out(search, product_of_effects, repetitions, noise=0.05)
    assert len(results) <= repetitions + FINALISTS
    assert all(len(set(rung.names)) == len(rung.names) for rung in rungs)
    assert [rung.round for rung in rungs] == list(range(1, len(rungs) + 1))


@given(st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=6), st.integers(2, 5))
def test_the_drift_of_rounds_does_not_change_the_scores(drift: list[float], cells: int) -> None:
    results = [
        Result(str(cell), round_, (cell + 1) * math.exp(of))
        for round_, of in enumerate(drift)
        for cell in range(cells)
    ]
    scores = adjusted(results)
    assert scores["1"] - scores["0"] == pytest.approx(math.log(2))


def test_a_cell_that_missed_slow_rounds_has_no_advantage() -> None:
    results = [Result("steady", round_, 100.0 * drift) for round_, drift in enumerate((0.5, 0.5, 1.0, 1.0))]
    results += [Result("late", round_, 90.0 * drift) for round_, drift in ((2, 1.0), (3, 1.0))]
    scores = adjusted(results)
    assert math.exp(scores["late"] - scores["steady"]) == pytest.approx(0.9, rel=0.01)


def test_failed_repetitions_have_no_speed() -> None:
    assert by_round([Result("a", 1, None), Result("a", 2, 3.0)]) == {"a": {2: 3.0}}


def test_equal_and_slower_candidates_are_settled_and_noisy_ones_are_not() -> None:
    leader = {1: 100.0, 2: 101.0, 3: 99.0}
    assert settled(leader, {1: 80.0, 2: 81.0, 3: 79.0})
    assert settled(leader, {1: 100.1, 2: 101.1, 3: 99.1})
    assert not settled(leader, {1: 80.0, 2: 120.0, 3: 95.0})
    assert not settled(leader, {1: 80.0})
    assert not settled(leader, {})
