"""The statistics: known values, and rates by simulation with fixed seeds."""

import math
import random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.comparison_power import NOISES, simulate
from raidproof.verdict.change.statistics import (
    Shift,
    arrangements,
    blocks_of,
    corrected,
    differing,
    groups,
    least_change,
    least_repetitions,
    paired_ratio,
    power,
    predicted,
    rank_correlation,
    repetitions_to_part,
    repetitions_to_settle,
    same_share,
    shift,
    variation,
)

VALUES = st.lists(st.floats(0.1, 1e6), min_size=2, max_size=6)


def test_the_smallest_p_is_that_of_the_two_extreme_arrangements() -> None:
    for count in (3, 4, 5, 6):
        found = shift(range(1, count + 1), range(11, 11 + count), [count])
        assert found.p == pytest.approx(2 / math.comb(2 * count, count))
    assert len(arrangements(((5, 5), (5, 5))).others) + 1 == math.comb(10, 5) ** 2


def test_an_unpaired_sample_with_other_counts_is_tested_too() -> None:
    assert shift([1, 2, 3], [11, 12, 13, 14, 15], [3]).p == pytest.approx(2 / math.comb(8, 3))


def test_too_few_arrangements_give_no_interval() -> None:
    found = shift([1, 2, 3], [4, 5, 6], [3])
    assert (found.low, found.high) == (None, None)
    assert shift([1, 2, 3], [4, 5, 6], [3], confidence=0.8).low is not None


def test_of_many_arrangements_some_are_drawn_and_none_is_certain() -> None:
    source = random.Random(1)
    base = [100 + source.random() for _ in range(20)]
    found = shift(base, [2 * value for value in base], blocks_of(20))
    assert 0 < found.p <= 1e-4
    assert found == shift(base, [2 * value for value in base], blocks_of(20))


def test_drift_between_blocks_hides_no_change() -> None:
    base = [100, 101, 100, 102, 101, 200, 201, 202, 200, 201]
    new = [value * 1.1 for value in base]
    assert shift(base, new, [5, 5]).p < 0.001
    assert shift(base, new, [10]).p > 0.1


@given(VALUES, VALUES)
def test_swapped_samples_have_the_reverse_shift(base: list[float], new: list[float]) -> None:
    forth, back = shift(base, new, [2]), shift(new, base, [2])
    assert forth.p == pytest.approx(back.p)
    assert forth.estimate == pytest.approx(-back.estimate, abs=1e-9)
    if forth.low is not None and back.high is not None:
        assert forth.low == pytest.approx(-back.high, abs=1e-9)


@given(st.lists(st.floats(0.5, 2), min_size=4, max_size=6), st.floats(0.2, 5))
def test_the_interval_moves_with_the_samples_and_agrees_with_the_test(values: list[float], factor: float) -> None:
    source = random.Random(len(values))
    other = [value * source.uniform(0.9, 1.1) for value in values]
    still, moved = (shift(values, [one * by for one in other], [len(values)]) for by in (1, factor))
    assert still.low is not None
    assert still.high is not None
    assert moved.low == pytest.approx(still.low + math.log(factor), abs=1e-6)
    if moved.p <= 0.05:
        assert not (moved.low or 0) < -1e-6 < 1e-6 < (moved.high or 0)


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    source = random.Random(3)
    missed = 0
    for _ in range(1000):
        base, new = ([1.05 ** source.gauss() for _ in range(5)] for _ in range(2))
        found = shift(base, new, [5])
        missed += not (found.low or 0) <= 0 <= (found.high or 0)
    assert 25 <= missed <= 65


def test_hochbergs_correction() -> None:
    # All of these are at most 0.05; Holm would call only the first.
    assert corrected([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])
    assert corrected([0.01, 0.06, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert corrected([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_a_corrected_p_is_between_p_and_its_bonferroni_bound(each: list[float]) -> None:
    for before, after in zip(each, corrected(each), strict=True):
        assert before <= after <= min(1, len(each) * before) + 1e-12


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([10, 10.1, 10.2, 10, 20, 20.1, 20, 20.3], True),
        ([10, 10.1, 10.2, 20, 20.1, 20, 20.3], False),  # fewer than 8
        ([10, 10.1, 10.2, 10, 10.1, 10, 20, 20.1], False),  # two of eight are outliers, no group
        ([10, 10.1, 10.2, 10, 10, 10, 10, 10.1], False),
        ([10, 10, 10, 10, 10.1, 10.1, 10.1, 10.1], False),  # the gap is less than the margin
        ([10, 11, 12, 13, 16, 17, 18, 19], False),
        ([0, 0, 0, 0, 5, 5, 5, 5], False),
    ],
)
def test_two_groups(values: list[float], found: bool) -> None:
    assert (groups(values, 0.03) is not None) is found


def test_one_group_is_seldom_called_two() -> None:
    source = random.Random(1)
    samples = [[1.05 ** source.gauss() for _ in range(8)] for _ in range(5000)]
    assert sum(groups(sample, 0.0) is not None for sample in samples) <= 15


def test_power_is_that_of_the_simulated_test() -> None:
    counted = simulate(200, 4, NOISES["normal"], cells=1, changed=1, repetitions=7, variation=0.05)
    assert counted.found == pytest.approx(power(math.log(1.1), 0.05, 7, 0.05), abs=0.08)


def test_the_smallest_change_is_found_in_95_percent() -> None:
    least = least_change(0.05, 10, 0.05)
    assert least is not None
    assert power(math.log1p(least), 0.05, 10, 0.05) == pytest.approx(0.95, abs=0.001)
    assert least_change(0.05, 3, 0.05) is None
    assert least_change(0.0, 5, 0.05) == 0.0
    assert least_change(5.0, 5, 0.05) is None


def test_the_fewest_repetitions_that_can_show_a_change() -> None:
    assert [least_repetitions(0.05 / cells) for cells in (1, 6, 24)] == [4, 5, 7]


def test_repetitions_that_settle_a_cell() -> None:
    changed = repetitions_to_settle(Shift(0.1, None, None, 1, 0.05), 0.03, 0.05)
    equal = repetitions_to_settle(Shift(0.0, None, None, 1, 0.05), 0.03, 0.05)
    assert changed is not None
    assert equal is not None
    assert 4 <= changed < 10 < equal < 100
    assert repetitions_to_settle(Shift(0.0, None, None, 1, 5.0), 0.03, 0.05) is None
    assert repetitions_to_settle(Shift(0.03, None, None, 1, 0.0), 0.03, 0.05) == 4


def test_repetitions_that_part_two_cells() -> None:
    assert repetitions_to_part([10], [11, 12], 0.05) is None
    assert repetitions_to_part([10, 10], [10, 10], 0.05) is None
    few, many = (repetitions_to_part([100, 102], [factor * 100, factor * 102], 0.05) for factor in (1.1, 1.02))
    assert few is not None
    assert many is not None
    assert few < many


def test_a_difference_of_samples_needs_two_values_and_more_than_noise() -> None:
    assert differing([[10, 10.1], [20], [0, 1]], 0.05) == [[False] * 3] * 3
    assert differing([[10, 10.1, 10.2], [20, 20.1, 20.3]], 0.05) == [[False, True], [True, False]]
    assert differing([], 0.05) == []


def test_shares_of_broken_states() -> None:
    assert same_share(0, 200, 12, 200) < 0.001
    assert same_share(5, 200, 6, 200) == pytest.approx(1.0)


def test_variation_is_within_blocks() -> None:
    assert variation([[1, 1], [2, 2]]) == 0
    assert variation([[1, 1, 2, 2], [2, 2, 4, 4]], ((2, 2), (2, 2))) == 0
    assert variation([[1]]) == 0
    assert mean([variation([[math.e, 1]])]) == pytest.approx(math.sqrt(0.5))
    # Blocks with one value of each side: the differences -1, 1, 0 have the standard deviation 1.
    assert variation([[math.e, 1, 1], [1, math.e, 1]], ((1, 1),) * 3) == pytest.approx(math.sqrt(0.5))


def test_equal_sides_are_seldom_called_different() -> None:
    for name in ("normal", "skewed (exponential)"):
        counted = simulate(40, 2, NOISES[name], cells=12, changed=0, repetitions=7, variation=0.05)
        assert counted.wrong <= 4


def test_a_change_by_10_percent_is_found() -> None:
    assert simulate(200, 2, NOISES["normal"], cells=1, changed=1, repetitions=10, variation=0.05).found >= 0.95


def test_a_ratio_within_rounds_is_free_of_their_drift() -> None:
    drift = [1.0, 3.0, 0.5, 2.0]
    found = paired_ratio([10 * of for of in drift], [20 * of for of in drift])
    assert found is not None
    assert (found.estimate, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert found.rounds == 4


def test_a_ratio_of_one_round_has_no_interval_and_of_none_no_value() -> None:
    found = paired_ratio([1.0], [2.0])
    assert found is not None
    assert (round(found.estimate, 9), found.low, found.high, found.rounds) == (2.0, None, None, 1)
    assert paired_ratio([], []) is None


def test_the_interval_of_a_ratio_covers_the_true_one_as_often_as_stated() -> None:
    source = random.Random(1)
    covered = 0
    for _ in range(400):
        base = [source.lognormvariate(0, 0.05) for _ in range(4)]
        new = [1.2 * source.lognormvariate(0, 0.05) for _ in range(4)]
        found = paired_ratio(base, new)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.2 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3], [10, 200, 3000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2, 2], [1, 1, 2, 2]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_a_regression_predicts_sums_of_effects() -> None:
    rows = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    found = predicted(rows, [1.0, 3.0, 4.0], [(1.0, 1.0), (0.0, 0.0)], penalty=1e-9)
    assert found == [pytest.approx(6.0), pytest.approx(1.0)]


def test_a_column_without_evidence_has_no_effect() -> None:
    rows = [(0.0, 0.0), (1.0, 0.0)]
    assert predicted(rows, [1.0, 3.0], [(1.0, 0.0), (1.0, 1.0)], penalty=1e-6) == [pytest.approx(3.0, abs=1e-4)] * 2
