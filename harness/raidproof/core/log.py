"""Progress messages: a live display on a terminal, plain lines elsewhere, and a log file with all messages."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.status import Status

from raidproof.core.terminal import Terminal
from raidproof.core.waiting import tell_long_waits

logger = logging.getLogger("raidproof")

# A duplicate of standard error, so that pytest's capture of file descriptor 2 does not swallow the progress.
_stream = os.fdopen(os.dup(sys.__stderr__.fileno()), "w", buffering=1) if sys.__stderr__ else sys.stderr
console = Terminal(file=_stream, highlight=False)
_status: Status | None = None
_step = ""
"""Message of the current step."""


def redrawn() -> bool:
    """Return whether messages replace each other on the screen: on a terminal that is not the log of a CI job.

    A log keeps each movement of the cursor; FORCE_COLOR, which requests colors in a log, does not make it a terminal.
    """
    on_terminal = console.is_terminal and console.file.isatty() and not console.is_dumb_terminal
    return on_terminal and os.environ.get("CI", "").lower() in {"", "0", "false"}


@contextmanager
def shown_on(stream: TextIO, width: int) -> Iterator[None]:
    """Print all messages as plain lines to a stream during the ``with`` block; a line has ``width`` characters."""
    global console  # noqa: PLW0603  there is one screen
    before, console = console, Terminal(file=stream, width=width, highlight=False, force_terminal=False)
    try:
        yield
    finally:
        console = before


def be_silent() -> None:
    """Print no further messages; log files still get them. For processes that share the screen with another one."""
    global console  # noqa: PLW0603  there is one screen
    console = Terminal(file=open(os.devnull, "w"), highlight=False)  # noqa: SIM115, PTH123  open until the end


@contextmanager
def to_file(path: Path) -> Iterator[None]:
    """Write every message to a file during the ``with`` block, including messages that the screen does not show."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def say(message: str) -> None:
    """Print a message that stays on the screen, and log it."""
    logger.info(message)
    console.print(message, markup=False)


def step(message: str) -> None:
    """Show the message of the current step: on a terminal in place of the previous step, elsewhere as a new line."""
    global _step  # noqa: PLW0603  there is one screen
    _step = message
    logger.info(message)
    if _status is not None:
        _status.update(message)
    elif not redrawn():
        console.print(message, markup=False)


def aside(message: str) -> None:
    """Show what the current step waits for: on a terminal after the message of the step, elsewhere as a new line."""
    logger.info(message)
    if _status is not None:
        _status.update(f"{_step}; {message}")
    elif not redrawn():
        console.print(message, markup=False)


tell_long_waits(aside)


@contextmanager
def progress(message: str) -> Iterator[None]:
    """On a terminal, show a spinner with the current step during the ``with`` block; elsewhere, print the message."""
    global _status, _step  # noqa: PLW0603  there is one terminal
    if _status is not None or not redrawn():
        step(message)
        yield
        return
    _step = message
    with console.status(message) as _status:
        try:
            yield
        finally:
            _status = None
