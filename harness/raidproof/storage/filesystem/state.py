"""The effective state of a file system, the result of its check, and the intervals of write-back."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, Self

from pydantic import ConfigDict

from raidproof.core.errors import RigError
from raidproof.core.layer import State, Value

TRANSFER_S = 30.0
"""Assumed maximum duration of one write-back in seconds, on disks that serve other requests at the same time."""


class Superblock(State):
    """The settings in the superblock of a file system. Sizes are in bytes."""

    block_size: int
    size: int
    """Bytes of the file system."""
    su: int
    """Stripe unit in bytes; 0 without alignment."""
    sw: int
    """Stripe width in stripe units; 0 without alignment."""
    sector_size: int | None = None
    """XFS only: bytes of a sector."""
    log: str = "internal"
    """``internal``; ``none`` (ext4); the device of an external XFS log; or the UUID of an external ext4 journal."""
    log_size: int | None = None
    """Size of the log or journal in bytes; None if the file system's tool does not report it."""
    log_su: int | None = None
    """XFS only: stripe unit of the log in bytes."""
    cluster_size: int | None = None
    """ext4 only: bytes of a cluster, in which blocks are allocated (feature bigalloc); the block size without it."""
    inodes: int | None = None
    """ext4 only: total number of inodes. XFS allocates inodes on demand."""
    features: tuple[str, ...] = ()
    """Features in the notation of the file system's tool."""

    @classmethod
    def in_blocks(cls, block_size: int, blocks: int, unit: int, width: int, **own: Any) -> Self:
        """Return a `Superblock`, computed from sizes in blocks; ``own`` has the values of all fields not computed."""
        sw = width // unit if unit else 0
        return cls(block_size=block_size, size=block_size * blocks, su=unit * block_size, sw=sw, **own)


class Mounted(State):
    """A mounted file system, as the mount table lists it."""

    type: str
    """The kind of file system: ``xfs``."""
    source: str
    """The device path."""
    directory: str
    """The mount point."""
    options: tuple[str, ...]
    """The mount options."""


class FilesystemState(Superblock, Mounted):
    """The effective state of a mounted file system.

    A kind of file system may add fields of its own.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    data: str | None = None
    """The data mode of ext4 (mount option ``data``); None for other file systems, and without a journal."""


def state_of(mounted: Mounted, superblock: Superblock, options: Iterable[str] = (), **own: Value) -> FilesystemState:
    """Combine the entry of the mount table and the superblock into the state of a mounted file system.

    ``options`` are effective mount options that the mount table leaves out. ``own`` are additional fields of the kind
    of file system.
    """
    every = tuple(dict.fromkeys((*mounted.options, *options)))
    return FilesystemState.model_validate({**superblock.model_dump(), **mounted.model_dump(), "options": every, **own})


class FilesystemCheck(State):
    """The result of a check by the file system's own program, for example ``xfs_repair -n``."""

    outcome: Literal["clean", "dirty", "corrupt"]
    """``dirty``: the log was not replayed, so the program could not check. Mount, unmount, and check again."""
    status: int
    """Exit status of the program."""
    reasons: tuple[str, ...] = ()
    """Lines of the program's output about damage, or a sentence that gives the reason for ``outcome``."""


def few(reasons: Iterable[str], most: int = 50) -> tuple[str, ...]:
    """Return the first ``most`` reasons, and a line with the number of the others. A check may print one per block."""
    every = tuple(reasons)
    return every if len(every) <= most else (*every[:most], f"and {len(every) - most} more")


def findmnt_command(directory: str) -> list[str]:
    """Return the command that prints the entry of a mount point in the mount table."""
    return ["findmnt", "--json", "--output", "TARGET,SOURCE,FSTYPE,OPTIONS", "--mountpoint", directory]


def parse_findmnt(text: str) -> Mounted:
    """Parse the output of `findmnt_command`.

    Raises:
        RigError: no file system is mounted on the directory, or the output is truncated.
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
        raise RigError(
            f"findmnt should print one mounted file system, printed: {text.strip()[-300:] or 'nothing'}"
        ) from error


def _filesystems(document: Any) -> list[dict[str, str]]:
    entries = document["filesystems"]
    if not isinstance(entries, list):
        raise TypeError("filesystems is no list")
    return entries


class Found(Protocol):
    """The kind and the mount options of a mounted file system, as `read_write_back` needs them."""

    @property
    def type(self) -> str:
        """The kind of the file system: ``xfs``."""

    @property
    def options(self) -> tuple[str, ...]:
        """The mount options, including defaults."""


class WriteBackState(State):
    """The effective intervals of the kernel's write-back and of a file system's commits, in seconds."""

    expire_s: float
    """Age of dirty data at which the flusher thread writes it at its next wake-up (dirty_expire_centisecs)."""
    wake_s: float
    """Time between two wake-ups of the flusher thread (dirty_writeback_centisecs); 0 means no wake-ups."""
    commit_s: float
    """Time between two commits of the file system's log or journal. Each commit flushes the disks' caches."""

    @property
    def longest_s(self) -> float | None:
        """The age in seconds above which data must be on disk; None if the flusher thread never wakes up."""
        return self.expire_s + self.wake_s + self.commit_s + TRANSFER_S if self.wake_s else None


def centiseconds(text: str, files: Sequence[str]) -> list[float]:
    """Convert the content of files, one number in 1/100 s from each, to seconds.

    Raises:
        RigError: ``text`` does not have one number for each of the files.
    """
    words = text.split()
    if len(words) != len(files) or not all(word.isdigit() for word in words):
        raise RigError(f"each of these files should contain one number: {', '.join(files)}; found {text!r}")
    return [int(word) / 100 for word in words]
