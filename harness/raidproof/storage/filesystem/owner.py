"""The owner of a byte of a file system: a file, a directory, or which metadata."""

from typing import NamedTuple

from raidproof.core.layer import PAGE_SIZE

FREE = "free space"
UNKNOWN = "nobody could be found that it belongs to"
DEADLINE_S = 120.0
"""What one command may take that is asked for an owner."""


class Owner(NamedTuple):
    """Whose a block is."""

    what: str
    """``data``, or what else of a file it is; or which metadata of the file system."""
    inode: int | None = None
    path: str | None = None
    """Below the file system's root."""
    file_offset: int | None = None
    """Of the byte that was asked for, in bytes."""

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
