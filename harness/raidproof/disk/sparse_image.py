"""The sparse content of a disk in memory, and its copy in a sparse file."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

CHUNK_SHIFT = 16
CHUNK = 1 << CHUNK_SHIFT
"""Unit of allocation in bytes."""

_POPULATE_FROM = 1 << 15
"""Size in bytes of a write from which one call that populates all pages is faster than a page fault for each page."""

_POPULATE = 23  # MADV_POPULATE_WRITE, Linux 5.14; the mmap module does not name it
_PAGE = mmap.PAGESIZE

OLD_DATA = b"OLDDATA1" * 512
"""Content of each never written block of a disk with old data, as on a used drive.

All blocks of all disks have the same content. So the copies of a mirror agree in every layout before the first
resync, and the parity of an even number of disks is zero.
"""

_PIECE = 1 << 20
_BLANK = bytes(_PIECE)
# One block longer than a piece, for pieces that do not begin at a block boundary.
_ZEROES = memoryview(bytes(_PIECE + len(OLD_DATA)))
_OLD = memoryview(OLD_DATA * (_PIECE // len(OLD_DATA) + 1))
_ONES = memoryview(b"\1" * (1 << 10))

_COPY = 1 << 24  # bytes in one call of pwrite


class SparseImage:
    """The content of a disk in memory; only written chunks are allocated.

    A map with one byte for each chunk marks the written chunks, so that reading or saving a blank region causes no
    page fault, which would take longer than a copy. A *blank* region was never written; it reads as zeroes, or as
    `OLD_DATA` if ``old``.
    """

    def __init__(self, size: int, *, old: bool = False) -> None:
        self.size = size
        self.old = old
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self._map = mmap.mmap(-1, size, flags=flags)
        self._view = memoryview(self._map)
        self._populates = True
        self._written = bytearray((size + CHUNK - 1) >> CHUNK_SHIFT)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill ``buffer`` with the bytes at ``offset``."""
        end = offset + len(buffer)
        first, last = offset >> CHUNK_SHIFT, (end + CHUNK - 1) >> CHUNK_SHIFT
        if self._written.find(1, first, last) < 0:
            self._read_blank(buffer, offset)
        elif self.old and self._written.find(0, first, last) >= 0:
            self._read_blank(buffer, offset)
            for start, stop in self.extents(offset, end):
                buffer[start - offset : stop - offset] = self._view[start:stop]
        else:
            buffer[:] = self._view[offset:end]

    def copy(self, offset: int, length: int) -> bytes | None:
        """Return the bytes of a region; None if none of the region's chunks was ever written."""
        end = offset + length
        if self._written.find(1, offset >> CHUNK_SHIFT, (end + CHUNK - 1) >> CHUNK_SHIFT) < 0:
            return None
        return self.content(offset, length) if self.old else self._map[offset:end]

    def content(self, offset: int, length: int) -> bytes:
        """Return the bytes of a region, blank or not."""
        buffer = bytearray(length)
        self.read_into(memoryview(buffer), offset)
        return bytes(buffer)

    def write(self, data: Buffer, offset: int) -> None:
        """Write ``data`` at ``offset``."""
        end = offset + len(data)
        first, last = offset >> CHUNK_SHIFT, (end + CHUNK - 1) >> CHUNK_SHIFT
        if self._written.find(0, first, last) >= 0:
            if self._written.find(1, first, last) < 0 and _is_zero(data):
                # The initial resync of an array writes zeroes to a whole disk: allocate no chunks for them.
                if self.old:
                    self.zero(offset, len(data))
                return
            self._allocate(first, last, offset, end)
        self._view[offset:end] = data

    def zero(self, offset: int, length: int) -> None:
        """Make a region read as zeroes, and free the memory of the whole chunks inside the region."""
        if not self.old:
            self.blank(offset, length)
            return
        end = offset + length
        inner_start, inner_end = self._whole_chunks(offset, end)
        for start, stop in ((offset, end),) if inner_start >= inner_end else ((offset, inner_start), (inner_end, end)):
            if start < stop:
                self._allocate(start >> CHUNK_SHIFT, (stop + CHUNK - 1) >> CHUNK_SHIFT, start, stop)
                self._fill(start, stop, _ZEROES)
        if inner_start < inner_end:
            # Anonymous memory reads as zeroes after MADV_DONTNEED (madvise(2)).
            self._map.madvise(mmap.MADV_DONTNEED, inner_start, inner_end - inner_start)
            self._mark_written(inner_start >> CHUNK_SHIFT, (inner_end + CHUNK - 1) >> CHUNK_SHIFT)

    def blank(self, offset: int, length: int) -> None:
        """Make a region blank again, and free the memory of the whole chunks inside the region."""
        end = offset + length
        inner_start, inner_end = self._whole_chunks(offset, end)
        if inner_start >= inner_end:
            self._fill(offset, end, self._blank)
            return
        self._fill(offset, inner_start, self._blank)
        self._fill(inner_end, end, self._blank)
        for start, stop in self.extents(inner_start, inner_end):
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)
            first, last = start >> CHUNK_SHIFT, (stop + CHUNK - 1) >> CHUNK_SHIFT
            self._written[first:last] = bytes(last - first)

    def extents(self, offset: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield start and end of each run of written chunks in a region, in order."""
        stop = self.size if end is None else end
        written, last = self._written, (stop + CHUNK - 1) >> CHUNK_SHIFT
        at = offset >> CHUNK_SHIFT
        while at < last and (first := written.find(1, at, last)) >= 0:
            blank = written.find(0, first, last)
            at = last if blank < 0 else blank
            yield max(offset, first << CHUNK_SHIFT), min(stop, at << CHUNK_SHIFT)

    def view(self, offset: int, end: int) -> memoryview:
        """Return a read-only view of the bytes from ``offset`` to ``end``; a later write changes the view."""
        return self._view[offset:end].toreadonly()

    def duplicate(self) -> "SparseImage":
        """Return an independent copy of the image."""
        copy = SparseImage(self.size, old=self.old)
        for start, end in self.extents():
            copy.write(self._view[start:end], start)
        return copy

    @property
    def _blank(self) -> memoryview:
        """The content of a blank region from a block boundary on: zeroes or old data."""
        return _OLD if self.old else _ZEROES

    def _read_blank(self, buffer: memoryview, offset: int) -> None:
        phase = offset % len(OLD_DATA)
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            piece[:] = self._blank[phase : phase + len(piece)]

    def _whole_chunks(self, offset: int, end: int) -> tuple[int, int]:
        """Return (start, end) of the whole chunks in a region; start >= end if the region has no whole chunk."""
        return (offset + CHUNK - 1) & -CHUNK, end if end == self.size else end & -CHUNK

    def _mark_written(self, first: int, last: int) -> None:
        for at in range(first, last, len(_ONES)):
            count = min(len(_ONES), last - at)
            self._written[at : at + count] = _ONES[:count]

    def _allocate(self, first: int, last: int, offset: int, end: int) -> None:
        if self.old:
            # A write to a part of a blank chunk leaves old data in the rest of the chunk.
            for chunk in {first, last - 1}:
                start, stop = chunk << CHUNK_SHIFT, min((chunk + 1) << CHUNK_SHIFT, self.size)
                if not self._written[chunk] and not (offset <= start and stop <= end):
                    self._view[start:stop] = _OLD[: stop - start]
        self._mark_written(first, last)
        if end - offset >= _POPULATE_FROM and self._populates:
            start = offset & -_PAGE
            try:
                self._map.madvise(_POPULATE, start, min(self.size, (end + _PAGE - 1) & -_PAGE) - start)
            except OSError:
                self._populates = False  # a kernel before 5.14 (madvise(2)): page faults populate the memory

    def _fill(self, offset: int, end: int, content: memoryview) -> None:
        for start, stop in self.extents(offset, end):
            phase = start % len(OLD_DATA)
            for at in range(start, stop, _PIECE):
                count = min(_PIECE, stop - at)
                self._view[at : at + count] = content[phase : phase + count]


def _is_zero(data: Buffer) -> bool:
    if data[0] or data[-1] or data[len(data) // 2]:
        return False
    return all(_BLANK.startswith(bytes(data[at : at + len(_BLANK)])) for at in range(0, len(data), len(_BLANK)))


def save_platter(image: SparseImage, path: Path, *, whole: bool = False) -> None:
    """Write an image to the sparse file ``path``; blank regions become holes.

    ``whole``: write the old data of blank regions to the file, instead of holes.

    Raises:
        OSError: the file cannot be written.
    """
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, image.size)
        for start, end in [(0, image.size)] if whole and image.old else image.extents():
            at = start
            while at < end:
                size = min(_COPY, end - at)
                at += os.pwrite(fd, image.content(at, size) if whole else image.view(at, at + size), at)
    finally:
        os.close(fd)
