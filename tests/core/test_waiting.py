import threading
from threading import Event

import pytest

from raidproof.core.errors import DeadlineExceeded
from raidproof.core.waiting import Deadline, at_deadline, now_ns, wait_until


def test_returns_the_first_true_answer() -> None:
    answers = iter([None, "", "ready", "never asked"])
    assert wait_until(lambda: next(answers), Deadline.after(60), "an answer", interval_s=0) == "ready"


def test_says_what_was_awaited() -> None:
    with pytest.raises(DeadlineExceeded, match=r"^gave up waiting for the array after 0\.02 s$"):
        wait_until(lambda: None, Deadline.after(0.02), "the array", interval_s=0)
    with pytest.raises(DeadlineExceeded, match=r"^gave up waiting for the array$"):
        wait_until(lambda: None, Deadline(at_ns=0), "the array")


def test_asks_at_least_once_even_if_the_time_is_up() -> None:
    assert wait_until(lambda: "there", Deadline(at_ns=0), "it") == "there"


def test_an_event_that_happens_while_this_process_is_stopped_is_not_missed() -> None:
    deadline, answers = Deadline.after(0.02), iter([None, "there"])

    def stopped() -> str | None:
        wait_until(lambda: deadline.passed, Deadline.after(60), "the deadline")
        return next(answers)

    assert wait_until(stopped, deadline, "it") == "there"


def test_a_long_wait_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("raidproof.core.waiting._listeners", [said.append])
    answers = iter([None, None, "there"])
    assert wait_until(lambda: next(answers), Deadline.after(60), "the array", interval_s=0) == "there"
    assert not said
    monkeypatch.setattr("raidproof.core.waiting.LONG_S", 0.0)
    answers = iter([None, None, "there"])
    assert wait_until(lambda: next(answers), Deadline.after(60), "the array", interval_s=0) == "there"
    assert said == ["waiting for the array"]


def test_a_broken_condition_is_not_waited_out() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, Deadline.after(60), "it")


def test_deadline() -> None:
    assert Deadline(at_ns=0).passed
    assert Deadline(at_ns=0).remaining_s == 0
    assert not Deadline.after(3600).passed
    assert Deadline.after(3600).at_ns > now_ns()


def test_what_waits_without_a_limit_is_ended_at_the_deadline() -> None:
    ended = Event()
    with at_deadline(Deadline.after(0.01), ended.set):
        assert ended.wait(60)


def test_what_ends_in_time_is_left_alone() -> None:
    ended = Event()
    before = set(threading.enumerate())
    with at_deadline(Deadline.after(3600), ended.set):
        (timer,) = (one for one in {*threading.enumerate()} - before if isinstance(one, threading.Timer))
    timer.join(60)
    assert not timer.is_alive()
    assert not ended.is_set()
