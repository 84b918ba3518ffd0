from hypothesis import assume, given
from hypothesis import strategies as st

from raidproof.report.chart import Axis

values = st.lists(st.floats(min_value=0, max_value=1e9), min_size=1, max_size=9)


@given(values)
def test_an_axis_from_zero_holds_all_values_in_their_order(given_values: list[float]) -> None:
    assume(all(value == 0 or value > 1e-6 for value in given_values))
    axis = Axis.from_zero(given_values, 0, 1000)
    assert axis.low == axis.values[0] == 0
    assert axis.high * (1 + 1e-9) >= max(given_values)
    pixels = [axis.at(value) for value in sorted(given_values)]
    assert pixels == sorted(pixels)
    assert 0 <= pixels[0] <= pixels[-1] <= 1000


def test_a_small_span_is_linear() -> None:
    axis = Axis.from_zero([127, 204], 0, 500)
    assert axis.scale == ""
    assert [tick.label for tick in axis.ticks] == ["0", "50", "100", "150", "200", "250"]
    assert axis.at(125) == 250


def test_a_large_span_is_logarithmic_above_a_knee_and_says_so() -> None:
    axis = Axis.from_zero([0, 0.02, 40], 0, 500)
    assert axis.scale == "logarithmic above 0.01"
    assert [tick.label for tick in axis.ticks] == ["0", "0.01", "0.1", "1", "10", "100"]
    assert axis.at(0) == 0


def test_an_axis_of_zeroes_is_drawable() -> None:
    assert Axis.from_zero([0, 0], 0, 100).at(0) == 0


def test_times_before_zero_have_a_minus() -> None:
    axis = Axis.between(-3, 5, 0, 800)
    assert axis.ticks[0].label == "\N{MINUS SIGN}3"
    assert axis.at(0) == 300
    assert axis.at(99) == 800
