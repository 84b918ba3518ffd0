"""Temporary folders that `raidproof gc` can remove after the process that made them was killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raidproof.core.waiting import wall_clock

PREFIX = "raidproof-scratch-"
NEW_S = 60.0
"""Age in seconds below which a folder may be one that its process has not locked yet."""


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Make an empty folder for the duration of the context; ``purpose`` is part of its name.

    The process holds a lock on the folder (flock(2)), by which `remove_abandoned` knows that it is in use.

    Raises:
        OSError: the folder cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{purpose}-") as name:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(folder)


def remove_abandoned() -> Iterator[Path]:
    """Remove this user's folders of processes that were killed, and yield their paths."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        status = path.lstat()
        if status.st_uid == os.getuid() and wall_clock().timestamp() - status.st_mtime > NEW_S and not _is_used(path):
            shutil.rmtree(path)
            yield path


def _is_used(path: Path) -> bool:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(folder)
    return False
