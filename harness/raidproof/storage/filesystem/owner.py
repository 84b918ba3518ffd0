"""The owner of a byte of a file system: a file, a directory, or metadata."""

from typing import NamedTuple

from raidproof.core.layer import PAGE_SIZE

FREE = "free space"
UNKNOWN = "owner unknown"
DEADLINE_S = 120.0
"""Time limit in seconds of one command that looks for an owner."""


class Owner(NamedTuple):
    """The owner of a block."""

    what: str
    """``data``, or another part of a file; or a kind of metadata of the file system."""
    inode: int | None = None
    path: str | None = None
    """Relative to the file system's root."""
    file_offset: int | None = None
    """Offset in the file of the byte in question."""

    def __str__(self) -> str:
        if self.inode is None:
            return self.what
        name = f"{self.path}" if self.path else f"inode {self.inode}"
        if self.what != "data":
            return f"{self.what} of {name}"
        if self.file_offset is None:
            return name if name.startswith("directory") else f"file {name}"
        begin = self.file_offset // PAGE_SIZE * PAGE_SIZE
        return f"file {name}, bytes {begin}-{begin + PAGE_SIZE - 1}"
