"""The timing of a rotating disk: seeks, geometry, read-ahead, and the order in which the drive executes requests."""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from enum import Enum
from math import sqrt

from raidproof.core.errors import RequestError
from raidproof.disk.profile import Profile, Rotational
from raidproof.disk.timing.request import Calendar, DiskModel, Extents, Op, Request

KNEE = 1 / 3
"""Distance, as a fraction of the full stroke, at which the seek curve changes from a square root to a line."""
# The distance d between two random tracks has the density 2(1-d). The mean of the seek curve over this density is
# 0.2 track_to_track + (0.8 - 4/27) knee + 4/27 full_stroke. Data sheets give this mean as "average seek".
SHORTEST_WEIGHT, FULL_WEIGHT = 0.2, 4 / 27

_SECTOR = 512
_SEGMENTS = 8
"""Number of sequential streams for which a drive keeps read-ahead data."""
_PIECE = 1 << 20
"""Limit in bytes of one write from the cache to the medium (destage), so that reads do not wait long."""
_URGENT_FROM = 0.75
"""Filled fraction of the cache from which a destage competes with the waiting reads."""
_MAX_WAIT_NS = 1_000_000_000
"""Waiting time in ns after which a request is executed next, independently of the position of the heads."""


class SeekCurve:
    """The seek time of a drive as a function of the distance.

    The time grows with the square root of the distance up to a third of the full stroke, in which the arm accelerates,
    and then linearly (Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994). The
    curve begins at the track-to-track time and ends at the full-stroke time. Its mean over random seeks is the average
    seek time.
    """

    def __init__(self, mechanics: Rotational) -> None:
        self._shortest = mechanics.track_to_track_ms * 1e6
        full = mechanics.full_stroke_ms * 1e6
        self._knee = (mechanics.average_seek_ms * 1e6 - SHORTEST_WEIGHT * self._shortest - FULL_WEIGHT * full) / (
            1 - SHORTEST_WEIGHT - FULL_WEIGHT
        )
        self._root = (self._knee - self._shortest) / sqrt(KNEE)
        self._slope = (full - self._knee) / (1 - KNEE)

    def ns(self, distance: float) -> int:
        """Return the seek time in ns for a distance, given as a fraction (0 to 1) of the full stroke."""
        if distance <= KNEE:
            return int(self._shortest + self._root * sqrt(distance))
        return int(self._knee + self._slope * (distance - KNEE))


class Placement(Enum):
    """The location of a member disk on a drive that is larger than the member."""

    SPREAD = "spread"
    """The member covers the whole drive.

    Tracks keep their size, and adjacent tracks their switch time. All other seek distances are stretched, so that the
    last track of the member is a full stroke away from the first."""
    OUTER = "outer"
    """The member is at the beginning of the drive, in its fastest zone, with short seeks."""


class Geometry:
    """The tracks of a member disk.

    All positions are *stream times*. The stream time of an address is the ns from address 0 to this address in a
    sequential read, with one revolution and one head switch for each track. The skew between tracks equals the head
    switch time; so stream time modulo one revolution is also the angle of an address.
    """

    def __init__(self, profile: Profile, size: int, placement: Placement) -> None:
        mechanics = profile.rotational
        if mechanics is None:
            raise RequestError(f"the disk profile {profile.name!r} has no table [rotational]")
        self.turn_ns = round(60e9 / mechanics.rpm)
        self.switch_ns = round(mechanics.head_switch_ms * 1e6)
        self.step_ns = self.turn_ns + self.switch_ns
        zones = mechanics.zones
        span = mechanics.media_rate_rim_mb_s - mechanics.media_rate_hub_mb_s
        rates = [mechanics.media_rate_rim_mb_s - span * zone / max(1, zones - 1) for zone in range(zones)]
        self._track_size = [max(_SECTOR, int(rate * self.step_ns / 1e3) // _SECTOR * _SECTOR) for rate in rates]
        laid_out = profile.capacity if placement is Placement.OUTER else size
        self.tracks = max(zones, -(-laid_out * zones // sum(self._track_size)))
        while True:
            self._first_track = [self.tracks * zone // zones for zone in range(zones)]
            self._first_byte = [0]
            for zone in range(zones):
                after = self._first_track[zone + 1] if zone + 1 < zones else self.tracks
                count = after - self._first_track[zone]
                self._first_byte.append(self._first_byte[-1] + count * self._track_size[zone])
            self.capacity = self._first_byte.pop()
            if self.capacity >= size:
                break
            self.tracks += 1

    def stream_ns(self, address: int) -> int:
        """Return the stream time of an address in ns."""
        zone = bisect_right(self._first_byte, address) - 1
        track, within = divmod(address - self._first_byte[zone], self._track_size[zone])
        return (self._first_track[zone] + track) * self.step_ns + within * self.turn_ns // self._track_size[zone]

    def address(self, stream_ns: int) -> int:
        """Return the address in bytes, in whole sectors, at a stream time; after the last track, the capacity."""
        track, within = divmod(stream_ns, self.step_ns)
        if track >= self.tracks:
            return self.capacity
        zone = bisect_right(self._first_track, track) - 1
        size = self._track_size[zone]
        passed = size if within >= self.turn_ns else within * size // self.turn_ns // _SECTOR * _SECTOR
        return self._first_byte[zone] + (track - self._first_track[zone]) * size + passed


@dataclass(slots=True)
class Segment:
    """A contiguous range of addresses in the drive's read cache; during a read-ahead its end moves with the heads."""

    start: int
    end: int
    limit: int
    """Address at which the read-ahead ends."""
    used: int
    """End of the part that requests have read."""


class ReadAhead:
    """The segments in a drive's read cache, the latest one last; a read-ahead may extend the latest segment."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Number of bytes that the drive reads ahead after a read; 0: no read-ahead and no read cache."""
        self._segments: list[Segment] = []

    def of(self, address: int) -> Segment | None:
        """Return the segment that contains an address or ends at the address; None if no segment does."""
        for segment in reversed(self._segments):
            if segment.start <= address <= segment.end:
                return segment
        return None

    def began(self, start: int, end: int) -> Segment:
        """Add a read from the medium, and return its segment, which becomes the latest.

        The read extends the segment that contains or precedes ``start``, or begins a new segment.
        """
        known = self.of(start)
        if known is None:
            known = Segment(start, end, end, end)
            self._segments.append(known)
            del self._segments[:-_SEGMENTS]
        elif known is not self._segments[-1]:
            self._segments.remove(known)
            self._segments.append(known)
        known.end, known.used = max(known.end, end), max(known.used, end)
        known.limit = max(known.end, end + self.size)
        # The cache keeps only the end of a long stream.
        known.start = max(known.start, known.end - 2 * self.size)
        return known


class RotationalDisk(DiskModel):
    """A simulated rotating disk. `submit` accepts a request; the disk answers by a call of ``request.then``."""

    def __init__(self, profile: Profile, size: int, placement: Placement, calendar: Calendar) -> None:
        mechanics = profile.rotational
        assert mechanics is not None  # noqa: S101  the caller's choice of class
        super().__init__(profile, calendar)
        self._geometry = Geometry(profile, size, placement)
        self._seek = SeekCurve(mechanics)
        self._settle_ns = round(mechanics.write_seek_extra_ms * 1e6)
        self._depth = profile.queue_depth
        self._cache_bytes = profile.cache.size if profile.cache.write_back else 0
        self._queue: list[Request] = []
        self._outside_queue: deque[Request] = deque()
        """Requests that wait for a place in the drive's queue."""
        self._waiting_for_cache: deque[Request] = deque()
        self._flushes: list[tuple[int, Request]] = []
        self._dirty = Extents()
        self._under_way = 0
        self._ahead = ReadAhead(profile.cache.read_ahead)
        self._reading_ahead: tuple[Segment, int, int] | None = None
        """The segment of the current read-ahead, with a time and the stream time of the heads at this time."""
        self._at = 0
        """Address at which the last transfer ended."""
        self._busy = False
        self._destaged = False
        """Whether the last transfer was a destage: a write from the cache to the medium."""

    def _read(self, request: Request, now: int) -> None:
        end = request.offset + request.length
        self._update_read_ahead(now)
        held = self._ahead.of(request.offset)
        if held is not None and (asked := min(end, held.end)) > held.used:
            # The request uses this part of the read-ahead, so that the time of the heads for it counts as work.
            self.usage.work(now - self._geometry.stream_ns(asked) + self._geometry.stream_ns(held.used), now)
            held.used = asked
        if self._dirty.covers(request.offset, request.length) or (held is not None and held.end >= end):
            if held is not None:
                held.limit = max(held.limit, end + self._ahead.size)
                if not self._busy and self._reading_ahead is None and held.end == self._at:
                    self._read_on(held, now)
            self._answer(request, self._interface.pass_through(request.length, now))
        else:
            self._enqueue(request, now)

    def _take_write(self, request: Request, now: int) -> None:
        # Cached read data of these addresses stays valid: the write updates it.
        if request.fua or request.length > self._cache_bytes:
            self._enqueue(request, now)
        elif self._waiting_for_cache or not self._fits(request):
            request.data_ns = now
            self._waiting_for_cache.append(request)
            self._start_next(now)
        else:
            self._accept(request, now)
            self._start_next(now)

    def _fits(self, request: Request) -> bool:
        held = self._dirty.bytes + self._under_way
        return held + self._dirty.grows_by(request.offset, request.length) <= self._cache_bytes

    def _accept(self, request: Request, now: int) -> None:
        self._dirty.add(request.offset, request.length)
        self._answer(request, now)

    def _flush(self, request: Request, now: int) -> None:
        if self._cache.protected or self._dirty.oldest >= self._dirty.newest:
            self._answer(request, now)
        else:
            request.data_ns = now
            self._flushes.append((self._dirty.newest, request))
            self._start_next(now)

    def _enqueue(self, request: Request, now: int) -> None:
        request.data_ns = now
        if len(self._queue) < self._depth:
            self._queue.append(request)
        else:
            self._outside_queue.append(request)
        self._start_next(now)

    def _start_next(self, now: int) -> None:
        """Begin the next read, write or destage if the heads are idle."""
        if self._busy:
            return
        urgent = bool(self._flushes or self._waiting_for_cache) or self._dirty.bytes > self._cache_bytes * _URGENT_FROM
        best: tuple[int, Request | int] | None = None
        self._update_read_ahead(now)
        for request in self._queue:
            cost = -1 if now - request.data_ns > _MAX_WAIT_NS else self._positioning(*self._first(request), now)
            if best is None or cost < best[0]:
                best = cost, request
        if self._overdue(now):
            best = -1, self._dirty.oldest_runs(1)[0]
        elif best is None or (urgent and best[0] >= 0):
            for start in self._dirty.oldest_runs(self._cache.sorted):
                cost = self._positioning(start, True, now)
                if best is None or cost < best[0]:
                    best = cost, start
        if best is None:
            return
        if isinstance(best[1], Request):
            self._execute(best[1], now)
        else:
            self._destage(best[1], now)

    def _overdue(self, now: int) -> bool:
        """Return whether a request has waited too long for a destage; destages and other transfers then alternate."""
        if self._destaged or not len(self._dirty):
            return False
        waiting = [request for _, request in self._flushes[:1]]
        waiting += [self._waiting_for_cache[0]] if self._waiting_for_cache else []
        return any(now - request.data_ns > _MAX_WAIT_NS for request in waiting)

    def _first(self, request: Request) -> tuple[int, bool]:
        """Return the first address of a request that is not in the read cache, and whether the request is a write."""
        if request.op is Op.WRITE:
            return request.offset, True
        held = self._ahead.of(request.offset)
        return (max(request.offset, held.end) if held is not None else request.offset), False

    def _positioning(self, address: int, write: bool, now: int) -> int:
        """Return the time in ns from ``now`` until an address passes under the heads."""
        geometry = self._geometry
        target, here = geometry.stream_ns(address), geometry.stream_ns(self._at)
        if not write and self._reading_ahead is not None and address == self._at:
            return 0  # the current read-ahead has reached the address
        tracks = abs(target // geometry.step_ns - here // geometry.step_ns)
        move = 0 if not tracks else geometry.switch_ns if tracks == 1 else self._seek.ns(tracks / geometry.tracks)
        if write:
            move += self._settle_ns if tracks > 1 else 0
        return move + (target - now - move) % geometry.turn_ns

    def _execute(self, request: Request, now: int) -> None:
        self._destaged = False
        self._queue.remove(request)
        if self._outside_queue:
            self._queue.append(self._outside_queue.popleft())
        start, write = self._first(request)
        end = request.offset + request.length
        done = self._transfer(min(start, end), end, write, now)
        self._calendar.at(done, lambda at: self._executed(request, end, at))

    def _executed(self, request: Request, end: int, now: int) -> None:
        self._busy = False
        self._at = end
        if request.op is Op.READ:
            # The interface transfers data while the heads read: only the last part remains to be transferred.
            self._answer(request, self._interface.trail(request.length, now))
            if self._ahead.size:
                self._read_on(self._ahead.began(request.offset, end), now)
        else:
            self._answer(request, now)
        self._start_next(now)

    def _destage(self, start: int, now: int) -> None:
        self._destaged = True
        length, numbers = self._dirty.take(start, _PIECE)
        self._under_way += length
        done = self._transfer(start, start + length, True, now)

        def written(at: int) -> None:
            self._busy = False
            self._at = start + length
            self._under_way -= length
            self._dirty.written(numbers)
            self._after_destage(at)

        self._calendar.at(done, written)

    def _after_destage(self, now: int) -> None:
        oldest = self._dirty.oldest
        ended = [request for barrier, request in self._flushes if oldest >= barrier]
        self._flushes = [(barrier, request) for barrier, request in self._flushes if oldest < barrier]
        for request in ended:
            self._answer(request, now)
        while self._waiting_for_cache and self._fits(self._waiting_for_cache[0]):
            self._accept(self._waiting_for_cache.popleft(), now)
        self._start_next(now)

    def _transfer(self, start: int, end: int, write: bool, now: int) -> int:
        """Occupy the heads from ``now`` until the bytes ``start`` to ``end`` have passed; return the end time."""
        geometry = self._geometry
        passing = geometry.stream_ns(end) - geometry.stream_ns(start)
        done = now + self._positioning(start, write, now) + passing
        self._reading_ahead = None
        self._busy = True
        self.usage.work(now, done)
        return done

    def _read_on(self, segment: Segment, now: int) -> None:
        self._reading_ahead = (segment, now, self._geometry.stream_ns(self._at))

    def _update_read_ahead(self, now: int) -> None:
        """Extend the segment of the current read-ahead by the data that the heads have read until ``now``."""
        if self._reading_ahead is None:
            return
        segment, since, stream = self._reading_ahead
        reached = self._geometry.address(stream + now - since)
        if reached >= segment.limit:
            self._reading_ahead = None
            reached = segment.limit
        segment.end = max(segment.end, reached)
        self._at = segment.end
