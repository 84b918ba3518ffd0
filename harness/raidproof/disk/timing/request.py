"""A request to a disk, its transfer, its answer on a calendar, and the spans and use that result."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from itertools import islice

Action = Callable[[int], None]
_SCANNED = 64
"""Spans that `near` looks at, at most: the elevator's choice must stay cheap."""


class Op(Enum):
    """What a request does."""

    READ = "read"
    WRITE = "write"
    FLUSH = "flush"
    TRIM = "trim"


@dataclass(slots=True, eq=False)
class Request:
    """One request to a member disk; ``offset`` and ``length`` in bytes."""

    op: Op
    offset: int = 0
    length: int = 0
    fua: bool = False
    member: int = 0
    tag: object = None
    """The caller's own."""
    submitted_ns: int = 0
    done_ns: int | None = None
    """When it was answered; None while it is under way."""
    passed: bool = False
    """For a disk: what it is to write came through a controller, byte by byte, so its own interface has had it too."""
    data_ns: int = 0
    """For a disk: since when the request waits for its heads."""
    then: "Callable[[Request, int], None] | None" = None
    """For a disk: who is told of its answer, and when that was."""


class Calendar:
    """Actions in the order of their times; those of one time in the order in which they were entered."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Action]] = []
        self._entered = 0
        self.reached_ns = 0
        """The time of the last action that was done: nothing can happen before it any more."""

    @property
    def next_ns(self) -> int | None:
        """When the next action is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def at(self, time_ns: int, action: Action) -> None:
        """Have ``action(time_ns)`` called at a time."""
        self._entered += 1
        heappush(self._heap, (time_ns, self._entered, action))

    def advance(self, now_ns: int) -> None:
        """Do all that is due until now, and what that brings about until now."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            time_ns, _, action = heappop(heap)
            self.reached_ns = time_ns
            action(time_ns)

    def clear(self) -> None:
        """Forget all actions."""
        self._heap.clear()


@dataclass(slots=True)
class Usage:
    """Work of a disk or a controller since it was made."""

    busy_ns: int = 0
    """A rotational disk: its heads seek, wait for the sector or transfer (reading ahead for nobody does not count).
    Flash: at least one channel works. A controller: it transfers or handles a command."""
    requests: int = 0
    """Requests that were answered."""
    bytes: int = 0
    """What they read and wrote."""
    busy_until_ns: int = 0
    """To here ``busy_ns`` is counted already."""

    def work(self, begin_ns: int, end_ns: int) -> None:
        """Count a span of work; what overlaps the one before counts once."""
        begin_ns = max(begin_ns, self.busy_until_ns)
        if end_ns > begin_ns:
            self.busy_ns += end_ns - begin_ns
            self.busy_until_ns = end_ns

    def serve(self, length: int) -> None:
        """Count an answered request."""
        self.requests += 1
        self.bytes += length

    def until(self, now_ns: int) -> "Usage":
        """Return what was done until now, without the rest of what is under way."""
        ahead = max(0, self.busy_until_ns - now_ns)
        return Usage(max(0, self.busy_ns - ahead), self.requests, self.bytes, min(now_ns, self.busy_until_ns))

    def plus(self, before: "Usage") -> "Usage":
        """Return this and what was done before it."""
        return Usage(
            self.busy_ns + before.busy_ns,
            self.requests + before.requests,
            self.bytes + before.bytes,
            self.busy_until_ns,
        )


def answer_at(calendar: Calendar, usage: Usage, request: Request, time_ns: int) -> None:
    """Answer a request at a time; only then it counts."""

    def answer(at: int) -> None:
        if request.op in {Op.READ, Op.WRITE}:
            usage.serve(request.length)
        if request.then is not None:
            request.then(request, at)

    calendar.at(time_ns, answer)


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


class Interface:
    """A cable, a bus or a link of a rate (10^6 bytes a second); None has no limit."""

    def __init__(self, mb_s: float | None, transfers_s: float | None = None) -> None:
        self._ns_per_byte = 1e3 / mb_s if mb_s else 0.0
        self._each_ns = 1e9 / transfers_s if transfers_s else 0.0
        self._free_ns = 0

    def pass_through(self, length: int, now: int) -> int:
        """Carry a transfer that begins now at the earliest; return when it has passed."""
        self._free_ns = max(self._free_ns, now) + self.needed_ns(length)
        return self._free_ns

    def needed_ns(self, length: int) -> int:
        """Return how long a transfer occupies the path: its bytes, or its command if that takes longer."""
        return round(max(length * self._ns_per_byte, self._each_ns))

    def trail(self, length: int, now: int, since: int | None = None) -> int:
        """Carry a transfer whose last byte came only now, the others since then; return when it has passed.

        On a path that had time for it meanwhile nothing is left to wait for; on one that was busy it waits like any
        other. Where nothing is said, the bytes came just as fast as the path carries them.
        """
        needed = self.needed_ns(length)
        self._free_ns = max(self._free_ns, now - needed if since is None else min(since, now - needed)) + needed
        return max(now, self._free_ns)
