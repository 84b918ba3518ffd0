"""Changes of level: found where one is planted, and not found in series without one."""

import random
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.verdict.change_point import LEVEL, find_changes, least_values

SEEDS = 200


def noise(seed: int, number: int, level: float = 100.0, sigma: float = 0.05) -> list[float]:
    generator = random.Random(seed)
    return [level * generator.lognormvariate(0, sigma) for _ in range(number)]


@pytest.mark.parametrize("number", [12, 20, 40])
def test_equal_series_show_no_change(number: int) -> None:
    without = sum(not find_changes(noise(seed, number)) for seed in range(SEEDS))
    assert without >= 0.95 * SEEDS


@pytest.mark.parametrize(("before", "after"), [(15, 15), (20, 20), (40, 40)])
@pytest.mark.parametrize("step", [0.9, 1.1])
def test_a_step_of_10_percent_at_noise_of_5_percent_is_found(before: int, after: int, step: float) -> None:
    series = (noise(seed, before) + noise(seed + SEEDS, after, level=100 * step) for seed in range(SEEDS))
    changes = [found for values in series if (found := find_changes(values))]
    assert len(changes) >= 0.95 * SEEDS
    assert sum(any((one.ratio or 0) > 1 for one in found) is (step > 1) for found in changes) >= 0.95 * SEEDS
    near = sum(any(abs(one.index - before) <= 3 for one in found) for found in changes)
    assert near >= 0.9 * SEEDS


def test_each_of_two_steps_is_found_with_its_size() -> None:
    values = noise(1, 15, 100, 0.01) + noise(2, 15, 90, 0.01) + noise(3, 15, 99, 0.01)
    first, second = find_changes(values)
    assert (first.index, second.index) == (15, 30)
    assert first.ratio == pytest.approx(0.9, rel=0.02)
    assert second.ratio == pytest.approx(1.1, rel=0.02)
    assert (first.before, first.after) == (median(values[:15]), median(values[15:30]))


def test_one_value_that_deviates_is_no_change() -> None:
    assert find_changes([*noise(1, 20), 10.0, *noise(2, 20)]) == []
    assert find_changes([*noise(1, 40), 10.0]) == []


def test_a_change_begins_only_where_one_is_permitted() -> None:
    values = noise(1, 14, 100, 0.01) + noise(2, 16, 80, 0.01)
    assert {one.index for one in find_changes(values, splits=[10, 20])} & {10, 20}
    assert {one.index for one in find_changes(values, splits=[10, 20])} <= {10, 20}
    assert find_changes(values, splits=[]) == []


def test_fewer_values_than_the_least_number_show_nothing() -> None:
    least = least_values()
    assert least == 10
    ordered = [float(value) for value in range(1, least + 1)]
    assert find_changes(ordered[:-1]) == []
    assert [one.index for one in find_changes(ordered)] == [5]


@pytest.mark.parametrize("values", [[], [1.0], [5.0] * 30])
def test_a_series_without_variation_shows_nothing(values: list[float]) -> None:
    assert find_changes(values) == []


SERIES = st.lists(st.integers(min_value=1, max_value=50).map(float), min_size=2, max_size=14)


@given(SERIES)
def test_the_unit_of_the_values_does_not_matter(values: list[float]) -> None:
    scaled = [(one.index, one.p_value) for one in find_changes([7.5 * value for value in values])]
    assert scaled == [(one.index, one.p_value) for one in find_changes(values)]


@given(SERIES)
def test_changes_are_in_order_and_leave_parts_of_two_values(values: list[float]) -> None:
    changes = find_changes(values)
    edges = [0, *(one.index for one in changes), len(values)]
    assert all(end - first >= 2 for first, end in pairwise(edges))
    assert all(0 < one.p_value <= LEVEL for one in changes)
