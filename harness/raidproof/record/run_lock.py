"""The lock that marks a run in progress: flock(2) on a file in the run's directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raidproof.core.errors import DeadlineExceeded, RequestError
from raidproof.core.waiting import Deadline, wait_until

LOCK = ".running"
"""Name of the locked file. The kernel releases the lock at the end of the process, even after SIGKILL."""
PROBED_S = 1.0
"""Seconds to wait for a lock that `is_locked` of another process may hold for an instant."""


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Mark the run in this directory as in progress during the ``with`` block.

    Raises:
        RequestError: another process has locked the run.
        OSError: the file of the lock cannot be created.
    """
    descriptor = os.open(run / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            wait_until(
                lambda: _lock(descriptor, fcntl.LOCK_EX), Deadline.after(PROBED_S), f"the lock of run {run.name}"
            )
        except DeadlineExceeded as error:
            raise RequestError(f"run {run.name} is in progress", remedy="wait for its end, or interrupt it") from error
        yield
    finally:
        os.close(descriptor)


def is_locked(run: Path) -> bool:
    """Return whether a process is executing the run in this directory."""
    try:
        descriptor = os.open(run / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
