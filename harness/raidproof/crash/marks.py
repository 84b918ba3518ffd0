"""The marks of judged crash states for the chart of a report: all of them, or a sample of very many."""

from heapq import heappush, heappushpop
from zlib import crc32

from raidproof.record.exploration import StateMark

MOST = 20_000
"""Limit of the marks of broken states, and of the marks of other states."""


class Marks:
    """Keeps up to `MOST` marks of each kind: which ones depends on their names alone, not on their order."""

    def __init__(self, most: int = MOST) -> None:
        self.count = 0
        """Number of marks that were added."""
        self._most = most
        # Heaps with the mark that is left out next in front.
        self._kept: dict[bool, list[tuple[int, float, str, str, bool, int, StateMark]]] = {False: [], True: []}

    def add(self, mark: StateMark) -> None:
        """Count a mark; keep it, or leave one out."""
        self.count += 1
        heap, entry = self._kept[mark.broken], (-crc32(mark.name.encode()), *_key(mark), self.count, mark)
        if len(heap) < self._most:
            heappush(heap, entry)
        else:
            heappushpop(heap, entry)

    def kept(self) -> list[StateMark]:
        """Return the kept marks, in the order of their cuts."""
        return sorted((entry[-1] for heap in self._kept.values() for entry in heap), key=_key)


def _key(mark: StateMark) -> tuple[float, str, str, bool]:
    # Several policies may choose the same state.
    return mark.at_s, mark.name, mark.policy, mark.checked
