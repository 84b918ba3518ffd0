"""A file of our own on a mounted file system, which is measured in place of a device."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB, MIB, format_size

SMALLEST = 64 * MIB
_PIECE = 4 * MIB
_LEFT_FREE = 0.1
"""Fraction of the free space that the file may not use."""


@contextmanager
def own_file(folder: Path, size: int) -> Iterator[str]:
    """Create a file without a name in a folder, fill it, and yield a path by which processes of this host open it.

    The file has no name (O_TMPFILE), so that the kernel removes it when this process ends, also after SIGKILL.

    Raises:
        RequestError: the file system has no such files, or lacks space.
    """
    if size < SMALLEST:
        raise RequestError(f"a file of {format_size(size)} is too small", remedy=f"at least {format_size(SMALLEST)}")
    try:
        free = os.statvfs(folder)
        if size > free.f_bavail * free.f_frsize * (1 - _LEFT_FREE):
            raise RequestError(
                f"{folder} has {free.f_bavail * free.f_frsize / GIB:.1f} GiB free, too little for a file of "
                f"{format_size(size)}",
                remedy="give a smaller --size",
            )
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        remedy = "name a folder on the file system of a local drive"
        if error.errno == errno.EOPNOTSUPP:
            raise RequestError(f"the file system of {folder} has no files without a name", remedy=remedy) from error
        raise RequestError(f"cannot create a file in {folder}: {error.strerror}", remedy=remedy) from error
    try:
        _fill(file, size, folder)
        yield f"/proc/{os.getpid()}/fd/{file}"
    finally:
        os.close(file)


def _fill(file: int, size: int, folder: Path) -> None:
    """Write the whole file: the file system answers reads of unwritten parts without the drive."""
    # Random data, which a drive or file system cannot compress. The count at its begin makes the pieces differ.
    data = bytearray(os.urandom(_PIECE))
    try:
        os.posix_fallocate(file, 0, size)
        for number, offset in enumerate(range(0, size, _PIECE)):
            data[:8] = number.to_bytes(8, "little")
            view = memoryview(data)[: min(_PIECE, size - offset)]
            while view:
                written = os.pwrite(file, view, offset)
                view, offset = view[written:], offset + written  # noqa: PLW2901  the rest of this piece
        os.fsync(file)
    except OSError as error:
        raise RequestError(f"cannot write a file in {folder}: {error.strerror}") from error
