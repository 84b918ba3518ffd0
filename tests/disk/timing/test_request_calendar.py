"""The calendar executes actions in order, at their times."""

from hypothesis import given
from hypothesis import strategies as st

from raidproof.disk.timing.request import Calendar


@given(st.lists(st.integers(0, 50)))
def test_in_the_order_of_times_then_of_entry(times: list[int]) -> None:
    calendar, done = Calendar(), []
    for number, time in enumerate(times):
        calendar.at(time, lambda at, number=number: done.append((at, number)))  # type: ignore[misc]
    calendar.advance(25)
    assert done == sorted((time, number) for number, time in enumerate(times) if time <= 25)
    assert calendar.next_ns == min((time for time in times if time > 25), default=None)
    calendar.advance(50)
    assert len(done) == len(times)
    assert calendar.reached_ns == max(times, default=0)


def test_what_an_action_brings_about_is_done_too() -> None:
    calendar = Calendar()
    done: list[int] = []
    calendar.at(1, lambda at: calendar.at(at + 1, done.append))
    calendar.at(1, lambda at: calendar.at(at + 9, done.append))
    calendar.advance(5)
    assert (done, calendar.next_ns) == ([2], 10)
    calendar.clear()
    assert calendar.next_ns is None
