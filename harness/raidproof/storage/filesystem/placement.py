"""The places of a file system's files and of its log on the device, and the output of the tools that print them."""

import re
from typing import Self

from raidproof.core.errors import RigError
from raidproof.core.layer import State

FILES_DEADLINE_S = 60.0
"""Time limit in seconds of the command that prints the extents of all files."""

# Output of filefrag -v.
_BLOCKS = re.compile(r"^File size of .* is \d+ \(\d+ blocks? of (\d+) bytes\)$")
_EXTENT = re.compile(r"^\s*\d+:\s*\d+\.\.\s*\d+:\s*(\d+)\.\.\s*\d+:\s*(\d+):")
_END = re.compile(r"^.*: \d+ extents? found(?:, perfection would be .*)?$")


class Extent(State):
    """A contiguous region of a device, in bytes."""

    offset: int
    length: int


class Placement(State):
    """The places on the file system's device that a synchronous write accesses."""

    files: tuple[Extent, ...] = ()
    """The extents of all files, in the order of the files' bytes."""
    log: Extent | None = None
    """The log or journal in the file system; None if it is on a separate disk, or its place is unknown."""
    log_writes: tuple[int, ...] = ()
    """Bytes of each write to the log, in order, that makes one synchronous write durable; empty without a log."""

    def moved(self, bytes_: int) -> Self:
        """Return this placement with all places further on the device by a number of bytes."""
        moved = tuple(one.model_copy(update={"offset": one.offset + bytes_}) for one in self.files)
        log = self.log and self.log.model_copy(update={"offset": self.log.offset + bytes_})
        return self.model_copy(update={"files": moved, "log": log})

    def completed(self, other: Self) -> Self:
        """Return this placement, with places that are unknown taken from another one."""
        return self.model_copy(update={"files": self.files or other.files, "log": self.log or other.log})


def files_command(directory: str) -> list[str]:
    """Return the command that prints the extents of all files below a directory, on one file system."""
    return ["find", directory, "-xdev", "-type", "f", "-size", "+0", "-exec", "filefrag", "-v", "{}", "+"]


def parse_files(text: str) -> tuple[Extent, ...]:
    """Return the extents of all files, from the output of `files_command`.

    Raises:
        RigError: the output is truncated.
    """
    extents: list[Extent] = []
    block = 0
    for line in text.splitlines():
        if size := _BLOCKS.match(line):
            if block:
                raise RigError(f"filefrag printed no number of extents before: {line!r}")
            block = int(size[1])
        elif extent := _EXTENT.match(line):
            extents.append(Extent(offset=int(extent[1]) * block, length=int(extent[2]) * block))
        elif _END.match(line):
            block = 0
    if block:
        raise RigError(f"the output of filefrag is truncated: {text.strip()[-200:]!r}")
    return tuple(extents)
