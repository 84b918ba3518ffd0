"""The effective state of a file system, and how long data may stay in memory before write-back."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, Self

from pydantic import ConfigDict

from raidproof.core.errors import RigError
from raidproof.core.layer import State, Value

TRANSFER_S = 30.0
"""Seconds that write-back may take once begun, on disks that have other work, too."""


class Superblock(State):
    """The content of the superblock on the device. Sizes in bytes; ``su`` and ``sw`` are 0 without alignment."""

    block_size: int
    size: int
    su: int
    sw: int
    sector_size: int | None = None
    """XFS only."""
    log: str = "internal"
    """``internal``, ``none`` (ext4), or the device of an external XFS log or the UUID of an external ext4 journal."""
    log_size: int | None = None
    """Bytes; None if not read."""
    log_su: int | None = None
    """XFS only: bytes."""
    inodes: int | None = None
    """ext4 only: the total number; XFS allocates inodes on demand."""
    features: tuple[str, ...] = ()

    @classmethod
    def in_blocks(cls, block_size: int, blocks: int, unit: int, width: int, **own: Any) -> Self:
        """Return one whose size, stripe unit and stripe width are given in blocks; ``own`` are its other fields."""
        sw = width // unit if unit else 0
        return cls(block_size=block_size, size=block_size * blocks, su=unit * block_size, sw=sw, **own)


class Mounted(State):
    """One line of the mount table."""

    type: str
    source: str
    directory: str
    options: tuple[str, ...]


class FilesystemState(Superblock, Mounted):
    """The effective state of a mounted filesystem.

    Further values of a kind of file system are kept, too, under their own names.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    data: str | None = None
    """The data mode of ext4."""


def state_of(mounted: Mounted, superblock: Superblock, options: Iterable[str] = (), **own: Value) -> FilesystemState:
    """Combine mount table and superblock; ``own`` are the values that only this kind of file system has.

    ``options`` are options in effect that the mount table leaves out.
    """
    every = tuple(dict.fromkeys((*mounted.options, *options)))
    return FilesystemState.model_validate({**superblock.model_dump(), **mounted.model_dump(), "options": every, **own})


class FilesystemCheck(State):
    """The verdict of a filesystem's own checker.

    ``dirty`` means that the log was not replayed: mount and unmount the filesystem first, then check again.
    """

    outcome: Literal["clean", "dirty", "corrupt"]
    status: int
    reasons: tuple[str, ...] = ()


def few(reasons: Iterable[str], most: int = 50) -> tuple[str, ...]:
    """Keep the first reasons, and count the rest: a checker may print one for each block."""
    every = tuple(reasons)
    return every if len(every) <= most else (*every[:most], f"and {len(every) - most} more")


def findmnt_command(directory: str) -> list[str]:
    """Return the command that prints the mount on a directory."""
    return ["findmnt", "--json", "--output", "TARGET,SOURCE,FSTYPE,OPTIONS", "--mountpoint", directory]


def parse_findmnt(text: str) -> Mounted:
    """Parse ``findmnt --json``.

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
    """Type and mount options of a mounted file system."""

    @property
    def type(self) -> str:
        """The kind of the file system."""

    @property
    def options(self) -> tuple[str, ...]:
        """The mount options, including defaults."""


class WriteBackState(State):
    """The effective write-back intervals, in seconds."""

    expire_s: float
    """Age at which the next wake-up of the flusher writes a dirty page (dirty_expire_centisecs)."""
    wake_s: float
    """Time between two wake-ups of the flusher (dirty_writeback_centisecs); 0: it never wakes up."""
    commit_s: float
    """Time between two commits of the file system's log or journal, each of which flushes the disks' caches."""

    @property
    def longest_s(self) -> float | None:
        """The age above which all data is on disk; None if there is no limit."""
        return self.expire_s + self.wake_s + self.commit_s + TRANSFER_S if self.wake_s else None


def centiseconds(said: str, files: Sequence[str]) -> list[float]:
    """Return the content of the files, one line each, in seconds.

    Raises:
        RigError: a line is not a number.
    """
    words = said.split()
    if len(words) != len(files) or not all(word.isdigit() for word in words):
        raise RigError(f"not one number each in {', '.join(files)}: {said!r}")
    return [int(word) / 100 for word in words]
