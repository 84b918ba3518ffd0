"""Statistics of values that several workers measured: a worker's speed is no difference between cells or sides."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.verdict.change.statistics import (
    blocks_of,
    blocks_over,
    components,
    differing_in_rounds,
    least_change,
    least_repetitions,
    levels,
    repetitions_to_settle,
    rounds_to_part,
    shift,
)


def test_a_block_has_rounds_of_one_worker_only() -> None:
    assert blocks_over(7, 3) == [3, 2, 2]
    assert blocks_over(24, 2) == [6, 6, 6, 6]
    assert blocks_over(2, 5) == [1, 1]


@given(st.integers(0, 200), st.integers(1, 20))
def test_no_round_is_left_out(rounds: int, workers: int) -> None:
    assert sum(blocks_over(rounds, workers)) == rounds
    assert blocks_over(rounds, 1) == (blocks_of(rounds) if rounds else [])


@given(
    st.lists(st.floats(0.05, 20.0), min_size=2, max_size=3),
    st.lists(st.integers(1, 4), min_size=2, max_size=3),
    st.integers(0, 10_000),
)
def test_the_speeds_of_the_workers_do_not_change_the_test(speeds: list[float], each: list[int], seed: int) -> None:
    chance = random.Random(seed)
    blocks = [count for count, _ in zip(each, speeds, strict=False)]
    base, new = ([math.exp(chance.gauss(0, 0.02)) for _ in range(sum(blocks))] for _ in range(2))
    of_worker = [speed for speed, count in zip(speeds, blocks, strict=False) for _ in range(count)]
    equal = shift(base, new, blocks)
    mine, theirs = ([value * speed for value, speed in zip(side, of_worker, strict=True)] for side in (base, new))
    unequal = shift(mine, theirs, blocks)
    if len(blocks) > 1:
        assert unequal.p == pytest.approx(equal.p)
        assert unequal.estimate == pytest.approx(equal.estimate, abs=1e-9)
        assert unequal.variation == pytest.approx(equal.variation, abs=1e-9)


def test_a_single_pair_of_each_worker_has_a_variation_too() -> None:
    base = [10.0, 20.0, 40.0, 80.0]
    found = shift(base, [value * factor for value, factor in zip(base, [1.01, 1.03, 0.99, 1.0], strict=True)], [1] * 4)
    assert 0.005 < found.variation < 0.03
    assert least_change(found.variation, 4, 0.05, blocks=[1] * 4) is None
    assert least_change(found.variation, 8, 0.05, blocks=[1] * 8)


def test_pairs_need_more_repetitions_than_blocks() -> None:
    assert [least_repetitions(0.05 / cells, paired=True) for cells in (1, 6, 24)] == [6, 8, 10]
    found = shift([1.0] * 6, [1.05, 1.1, 1.02, 1.07, 1.06, 1.03], [6])
    one, many = (repetitions_to_settle(found, 0.01, 0.01, workers=workers) for workers in (1, 50))
    assert one is not None
    assert many is not None
    assert one < many


@given(st.integers(0, 1000))
def test_the_variation_between_workers_is_apart_from_that_within(seed: int) -> None:
    chance = random.Random(seed)
    speeds = [chance.gauss(0, 0.2) for _ in range(40)]
    samples = [[math.exp(speed + chance.gauss(0, 0.02)) for _ in range(5)] for speed in speeds]
    found = components(samples)
    assert found is not None
    assert 0.1 < found.between < 0.32
    assert 0.015 < found.within < 0.025


def test_a_variation_that_no_values_show_is_not_known() -> None:
    assert components([[1.0, 2.0]]) is None
    assert components([[1.0], [2.0]]) is None
    equal = components([[1.0, 1.1], [1.1, 1.0]])
    assert equal is not None
    assert equal.between == 0


def test_the_level_of_a_cell_has_no_effect_of_the_workers_that_measured_it() -> None:
    slow, fast = {"slow": 10.0}, {"slow": 11.0, "fast": 110.0}
    first, second = levels([{**slow, "fast": 100.0}, fast])
    assert second - first == pytest.approx(math.log(1.1))
    # The second cell was measured on the fast worker only, and is the slower one.
    first, second, _ = levels([{"slow": 10.0, "fast": 100.0}, {"fast": 90.0}, {"slow": 10.0, "fast": 100.0}])
    assert second - first == pytest.approx(math.log(0.9), abs=1e-6)


def test_cells_differ_within_rounds() -> None:
    one = {("a", 1): 10.0, ("b", 2): 100.0, ("a", 3): 10.1, ("b", 4): 101.0}
    other = {key: value * factor for (key, value), factor in zip(one.items(), [1.1, 1.11, 1.1, 1.12], strict=True)}
    assert differing_in_rounds([one, other], 0.05) == [[False, True], [True, False]]
    assert differing_in_rounds([one, {("a", 1): 11.0}], 0.05) == [[False, False], [False, False]]
    assert differing_in_rounds([], 0.05) == []
    noisy = {key: value * factor for (key, value), factor in zip(one.items(), [1.1, 0.9, 1.3, 1.0], strict=True)}
    assert differing_in_rounds([one, noisy], 0.05) == [[False, False], [False, False]]
    more = rounds_to_part(one, noisy, 0.05)
    assert more is not None
    assert more > 4
    assert rounds_to_part(one, {("a", 1): 11.0}, 0.05) is None
