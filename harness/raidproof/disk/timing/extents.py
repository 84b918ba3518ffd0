"""Data that was accepted and is not on the medium yet: spans of addresses, in their order."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice

_SCANNED = 64
"""Spans that `near` looks at, at most: the elevator's choice must stay cheap."""


class Extents:
    """Spans by address, each with a number that grows with its age. Those that overlap are one, as old as the older.

    Spans that only touch stay apart, or a stream that never ends would keep its first byte waiting for its last.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """That wait to be written, those under way not counted."""
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._by_age: dict[int, int] = {}
        """Where the span of a number begins; oldest first, as a dict keeps its order."""
        self._ages: list[int] = []
        self._live: set[int] = set()
        self._next = 0

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, length: int) -> None:
        """Take a span."""
        end, number = start + length, self._next
        self._next += 1
        place = bisect_left(self._starts, start)
        if place and self._ends[self._starts[place - 1]] > start:
            place -= 1
        while place < len(self._starts) and self._starts[place] < end:
            other = self._starts.pop(place)
            other_end, other_number = self._ends.pop(other), self._numbers.pop(other)
            self.bytes -= other_end - other
            self._live.discard(max(number, other_number))
            self._by_age.pop(max(number, other_number), None)
            start, end, number = min(start, other), max(end, other_end), min(number, other_number)
        insort(self._starts, start)
        self._ends[start], self._numbers[start] = end, number
        self._by_age[number] = start
        self.bytes += end - start
        if number not in self._live:
            self._live.add(number)
            heappush(self._ages, number)

    def grows_by(self, start: int, length: int) -> int:
        """Return how many bytes more would be held with a span."""
        end, more = start + length, length
        for place in range(max(0, bisect_left(self._starts, start) - 1), len(self._starts)):
            other = self._starts[place]
            if other >= end:
                break
            more -= max(0, min(end, self._ends[other]) - max(start, other))
        return more

    def covers(self, start: int, length: int) -> bool:
        """Whether all of a span is held."""
        place = bisect_right(self._starts, start) - 1
        end = start + length
        while place >= 0 and place < len(self._starts) and self._starts[place] <= start < end:
            start = max(start, self._ends[self._starts[place]])
            place += 1
        return start >= end

    def near(self, address: int, most: int) -> list[int]:
        """Return where some runs of spans begin, from an address on, upwards and round: an elevator's choice."""
        starts, count = self._starts, len(self._starts)
        begin = bisect_left(starts, address)
        runs: list[int] = []
        before = -1
        for step in range(min(count, _SCANNED)):
            start = starts[(begin + step) % count]
            if start != before:
                runs.append(start)
                if len(runs) == most:
                    break
            before = self._ends[start]
        return runs

    def oldest_runs(self, most: int) -> list[int]:
        """Return where the runs begin that hold the oldest spans, of so many spans at most; the oldest is first."""
        runs: list[int] = []
        for start in islice(self._by_age.values(), most):
            place = bisect_left(self._starts, start)
            while place and self._ends[self._starts[place - 1]] == self._starts[place]:
                if runs:
                    break  # a span before it is in the window too, or comes when it is the oldest
                place -= 1
            else:
                if self._starts[place] not in runs:
                    runs.append(self._starts[place])
        return runs

    def take(self, start: int, most: int) -> tuple[int, Sequence[int]]:
        """Take the run that begins there out, at most so many bytes of it and one span at least.

        Returns its length and the numbers of its spans; they count as not yet written until `written` is told.
        """
        place = bisect_left(self._starts, start)
        last, end = place, start
        numbers: list[int] = []
        while last < len(self._starts) and self._starts[last] == end:
            until = self._ends[end]
            if numbers and until - start > most:
                break
            numbers.append(self._numbers.pop(end))
            del self._by_age[numbers[-1]]
            del self._ends[end]
            end = until
            last += 1
        del self._starts[place:last]
        self.bytes -= end - start
        return end - start, numbers

    def written(self, numbers: Sequence[int]) -> None:
        """Count spans as written that were taken."""
        self._live.difference_update(numbers)

    @property
    def newest(self) -> int:
        """The number that the next span will have: a flush has to wait for all below it."""
        return self._next

    @property
    def oldest(self) -> int:
        """The number of the oldest span that is not written; that of the next one if there is none."""
        while self._ages and self._ages[0] not in self._live:
            heappop(self._ages)
        return self._ages[0] if self._ages else self._next
