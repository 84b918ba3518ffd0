"""Sparse, zero-filled memory that holds the bytes of one disk."""

import mmap
from collections.abc import Iterator
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

CHUNK_SHIFT = 16
CHUNK = 1 << CHUNK_SHIFT
"""Bytes in the unit in which memory is taken and given back."""

_POPULATE_FROM = 1 << 15
"""Bytes of a request from which asking for all its pages at once is faster than one page fault each."""

_POPULATE = 23  # MADV_POPULATE_WRITE, Linux 5.14; the mmap module does not name it
_PAGE = mmap.PAGESIZE

_BLANK = bytes(1 << 20)
_ZEROES = memoryview(_BLANK)
_ONES = memoryview(b"\1" * (1 << 10))


class Platter:
    """Memory of a disk's size, of which only what was written takes room.

    A map with one byte a chunk says where something was written, so that reading or saving a blank region neither
    takes memory nor time: a page fault costs more than a copy.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self._map = mmap.mmap(-1, size, flags=flags)
        self._view = memoryview(self._map)
        self._populates = True
        self._written = bytearray((size + CHUNK - 1) >> CHUNK_SHIFT)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill ``buffer`` with the bytes at ``offset``."""
        end = offset + len(buffer)
        if self._written.find(1, offset >> CHUNK_SHIFT, (end + CHUNK - 1) >> CHUNK_SHIFT) >= 0:
            buffer[:] = self._view[offset:end]
            return
        for start in range(0, len(buffer), len(_ZEROES)):
            piece = buffer[start : start + len(_ZEROES)]
            piece[:] = _ZEROES[: len(piece)]

    def copy(self, offset: int, length: int) -> bytes | None:
        """Return the bytes of a region, or ``None`` where nothing was ever written: all zero."""
        end = offset + length
        if self._written.find(1, offset >> CHUNK_SHIFT, (end + CHUNK - 1) >> CHUNK_SHIFT) < 0:
            return None
        return self._map[offset:end]

    def write(self, data: Buffer, offset: int) -> None:
        """Put ``data`` at ``offset``."""
        end = offset + len(data)
        first, last = offset >> CHUNK_SHIFT, (end + CHUNK - 1) >> CHUNK_SHIFT
        if self._written.find(0, first, last) >= 0:
            if self._written.find(1, first, last) < 0 and _is_zero(data):
                return  # the initial resync of an array writes a whole disk of zeroes
            self._take(first, last, offset, end)
        self._view[offset:end] = data

    def zero(self, offset: int, length: int) -> None:
        """Make a region read as zeroes, and give back the memory of the chunks inside."""
        end = offset + length
        inner_start = (offset + CHUNK - 1) & -CHUNK
        inner_end = end if end == self.size else end & -CHUNK
        if inner_start >= inner_end:
            self._fill(offset, end)
            return
        self._fill(offset, inner_start)
        self._fill(inner_end, end)
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
        """Return the bytes of a region without copying them; they change when the disk is written."""
        return self._view[offset:end].toreadonly()

    def duplicate(self) -> "Platter":
        """Return a copy that changes on its own."""
        twin = Platter(self.size)
        for start, end in self.extents():
            twin.write(self._view[start:end], start)
        return twin

    def _take(self, first: int, last: int, offset: int, end: int) -> None:
        for at in range(first, last, len(_ONES)):
            count = min(len(_ONES), last - at)
            self._written[at : at + count] = _ONES[:count]
        if end - offset >= _POPULATE_FROM and self._populates:
            start = offset & -_PAGE
            try:
                self._map.madvise(_POPULATE, start, min(self.size, (end + _PAGE - 1) & -_PAGE) - start)
            except OSError:
                self._populates = False  # an older kernel: the page faults do it

    def _fill(self, offset: int, end: int) -> None:
        for start, stop in self.extents(offset, end):
            for at in range(start, stop, len(_ZEROES)):
                count = min(len(_ZEROES), stop - at)
                self._view[at : at + count] = _ZEROES[:count]


def _is_zero(data: Buffer) -> bool:
    if data[0] or data[-1] or data[len(data) // 2]:
        return False
    return all(_BLANK.startswith(bytes(data[at : at + len(_BLANK)])) for at in range(0, len(data), len(_BLANK)))
