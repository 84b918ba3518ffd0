"""How long a machine's kernel may keep in its memory what was written into a file system and never synced."""

from collections.abc import Sequence
from typing import Protocol

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, State

EXPIRE = "/proc/sys/vm/dirty_expire_centisecs"
WAKE = "/proc/sys/vm/dirty_writeback_centisecs"
XFS_SYNC = "/proc/sys/fs/xfs/xfssyncd_centisecs"
TRANSFER_S = 30.0
"""What writing may take once it has begun, on disks that have other work too."""
_COMMIT = "commit="


class Found(Protocol):
    """What a mounted file system tells of itself."""

    @property
    def type(self) -> str:
        """Its kind."""

    @property
    def options(self) -> tuple[str, ...]:
        """Its mount options, defaults included."""


class WriteBackState(State):
    """The intervals, in seconds, as found."""

    expire_s: float
    """From this age on a dirty page is written by the next turn of the flusher (dirty_expire_centisecs)."""
    wake_s: float
    """From one turn of the flusher to the next (dirty_writeback_centisecs); 0: it never wakes by itself."""
    commit_s: float
    """From one commit of the file system's log or journal to the next, each of which flushes the disks' caches."""

    @property
    def longest_s(self) -> float | None:
        """The age from which on nothing is in memory alone; None where nothing limits it."""
        return self.expire_s + self.wake_s + self.commit_s + TRANSFER_S if self.wake_s else None


def read_write_back(machine: Machine, found: Found) -> WriteBackState:
    """Read the intervals of a machine and of the file system that is mounted there.

    Raises:
        RigError: a file or an option is not there.
    """
    files = [EXPIRE, WAKE, *([XFS_SYNC] if found.type == "xfs" else [])]
    expire, wake, *commit = centiseconds("\n".join(machine.read_files(files).values()), files)
    return WriteBackState(expire_s=expire, wake_s=wake, commit_s=commit[0] if commit else commit_of(found.options))


def centiseconds(said: str, files: Sequence[str]) -> list[float]:
    """Return what the files hold, each in a line of its own, in seconds.

    Raises:
        RigError: they hold something else.
    """
    words = said.split()
    if len(words) != len(files) or not all(word.isdigit() for word in words):
        raise RigError(f"not one number each in {', '.join(files)}: {said!r}")
    return [int(word) / 100 for word in words]


def commit_of(options: Sequence[str]) -> float:
    """Return the interval in which ext4 commits its journal, in seconds.

    Raises:
        RigError: none of the options tells.
    """
    told = [one.removeprefix(_COMMIT) for one in options if one.startswith(_COMMIT)]
    if not told or not told[-1].isdigit():
        raise RigError(f"no {_COMMIT} among the options of ext4: {', '.join(options)}")
    return float(told[-1])
