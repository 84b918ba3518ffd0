"""The state of a file system, found by its own tools, and how long data may stay unwritten in memory."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from pydantic import ConfigDict

from raidproof.core.errors import RigError
from raidproof.core.layer import State, Value

TRANSFER_S = 30.0
"""What writing may take once it has begun, on disks that have other work too."""


class FilesystemState(State):
    """A mounted filesystem, as found. Sizes in bytes; ``su`` and ``sw`` are 0 without alignment.

    What a kind of file system tells beyond these fields is kept too, under names of its own.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    source: str
    directory: str
    options: tuple[str, ...]
    block_size: int
    size: int
    su: int
    sw: int
    sector_size: int | None = None
    """Of XFS."""
    log: str = "internal"
    """``internal``, ``none`` (ext4), or the device of an external XFS log or the UUID of an external ext4 journal."""
    log_size: int | None = None
    """Bytes; None where it was not read."""
    log_su: int | None = None
    """Of XFS: bytes."""
    data: str | None = None
    """The data mode of ext4."""
    inodes: int | None = None
    """Of ext4: how many there are in all; XFS makes them as it needs them."""
    features: tuple[str, ...] = ()


class Superblock(State):
    """What is written on the device itself."""

    block_size: int
    size: int
    su: int
    sw: int
    sector_size: int | None = None
    log: str = "internal"
    log_size: int | None = None
    log_su: int | None = None
    inodes: int | None = None
    features: tuple[str, ...] = ()


class Mounted(State):
    """One line of the mount table."""

    type: str
    source: str
    directory: str
    options: tuple[str, ...]


def state_of(mounted: Mounted, superblock: Superblock, options: Iterable[str] = (), **own: Value) -> FilesystemState:
    """Put together what the mount table and the superblock say; ``own`` is what only this kind of file system has.

    ``options`` are those that are in effect and that the mount table leaves out.
    """
    every = tuple(dict.fromkeys((*mounted.options, *options)))
    return FilesystemState.model_validate({**superblock.model_dump(), **mounted.model_dump(), "options": every, **own})


class FilesystemCheck(State):
    """The verdict of a filesystem's own checker.

    ``dirty`` is a log that was not replayed: mount and unmount it first, only then is there an answer.
    """

    outcome: Literal["clean", "dirty", "corrupt"]
    status: int
    reasons: tuple[str, ...] = ()


def few(reasons: Iterable[str], most: int = 50) -> tuple[str, ...]:
    """Keep the first reasons, and count the rest: a checker may print one for each block."""
    every = tuple(reasons)
    return every if len(every) <= most else (*every[:most], f"and {len(every) - most} more")


def findmnt_command(directory: str) -> list[str]:
    """Ask what is mounted on a directory."""
    return ["findmnt", "--json", "--output", "TARGET,SOURCE,FSTYPE,OPTIONS", "--mountpoint", directory]


def parse_findmnt(text: str) -> Mounted:
    """Read ``findmnt --json``.

    Raises:
        RigError: nothing is mounted there, or the output was cut off.
    """
    try:
        (found,) = _filesystems(json.loads(text))
        return Mounted(
            type=found["fstype"],
            source=found["source"],
            directory=found["target"],
            options=tuple(found["options"].split(",")),
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise RigError(f"findmnt named no single mount: {text.strip()[-300:] or 'nothing'}") from error


def _filesystems(document: Any) -> list[dict[str, str]]:
    entries = document["filesystems"]
    if not isinstance(entries, list):
        raise TypeError("filesystems is no list")
    return entries


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


def centiseconds(said: str, files: Sequence[str]) -> list[float]:
    """Return what the files hold, each in a line of its own, in seconds.

    Raises:
        RigError: they hold something else.
    """
    words = said.split()
    if len(words) != len(files) or not all(word.isdigit() for word in words):
        raise RigError(f"not one number each in {', '.join(files)}: {said!r}")
    return [int(word) / 100 for word in words]
