import pytest

from raidproof.plan.forecast import CONTROL, CUT, REPETITION, Forecast, left_in_words


@pytest.fixture
def forecast() -> Forecast:
    forecast = Forecast()
    for number in range(3):
        forecast.add(REPETITION, number, 10.0)
    forecast.add(CONTROL, "lying", 20.0)
    forecast.add(CUT, "a", 20.0)
    forecast.add(CUT, "b", 30.0)
    return forecast


def test_before_anything_is_measured_it_is_what_was_expected(forecast: Forecast) -> None:
    assert forecast.left_s == 100
    assert left_in_words(forecast) == ""


def test_measured_parts_correct_their_kind_and_kinds_without_measurement(forecast: Forecast) -> None:
    forecast.ended(REPETITION, 0, 30.0)
    assert forecast.left_s == 3 * (20 + 70)
    # A cut that took as long as expected says that cuts do; controls go by all that ended.
    forecast.ended(CUT, "a", 20.0)
    assert forecast.left_s == 3 * 20 + 30 + 20 * (50 / 30)
    assert left_in_words(forecast) == " (about 0:02:03 left)"


def test_what_is_not_going_to_happen_takes_no_time(forecast: Forecast) -> None:
    forecast.dropped(CUT, "b")
    forecast.dropped(CUT, "nobody expected it")
    assert forecast.left_s == 70


def test_an_unexpected_part_changes_no_estimate(forecast: Forecast) -> None:
    forecast.ended(REPETITION, "a repetition more", 500.0)
    assert not forecast.learned
    assert forecast.left_s == 100


def test_two_interleaved_runs_take_the_time_of_both(forecast: Forecast) -> None:
    other = Forecast()
    other.add(REPETITION, 0, 10.0)
    other.add(REPETITION, 1, 10.0)
    forecast.ended(REPETITION, 0, 10.0)
    assert left_in_words(forecast, other) == ""
    other.ended(REPETITION, 0, 20.0)
    assert left_in_words(forecast, other) == " (about 0:01:50 left)"
