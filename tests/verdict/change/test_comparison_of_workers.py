"""A comparison on a cluster: a worker whose machine is faster makes no side faster."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.comparison import PairFinding
from raidproof.record.outcome import Outcome
from raidproof.verdict.cell import judge_cell, modes_of
from raidproof.verdict.change.difference import Rules, judge_pairs
from raidproof.verdict.ranking import rank

SPEEDS = {"slow": 50.0, "fast": 100.0}


def cell(values: list[tuple[str | None, int, float]], name: str = "level=5") -> CellRecord:
    record = CellRecord(name=name, settings={}, workload={}, unit="write_mb_s", asked={}, outcome=Outcome.PASS)
    record.repeats = [
        Repetition(round=round_, worker=worker, value=value, limit="disks") for worker, round_, value in values
    ]
    return record


def side(seed: str, factor: float = 1.0, rounds: int = 12, noise: float = 0.01) -> CellRecord:
    """A cell of which each worker makes the rounds that it gets by chance; equal rounds have equal workers."""
    chance, whose = random.Random(seed), random.Random(1)
    values: list[tuple[str | None, int, float]] = []
    for round_ in range(1, rounds + 1):
        worker = whose.choice([*SPEEDS])
        values.append((worker, round_, SPEEDS[worker] * factor * math.exp(chance.gauss(0, noise))))
    return cell(values)


@given(st.integers(0, 100_000), st.sampled_from([0.5, 1.5, 2.0, 10.0]))
@settings(max_examples=50)
def test_the_speed_of_a_worker_makes_no_side_faster(seed: int, factor: float) -> None:
    """The result on machines of different speed is that on equal machines."""
    pairs = side(f"{seed}/base"), side(f"{seed}/new")
    faster = [one.model_copy(deep=True) for one in pairs]
    for one in faster:
        for repeat in one.repeats:
            assert repeat.value is not None
            repeat.value *= factor if repeat.worker == "fast" else 1
    equal, unequal = (judge_pairs([(base, new)], Rules())[0] for base, new in (pairs, faster))
    assert equal.change is not None
    assert unequal.change is not None
    assert unequal.finding is equal.finding
    assert unequal.change.p == pytest.approx(equal.change.p)
    assert unequal.change.ratio == pytest.approx(equal.change.ratio)


def test_equal_sides_on_machines_of_different_speed_seldom_differ() -> None:
    wrong = sum(
        judge_pairs([(side(f"{seed}/base"), side(f"{seed}/new"))], Rules())[0].finding
        in {PairFinding.FASTER, PairFinding.SLOWER}
        for seed in range(200)
    )
    assert wrong <= 16  # 4 % are expected


def test_a_change_is_found_in_spite_of_the_workers() -> None:
    [pair] = judge_pairs([(side("base"), side("new", 0.95))], Rules())
    assert pair.finding is PairFinding.SLOWER
    assert pair.change is not None
    assert pair.change.ratio == pytest.approx(0.95, abs=0.01)
    assert sum(pair.change.blocks) == 12
    assert len(pair.change.blocks) == 2


def test_only_rounds_of_the_same_worker_are_pairs() -> None:
    base = cell([("slow", 1, 50.0), ("slow", 2, 50.5), ("fast", 3, 100.0), ("fast", 4, 101.0)])
    moved = cell([("slow", 1, 50.0), ("slow", 2, 50.5), ("fast", 3, 100.0), ("slow", 4, 50.0)])
    [pair] = judge_pairs([(base, moved)], Rules())
    assert pair.change is not None
    assert sum(pair.change.blocks) == 3


def test_runs_of_different_workers_are_not_comparable() -> None:
    here, there = (cell([(name, round_, 10.0) for round_ in range(1, 6)]) for name in ("one", "other"))
    for paired in (True, False):
        [pair] = judge_pairs([(here, there)], Rules(paired=paired))
        assert pair.finding is PairFinding.NOT_COMPARABLE
        assert "no worker measured both sides" in pair.why
    [pair] = judge_pairs([(side("base"), side("new"))], Rules(paired=False))
    assert pair.change is not None
    assert len(pair.change.blocks) == 2


def test_two_machines_are_not_two_modes() -> None:
    values = [(worker, place, speed + place / 100) for place in range(10) for worker, speed in SPEEDS.items()]
    assert modes_of(cell([*values])) is None
    assert modes_of(cell([("one", place, value) for place, (_, _, value) in enumerate(values)])) is not None


def test_the_spread_between_workers_is_apart_from_that_within() -> None:
    measured = side("base")
    judge_cell(measured, None)
    assert measured.between_workers == pytest.approx(math.log(2) / math.sqrt(2), rel=0.1)
    assert measured.within_workers == pytest.approx(0.01, rel=0.6)
    assert not measured.unstable
    assert measured.flag is None
    alone = cell([(None, place, 10.0 * place) for place in range(1, 4)])
    judge_cell(alone, None)
    assert (alone.between_workers, alone.within_workers) == (None, None)
    assert alone.unstable


def test_cells_are_ranked_within_rounds() -> None:
    values = [("slow", 1, 50.0), ("fast", 2, 100.0), ("slow", 3, 50.2), ("fast", 4, 99.0), ("slow", 5, 50.1)]
    worse = [(worker, round_, value * factor) for (worker, round_, value), factor in zip(
        values, [0.9, 0.91, 0.9, 0.905, 0.9], strict=True)]  # fmt: skip
    first, second = cell([*values], "first"), cell([*worse], "second")
    # The slower cell has no value of the slow worker's last round: its median alone would make it the faster one.
    second.repeats[4].value = second.repeats[0].value = None
    for one in (first, second):
        one.rankable = True
    assert (second.median or 0) > (first.median or 0)
    rank([second, first])
    assert (first.rank, second.rank) == (1, 2)
    assert second.tied_with is None
