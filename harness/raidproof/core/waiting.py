"""Clocks, waiting with deadlines, and signals: SIGINT, SIGTERM and SIGHUP interrupt a run, which then cleans up."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType
from typing import TypeVar

from raidproof.core.errors import DeadlineExceeded

T = TypeVar("T")
LONG_S = 5.0
"""Seconds after which a wait is reported to the listeners of `tell_long_waits`."""
_listeners: list[Callable[[str], object]] = []

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 3
"""Number of the signal that interrupts the clean-up too; ``raidproof gc`` then removes what remains."""
_received = 0
"""Number of signals since `unwind_on_signals`."""


def now_ns() -> int:
    """Return the time in nanoseconds on the host's monotonic clock."""
    return time.monotonic_ns()


def realtime_ahead_ns() -> int:
    """Return the real-time clock, which dates captured packets, minus the monotonic clock, in nanoseconds."""
    ahead = []
    for _ in range(3):
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        ahead.append((after - before, real - (before + after) // 2))
    # The attempt that took the shortest time has the smallest error.
    return min(ahead)[1]


def cpu_time_ns() -> int:
    """Return the CPU time that this process has used, in nanoseconds."""
    return time.process_time_ns()


def wall_clock() -> datetime:
    """Return the date and time in UTC, for names and records; durations use `now_ns`."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Deadline:
    """A time by which an awaited event must have happened."""

    at_ns: int
    """Nanoseconds on the host's monotonic clock."""
    limit_s: float | None = field(default=None, compare=False)
    """Seconds from the creation of the deadline to `at_ns`, for messages; None if not known."""

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline that is ``seconds`` from now."""
        return cls(now_ns() + int(seconds * 1e9), seconds)

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 after it."""
        return max(0.0, (self.at_ns - now_ns()) / 1e9)

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return now_ns() >= self.at_ns


def tell_long_waits(listener: Callable[[str], object]) -> None:
    """Call ``listener`` with a message for each wait that exceeds ``LONG_S`` seconds."""
    _listeners.append(listener)


class LongWait:
    """One wait for the event ``what``; reported to the listeners, once, when it exceeds ``LONG_S`` seconds."""

    def __init__(self, what: str) -> None:
        self._what: str | None = what
        self._from = Deadline.after(LONG_S)

    def goes_on(self) -> None:
        """Report the wait if it exceeds ``LONG_S`` seconds; the waiting code calls this method repeatedly."""
        if self._what is not None and self._from.passed:
            for listener in _listeners:
                listener(f"waiting for {self._what}")
            self._what = None


def wait_until(
    condition: Callable[[], T | None],
    deadline: Deadline,
    what: str,
    interval_s: float = 0.01,
) -> T:
    """Call ``condition`` repeatedly until it returns a true value, and return this value.

    ``what`` names the awaited event in messages. ``interval_s`` is the seconds between two calls.

    The last call begins after the deadline, so that no event is missed if this process was stopped for some time.

    Raises:
        DeadlineExceeded: the deadline passed without a true value; the message has the time limit, if it is known.
    """
    wait = LongWait(what)
    while True:
        last = deadline.passed
        if value := condition():
            return value
        if last:
            limit = "" if deadline.limit_s is None else f" after {deadline.limit_s:g} s"
            raise DeadlineExceeded(f"gave up waiting for {what}{limit}")
        wait.goes_on()
        pause(min(interval_s, deadline.remaining_s))


@contextmanager
def at_deadline(deadline: Deadline, action: Callable[[], object]) -> Iterator[None]:
    """Execute an action in another thread if the body runs past the deadline; the action must make the body return."""
    timer = threading.Timer(deadline.remaining_s, action)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def pause(seconds: float) -> None:
    """Sleep for the duration of a workload or between two polls; code that waits for an event uses `wait_until`."""
    time.sleep(seconds)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    global _received  # noqa: PLW0603  a process has one set of signal handlers
    _received += 1
    if _received in {1, PATIENCE}:
        raise KeyboardInterrupt(signal.Signals(number).name)
    # Not print(): a handler may interrupt a write to the same buffered stream.
    os.write(
        sys.__stderr__.fileno() if sys.__stderr__ else 2,
        b"raidproof: cleaning up; one more signal stops the clean-up\n",
    )


def interrupted() -> bool:
    """Return whether a signal arrived since `unwind_on_signals`, even if its KeyboardInterrupt was caught."""
    return _received > 0


def unwind_on_signals() -> None:
    """Make the first and third SIGINT, SIGTERM or SIGHUP raise KeyboardInterrupt; the second only prints a message."""
    global _received  # noqa: PLW0603
    _received = 0
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup(1) ignores SIGHUP: keep this
            signal.signal(number, _interrupt)


@contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Let `unwind_on_signals` handle the signals while the body runs, then restore the previous handlers."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    unwind_on_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
