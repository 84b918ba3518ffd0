"""Ctrl-C and SIGTERM: the first unwinds everything that is open, so that each step is undone."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 3
"""The signal of this number ends the unwinding too; what is left is then for ``raidproof gc``."""

_received = 0


def _interrupt(number: int, _frame: FrameType | None) -> None:
    global _received  # noqa: PLW0603  a process has one set of signal handlers
    _received += 1
    if _received in {1, PATIENCE}:
        raise KeyboardInterrupt(signal.Signals(number).name)
    # Not print(): a handler may interrupt a write to the same buffered stream.
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"raidproof: cleaning up; once more to stop at once\n")


def interrupted() -> bool:
    """Whether a signal came since ``unwind_on_signals``, even if something else has caught its exception."""
    return _received > 0


def unwind_on_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, once: a second one must not cut the clean-up short."""
    global _received  # noqa: PLW0603
    _received = 0
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)


@contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Do so while the body runs, then give the signals back to whoever had them."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    unwind_on_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
