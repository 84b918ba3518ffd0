from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.workload.regime import WINDOW, find_steady
from raidproof.workload.workload import Point


def series(values: Sequence[float]) -> list[Point]:
    return [Point(at_s=index + 1.0, value=value) for index, value in enumerate(values)]


LEVEL = st.floats(1e-3, 1e6)


@given(LEVEL, st.integers(WINDOW, 30))
def test_what_stays_the_same_is_steady_from_the_beginning(level: float, count: int) -> None:
    found = find_steady(series([level] * count))
    assert (found.steady, found.since_s) == (True, 0.0)


@given(LEVEL, st.lists(st.floats(0.96, 1.04), min_size=WINDOW, max_size=20))
def test_little_noise_is_steady(level: float, noise: list[float]) -> None:
    # A line through values within 4 % of the level rises by less than 10 % of it.
    assert find_steady(series([level * factor for factor in noise])).steady


@given(st.lists(LEVEL, max_size=WINDOW - 1))
def test_too_few_points_give_no_result(values: list[float]) -> None:
    found = find_steady(series(values))
    assert (found.steady, found.since_s, found.excursion) == (None, None, None)
    assert "fewer than a window of 5" in found.reason


@given(LEVEL, st.floats(1.3, 100.0), st.integers(0, WINDOW - 1))
def test_one_value_far_off_in_the_last_window_is_not_steady(level: float, factor: float, where: int) -> None:
    values = [level] * 20
    values[-1 - where] *= factor
    found = find_steady(series(values))
    assert (found.steady, found.since_s) == (False, None)
    assert "of their mean, more than 20%" in found.reason


@pytest.mark.parametrize(("step", "word"), [(0.03, "values rise"), (-0.03, "values fall")])
def test_a_slope_within_the_excursion_is_not_steady(step: float, word: str) -> None:
    found = find_steady(series([100 * (1 + step * index) for index in range(WINDOW)]))
    assert found.steady is False
    assert found.excursion is not None
    assert found.excursion < 0.20
    assert found.slope is not None
    assert (found.slope > 0) == (step > 0)
    assert word in found.reason


@given(st.floats(2.0, 100.0), st.integers(1, 20))
def test_a_cache_that_fills_up_counts_from_then_on(factor: float, cached: int) -> None:
    found = find_steady(series([100 * factor] * cached + [100.0] * 10))
    assert (found.steady, found.since_s) == (True, float(cached))


def test_a_cache_that_fills_up_at_the_end_is_not_steady() -> None:
    assert find_steady(series([100.0] * 20 + [30.0])).steady is False


def test_nothing_moved() -> None:
    found = find_steady(series([0.0] * 10))
    assert (found.steady, found.reason, found.excursion) == (False, "no data was transferred in the last window", None)


@given(st.lists(st.floats(0.5, 2.0), min_size=WINDOW, max_size=20), st.floats(0.01, 1000.0), st.floats(0.01, 1000.0))
def test_units_do_not_matter(values: list[float], scale: float, interval_s: float) -> None:
    found = find_steady(series(values))
    assert found.excursion is not None
    assert found.slope is not None
    # Rounding decides only where a limit is met exactly.
    assume(abs(found.excursion - 0.2) > 1e-6 and abs(abs(found.slope) - 0.1) > 1e-6)
    scaled = [Point(at_s=(index + 1) * interval_s, value=value * scale) for index, value in enumerate(values)]
    assert find_steady(scaled).steady == found.steady


def test_points_out_of_order() -> None:
    with pytest.raises(RigError, match="do not increase"):
        find_steady([Point(at_s=1.0, value=1.0), Point(at_s=1.0, value=1.0)])
