"""The oldest writes in the cache of a disk that never keeps them, without one copy for each."""

from raidproof.disk.sparse_image import SparseImage

SECTOR = 512


class Sunk:
    """What many requests overwrote, as one: the bytes that were there before the first of them.

    Requests that sank can no longer survive a cut one by one: all are lost, or all are kept.
    """

    def __init__(self, size: int, *, old: bool = False) -> None:
        self.requests = 0
        self.bytes = 0
        self.promised = 0
        """How many of the requests a FLUSH or FUA had been acknowledged for."""
        self._before = SparseImage(size, old=old)
        self._covered = bytearray((size + SECTOR - 1) // SECTOR)

    def add(self, offset: int, length: int, old: tuple[tuple[int, bytes], ...], promised: bool) -> None:
        """Take the next request in order, made of whole sectors; ``old``: what it overwrote, blanks left out."""
        self.requests += 1
        self.bytes += length
        self.promised += promised
        covered, at, end = self._covered, offset // SECTOR, (offset + length) // SECTOR
        while at < end and (first := covered.find(0, at, end)) >= 0:
            taken = covered.find(1, first, end)
            at = end if taken < 0 else taken
            self._save(first * SECTOR, at * SECTOR, old)
            covered[first:at] = b"\1" * (at - first)

    def undo(self, platter: SparseImage) -> None:
        """Put back what was there before all of them."""
        at, end = 0, len(self._covered)
        while at < end and (first := self._covered.find(1, at)) >= 0:
            free = self._covered.find(0, first)
            at = end if free < 0 else free
            start, stop = first * SECTOR, min(at * SECTOR, platter.size)
            platter.blank(start, stop - start)
            for begin, finish in self._before.extents(start, stop):
                platter.write(self._before.view(begin, finish), begin)

    def _save(self, start: int, stop: int, old: tuple[tuple[int, bytes], ...]) -> None:
        for at, data in old:
            first, last = max(start, at), min(stop, at + len(data))
            if first < last:
                self._before.write(memoryview(data)[first - at : last - at], first)
