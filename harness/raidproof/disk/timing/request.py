"""Requests to simulated disks, the calendar of events, transfers, spans of addresses and utilization counters."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from itertools import islice

from raidproof.disk.profile import Profile

Action = Callable[[int], None]
_SCANNED = 64
"""Limit of spans that `near` examines: the elevator's choice must stay cheap."""


class Op(Enum):
    """The kind of a request."""

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
    """For the caller's use."""
    submitted_ns: int = 0
    done_ns: int | None = None
    """When it was answered; None before."""
    passed: bool = False
    """For a disk: the data of a write came through a controller as a stream, so its interface has carried the data."""
    data_ns: int = 0
    """For a disk: the time since when the request waits for the heads."""
    then: "Callable[[Request, int], None] | None" = None
    """For a disk: called with the request and the time when it is answered."""


class Calendar:
    """Actions in the order of their times; actions with equal times in the order of their entry."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Action]] = []
        self._entered = 0
        self.reached_ns = 0
        """The time of the last executed action: nothing can happen before it any more."""

    @property
    def next_ns(self) -> int | None:
        """The time of the next action; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def at(self, time_ns: int, action: Action) -> None:
        """Schedule the call ``action(time_ns)``."""
        self._entered += 1
        heappush(self._heap, (time_ns, self._entered, action))

    def advance(self, now_ns: int) -> None:
        """Execute all actions due until ``now_ns``, including those that they schedule."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            time_ns, _, action = heappop(heap)
            self.reached_ns = time_ns
            action(time_ns)

    def clear(self) -> None:
        """Remove all actions."""
        self._heap.clear()


@dataclass(slots=True)
class Usage:
    """Work of a disk or a controller since its creation."""

    busy_ns: int = 0
    """A rotational disk: its heads seek, wait for the sector or transfer (unused read-ahead does not count).
    Flash: at least one channel works. A controller: it transfers or handles a command."""
    requests: int = 0
    """Number of answered requests."""
    bytes: int = 0
    """Bytes that they read and wrote."""
    busy_until_ns: int = 0
    """``busy_ns`` includes the work until this time."""

    def work(self, begin_ns: int, end_ns: int) -> None:
        """Count a span of work; a part that overlaps the previous span counts once."""
        begin_ns = max(begin_ns, self.busy_until_ns)
        if end_ns > begin_ns:
            self.busy_ns += end_ns - begin_ns
            self.busy_until_ns = end_ns

    def serve(self, length: int) -> None:
        """Count an answered request."""
        self.requests += 1
        self.bytes += length

    def until(self, now_ns: int) -> "Usage":
        """Return the work until ``now_ns``, without the rest of work in progress."""
        ahead = max(0, self.busy_until_ns - now_ns)
        return Usage(max(0, self.busy_ns - ahead), self.requests, self.bytes, min(now_ns, self.busy_until_ns))

    def plus(self, before: "Usage") -> "Usage":
        """Return the sum of this and earlier work."""
        return Usage(
            self.busy_ns + before.busy_ns,
            self.requests + before.requests,
            self.bytes + before.bytes,
            self.busy_until_ns,
        )


def answer_at(calendar: Calendar, usage: Usage, request: Request, time_ns: int) -> None:
    """Answer a request at a time, and count it then."""

    def answer(at: int) -> None:
        if request.op in {Op.READ, Op.WRITE}:
            usage.serve(request.length)
        if request.then is not None:
            request.then(request, at)

    calendar.at(time_ns, answer)


class Extents:
    """Spans by address, each with a number in order of entry. Overlapping spans are merged and get the older number.

    Adjacent spans stay separate: otherwise the first byte of an endless stream would wait for its last.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """Bytes that wait to be written, without those taken by `take`."""
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._by_age: dict[int, int] = {}
        """The start of each span by its number; oldest first, as a dict keeps its order."""
        self._ages: list[int] = []
        self._live: set[int] = set()
        self._next = 0

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, length: int) -> None:
        """Add a span."""
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
        """Return the bytes by which a span would increase `bytes`."""
        end, more = start + length, length
        for place in range(max(0, bisect_left(self._starts, start) - 1), len(self._starts)):
            other = self._starts[place]
            if other >= end:
                break
            more -= max(0, min(end, self._ends[other]) - max(start, other))
        return more

    def covers(self, start: int, length: int) -> bool:
        """Return whether a span is held wholly."""
        place = bisect_right(self._starts, start) - 1
        end = start + length
        while place >= 0 and place < len(self._starts) and self._starts[place] <= start < end:
            start = max(start, self._ends[self._starts[place]])
            place += 1
        return start >= end

    def near(self, address: int, most: int) -> list[int]:
        """Return the starts of some runs of spans from an address upwards, with wrap-around: an elevator's choice."""
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
        """Return the starts of the runs that contain the ``most`` oldest spans; the oldest first."""
        runs: list[int] = []
        for start in islice(self._by_age.values(), most):
            place = bisect_left(self._starts, start)
            while place and self._ends[self._starts[place - 1]] == self._starts[place]:
                if runs:
                    break  # the span before it is among the oldest too, or its turn comes when it is the oldest
                place -= 1
            else:
                if self._starts[place] not in runs:
                    runs.append(self._starts[place])
        return runs

    def take(self, start: int, most: int) -> tuple[int, Sequence[int]]:
        """Remove the run that begins at ``start``: at most ``most`` bytes of it, and at least one span.

        Return its length and the numbers of its spans, which count as unwritten until a call of `written`.
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
        """Count taken spans as written."""
        self._live.difference_update(numbers)

    @property
    def newest(self) -> int:
        """The number of the next span: a flush has to wait for all lower numbers."""
        return self._next

    @property
    def oldest(self) -> int:
        """The number of the oldest unwritten span; the next span's number if there is none."""
        while self._ages and self._ages[0] not in self._live:
            heappop(self._ages)
        return self._ages[0] if self._ages else self._next


class Interface:
    """A cable, a bus or a link with a rate in 10^6 bytes per second; None: unlimited."""

    def __init__(self, mb_s: float | None, transfers_s: float | None = None) -> None:
        self._ns_per_byte = 1e3 / mb_s if mb_s else 0.0
        self._each_ns = 1e9 / transfers_s if transfers_s else 0.0
        self._free_ns = 0

    def pass_through(self, length: int, now: int) -> int:
        """Carry a transfer that begins at ``now`` or when the path is free; return when it ends."""
        self._free_ns = max(self._free_ns, now) + self.needed_ns(length)
        return self._free_ns

    def needed_ns(self, length: int) -> int:
        """Return the ns that a transfer occupies the path: for its bytes, or for its command if that takes longer."""
        return round(max(length * self._ns_per_byte, self._each_ns))

    def trail(self, length: int, now: int, since: int | None = None) -> int:
        """Carry a transfer whose last byte arrives at ``now``, and the first at ``since``; return when it ends.

        On a path that was free meanwhile the transfer ends at ``now``; on a busy path it waits like any other. Without
        ``since`` the bytes arrived at the path's rate.
        """
        needed = self.needed_ns(length)
        self._free_ns = max(self._free_ns, now - needed if since is None else min(since, now - needed)) + needed
        return max(now, self._free_ns)


class DiskModel(ABC):
    """The parts of a drive that do not depend on its medium: interface, cache, and the way of a request to them."""

    def __init__(self, profile: Profile, calendar: Calendar) -> None:
        self.usage = Usage()
        self._calendar = calendar
        self._overhead_ns = round(profile.command_overhead_us * 1e3)
        self._interface = Interface(profile.interface_mb_s)
        self._cache = profile.cache

    def submit(self, request: Request, now: int) -> None:
        """Accept a request at a time."""
        ready = now + self._overhead_ns
        match request.op:
            case Op.TRIM:
                self._answer(request, ready)
            case Op.FLUSH:
                self._calendar.at(ready, lambda at: self._flush(request, at))
            case Op.READ:
                self._calendar.at(ready, lambda at: self._read(request, at))
            case Op.WRITE:
                carry = self._interface.trail if request.passed else self._interface.pass_through
                arrived = carry(request.length, ready)
                self._calendar.at(arrived, lambda at: self._take_write(request, at))

    @abstractmethod
    def _flush(self, request: Request, now: int) -> None:
        """Write the cache to the medium."""

    @abstractmethod
    def _read(self, request: Request, now: int) -> None:
        """Read from the medium or the cache."""

    @abstractmethod
    def _take_write(self, request: Request, now: int) -> None:
        """Take a write whose data has arrived."""

    def _answer(self, request: Request, now: int) -> None:
        answer_at(self._calendar, self.usage, request, now)
