"""Sparse files that hold what a disk held."""

import os
from pathlib import Path

from raidproof.disk.sparse_image import SparseImage

_COPY = 1 << 24  # bytes handed to one write call


def save_platter(platter: SparseImage, path: Path, *, whole: bool = False) -> None:
    """Write an image to a sparse file: what was never written is a hole. ``whole``: old data is none.

    Raises:
        OSError: the file cannot be written.
    """
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, platter.size)
        for start, end in [(0, platter.size)] if whole and platter.old else platter.extents():
            at = start
            while at < end:
                size = min(_COPY, end - at)
                at += os.pwrite(fd, platter.content(at, size) if whole else platter.view(at, at + size), at)
    finally:
        os.close(fd)
