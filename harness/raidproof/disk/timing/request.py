"""Parts that all simulated disks share: requests, the calendar of events, transfers, extents and usage counters."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from itertools import islice

from raidproof.disk.profile import Profile

Action = Callable[[int], None]
"""A function that the calendar calls with the time of its event in ns."""
_SCANNED = 64
"""Limit of the spans that `Extents.near` examines in one call, which bounds the duration of the call."""


class Op(Enum):
    """The kind of a request to a simulated disk."""

    READ = "read"
    WRITE = "write"
    FLUSH = "flush"
    TRIM = "trim"


@dataclass(slots=True, eq=False)
class Request:
    """One request to a simulated disk; ``offset`` and ``length`` are in bytes."""

    op: Op
    offset: int = 0
    length: int = 0
    fua: bool = False
    member: int = 0
    """Index of the member disk."""
    tag: object = None
    """Any object that the caller attaches to the request."""
    submitted_ns: int = 0
    """Time of the submission in ns."""
    done_ns: int | None = None
    """Time of the answer in ns; None before the answer."""
    passed: bool = False
    """Whether the data of a write has come through a controller, so that the disk's interface has transferred it."""
    data_ns: int = 0
    """Time in ns at which the request began to wait in the disk: for the heads, the cache or a flush."""
    then: "Callable[[Request, int], None] | None" = None
    """Function that the disk calls with the request and the time of the answer."""


class Calendar:
    """The event queue of the disk simulation: executes actions in the order of their times.

    Actions with equal times are executed in the order in which they were scheduled.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Action]] = []
        self._entered = 0
        self.reached_ns = 0
        """Time of the last executed action; no action may be scheduled before this time."""

    @property
    def next_ns(self) -> int | None:
        """Time of the next action in ns; None if no action is scheduled."""
        return self._heap[0][0] if self._heap else None

    def at(self, time_ns: int, action: Action) -> None:
        """Schedule the call ``action(time_ns)``."""
        self._entered += 1
        heappush(self._heap, (time_ns, self._entered, action))

    def advance(self, now_ns: int) -> None:
        """Execute all actions with times until ``now_ns``, including actions that are scheduled meanwhile."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            time_ns, _, action = heappop(heap)
            self.reached_ns = time_ns
            action(time_ns)

    def clear(self) -> None:
        """Remove all scheduled actions."""
        self._heap.clear()


@dataclass(slots=True)
class Usage:
    """The work of a simulated disk or controller since its creation."""

    busy_ns: int = 0
    """Time of work in ns.

    A rotational disk works while its heads seek, wait for a sector, or transfer data that a request uses. A
    solid-state drive works while at least one channel works. A controller works while it transfers data or handles a
    command."""
    requests: int = 0
    """Number of answered requests."""
    bytes: int = 0
    """Bytes that the answered requests read and wrote."""
    busy_until_ns: int = 0
    """Time until which ``busy_ns`` includes the work."""

    def work(self, begin_ns: int, end_ns: int) -> None:
        """Add the work from ``begin_ns`` to ``end_ns``; a part that overlaps earlier work counts once."""
        begin_ns = max(begin_ns, self.busy_until_ns)
        if end_ns > begin_ns:
            self.busy_ns += end_ns - begin_ns
            self.busy_until_ns = end_ns

    def serve(self, length: int) -> None:
        """Count an answered request of ``length`` bytes."""
        self.requests += 1
        self.bytes += length

    def until(self, now_ns: int) -> "Usage":
        """Return the work until ``now_ns``, without the future part of work in progress."""
        ahead = max(0, self.busy_until_ns - now_ns)
        return Usage(max(0, self.busy_ns - ahead), self.requests, self.bytes, min(now_ns, self.busy_until_ns))

    def plus(self, before: "Usage") -> "Usage":
        """Return the sum of this work and the earlier work ``before``."""
        return Usage(
            self.busy_ns + before.busy_ns,
            self.requests + before.requests,
            self.bytes + before.bytes,
            self.busy_until_ns,
        )


def answer_at(calendar: Calendar, usage: Usage, request: Request, time_ns: int) -> None:
    """Schedule the answer of a request at ``time_ns``, and its count in ``usage`` at the same time."""

    def answer(at: int) -> None:
        if request.op in {Op.READ, Op.WRITE}:
            usage.serve(request.length)
        if request.then is not None:
            request.then(request, at)

    calendar.at(time_ns, answer)


class Extents:
    """The dirty data of a write cache, as spans of addresses.

    Each span has a number in the order of entry. Overlapping spans are merged, and keep the lower number. Adjacent
    spans stay separate, so that a flush during a sequential stream does not wait for the end of the stream. A *run* is
    a sequence of adjacent spans.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """Bytes of all spans, without the spans that `take` has removed."""
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._by_age: dict[int, int] = {}
        """Start of each span by its number, the oldest span first."""
        self._ages: list[int] = []
        self._live: set[int] = set()
        self._next = 0

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, length: int) -> None:
        """Add a span of dirty data."""
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
        """Return the number of bytes by which adding a span would increase ``bytes``."""
        end, more = start + length, length
        for place in range(max(0, bisect_left(self._starts, start) - 1), len(self._starts)):
            other = self._starts[place]
            if other >= end:
                break
            more -= max(0, min(end, self._ends[other]) - max(start, other))
        return more

    def covers(self, start: int, length: int) -> bool:
        """Return whether all bytes of a region are dirty."""
        place = bisect_right(self._starts, start) - 1
        end = start + length
        while place >= 0 and place < len(self._starts) and self._starts[place] <= start < end:
            start = max(start, self._ends[self._starts[place]])
            place += 1
        return start >= end

    def near(self, address: int, most: int) -> list[int]:
        """Return the starts of at most ``most`` runs, in the order of an elevator (SCAN) from ``address`` upwards.

        After the highest address the order continues at the lowest address.
        """
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
        """Return the starts of the runs that contain the ``most`` oldest spans, the run of the oldest span first."""
        runs: list[int] = []
        for start in islice(self._by_age.values(), most):
            place = bisect_left(self._starts, start)
            while place and self._ends[self._starts[place - 1]] == self._starts[place]:
                if runs:
                    break  # the run of this span is in the result already, or is written once its first span is oldest
                place -= 1
            else:
                if self._starts[place] not in runs:
                    runs.append(self._starts[place])
        return runs

    def take(self, start: int, most: int) -> tuple[int, Sequence[int]]:
        """Remove the beginning of the run at ``start``: at least one span, and further spans up to ``most`` bytes.

        Return the length in bytes and the numbers of the removed spans. These spans count as unwritten until a call of
        `written`.
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
        """Mark the spans with these numbers, which `take` has removed, as written to the medium."""
        self._live.difference_update(numbers)

    @property
    def newest(self) -> int:
        """Number of the next span that is added; a flush must wait for all spans with lower numbers."""
        return self._next

    @property
    def oldest(self) -> int:
        """Number of the oldest unwritten span; ``newest`` if all spans are written."""
        while self._ages and self._ages[0] not in self._live:
            heappop(self._ages)
        return self._ages[0] if self._ages else self._next


class Interface:
    """A data path with a limited rate: the interface of a disk, or the path through a controller.

    ``mb_s``: rate in 10^6 bytes per second; None: unlimited. ``transfers_s``: limit of transfers per second; None:
    unlimited.
    """

    def __init__(self, mb_s: float | None, transfers_s: float | None = None) -> None:
        self._ns_per_byte = 1e3 / mb_s if mb_s else 0.0
        self._each_ns = 1e9 / transfers_s if transfers_s else 0.0
        self._free_ns = 0

    def pass_through(self, length: int, now: int) -> int:
        """Begin a transfer of ``length`` bytes at ``now``, or once the path is free; return the time of its end."""
        self._free_ns = max(self._free_ns, now) + self.needed_ns(length)
        return self._free_ns

    def needed_ns(self, length: int) -> int:
        """Return the ns for which a transfer occupies the path: the time of its data or of its command, if longer."""
        return round(max(length * self._ns_per_byte, self._each_ns))

    def trail(self, length: int, now: int, since: int | None = None) -> int:
        """Transfer bytes that arrive between ``since`` and ``now``; return the time at which the transfer ends.

        On a path that was free meanwhile the transfer ends at ``now``. On a busy path the transfer waits until the
        path is free. ``since`` None: the bytes arrive at the rate of the path.
        """
        needed = self.needed_ns(length)
        self._free_ns = max(self._free_ns, now - needed if since is None else min(since, now - needed)) + needed
        return max(now, self._free_ns)


class DiskModel(ABC):
    """Base class of simulated drives: the parts that rotating and solid-state drives share."""

    def __init__(self, profile: Profile, calendar: Calendar) -> None:
        self.usage = Usage()
        self._calendar = calendar
        self._overhead_ns = round(profile.command_overhead_us * 1e3)
        self._interface = Interface(profile.interface_mb_s)
        self._cache = profile.cache

    def submit(self, request: Request, now: int) -> None:
        """Accept a request at the time ``now``; the drive answers by a call of ``request.then``."""
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
        """Begin to execute a flush: write the cache to the medium."""

    @abstractmethod
    def _read(self, request: Request, now: int) -> None:
        """Begin to execute a read, from the medium or the cache."""

    @abstractmethod
    def _take_write(self, request: Request, now: int) -> None:
        """Begin to execute a write whose data has arrived in the drive."""

    def _answer(self, request: Request, now: int) -> None:
        answer_at(self._calendar, self.usage, request, now)
