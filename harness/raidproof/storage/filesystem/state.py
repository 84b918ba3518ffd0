"""What a filesystem is, and whether it is sound: found out by its own tools."""

import json
from collections.abc import Iterable
from typing import Any, Literal

from raidproof.core.errors import RigError
from raidproof.core.layer import State


class FilesystemState(State):
    """A mounted filesystem, as found. Sizes in bytes; ``su`` and ``sw`` are 0 without alignment."""

    type: Literal["xfs", "ext4"]
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
