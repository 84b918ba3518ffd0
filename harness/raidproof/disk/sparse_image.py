"""Sparse content of a disk, in memory and as a file: zeroes or old data where nothing was written."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

CHUNK_SHIFT = 16
CHUNK = 1 << CHUNK_SHIFT
"""Bytes; the unit of allocation."""

_POPULATE_FROM = 1 << 15
"""Bytes of a request from which populating all its pages at once is faster than one page fault each."""

_POPULATE = 23  # MADV_POPULATE_WRITE, Linux 5.14; the mmap module does not name it
_PAGE = mmap.PAGESIZE

OLD_DATA = b"OLDDATA1" * 512
"""A block of a used disk where nothing was written yet: the same in each block of each such disk.

So the copies of a mirror agree from the start, whatever its layout, and the parity of an even number of disks is
zero.
"""

_PIECE = 1 << 20
_BLANK = bytes(_PIECE)
# Longer by a block, for pieces that begin within one.
_ZEROES = memoryview(bytes(_PIECE + len(OLD_DATA)))
_OLD = memoryview(OLD_DATA * (_PIECE // len(OLD_DATA) + 1))
_ONES = memoryview(b"\1" * (1 << 10))

_COPY = 1 << 24  # bytes per write call


class SparseImage:
    """Memory of a disk's size, of which only written parts are allocated.

    A map with one byte per chunk marks written chunks, so that reading or saving a blank region takes neither memory
    nor time: a page fault costs more than a copy. A *blank* region reads as zeroes, or as `OLD_DATA` if the disk is
    ``old``.
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
        """Return the bytes of a region, or ``None`` if none of its chunks was ever written."""
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
                # The initial resync of an array writes a whole disk of zeroes.
                if self.old:
                    self.zero(offset, len(data))
                return
            self._take(first, last, offset, end)
        self._view[offset:end] = data

    def zero(self, offset: int, length: int) -> None:
        """Make a region read as zeroes, and free the memory of the chunks inside."""
        if not self.old:
            self.blank(offset, length)
            return
        end = offset + length
        inner_start, inner_end = self._inside(offset, end)
        for start, stop in ((offset, end),) if inner_start >= inner_end else ((offset, inner_start), (inner_end, end)):
            if start < stop:
                self._take(start >> CHUNK_SHIFT, (stop + CHUNK - 1) >> CHUNK_SHIFT, start, stop)
                self._fill(start, stop, _ZEROES)
        if inner_start < inner_end:
            # Anonymous memory that was never written reads as zeroes.
            self._map.madvise(mmap.MADV_DONTNEED, inner_start, inner_end - inner_start)
            self._mark(inner_start >> CHUNK_SHIFT, (inner_end + CHUNK - 1) >> CHUNK_SHIFT)

    def blank(self, offset: int, length: int) -> None:
        """Make a region unwritten again, and free the memory of the chunks inside."""
        end = offset + length
        inner_start, inner_end = self._inside(offset, end)
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
        """Return the bytes of an extent without copying them; they change when the disk is written."""
        return self._view[offset:end].toreadonly()

    def duplicate(self) -> "SparseImage":
        """Return an independent copy."""
        twin = SparseImage(self.size, old=self.old)
        for start, end in self.extents():
            twin.write(self._view[start:end], start)
        return twin

    @property
    def _blank(self) -> memoryview:
        """Return the content of a blank region from a block boundary on: zeros, or old data."""
        return _OLD if self.old else _ZEROES

    def _read_blank(self, buffer: memoryview, offset: int) -> None:
        phase = offset % len(OLD_DATA)
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            piece[:] = self._blank[phase : phase + len(piece)]

    def _inside(self, offset: int, end: int) -> tuple[int, int]:
        """Return start and end of the whole chunks in a region; there are none if the end is not the larger."""
        return (offset + CHUNK - 1) & -CHUNK, end if end == self.size else end & -CHUNK

    def _mark(self, first: int, last: int) -> None:
        for at in range(first, last, len(_ONES)):
            count = min(len(_ONES), last - at)
            self._written[at : at + count] = _ONES[:count]

    def _take(self, first: int, last: int, offset: int, end: int) -> None:
        if self.old:
            # Fill the rest of a partly written chunk with old data.
            for chunk in {first, last - 1}:
                start, stop = chunk << CHUNK_SHIFT, min((chunk + 1) << CHUNK_SHIFT, self.size)
                if not self._written[chunk] and not (offset <= start and stop <= end):
                    self._view[start:stop] = _OLD[: stop - start]
        self._mark(first, last)
        if end - offset >= _POPULATE_FROM and self._populates:
            start = offset & -_PAGE
            try:
                self._map.madvise(_POPULATE, start, min(self.size, (end + _PAGE - 1) & -_PAGE) - start)
            except OSError:
                self._populates = False  # an older kernel: page faults populate the memory

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


def save_platter(platter: SparseImage, path: Path, *, whole: bool = False) -> None:
    """Write an image to a sparse file; unwritten parts are holes. ``whole``: write old data out instead.

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
