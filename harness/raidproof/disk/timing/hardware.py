"""The simulated disks and controllers of a lab, on one calendar of events."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from raidproof.core.errors import RequestError
from raidproof.disk.profile import Profile
from raidproof.disk.timing.flash import FlashDisk
from raidproof.disk.timing.request import Calendar, Extents, Interface, Op, Request, Usage, answer_at
from raidproof.disk.timing.rotational import Placement, RotationalDisk

_DESTAGED = 4
"""Number of concurrent writes to each disk while a controller empties its cache."""
_PIECE = 1 << 20
"""Limit in bytes of one write from the controller's cache."""
_CANDIDATES = 1

Member = tuple[Profile, int, Placement, str | None]
"""A member disk: its profile, size in bytes, placement on the drive, and the name of its controller (None: none)."""


class Battery(Enum):
    """The state of the battery that preserves a controller's cache during a power cut."""

    GOOD = "good"
    """The cache survives a power cut."""
    FAILED = "failed"
    """The battery has failed, and the controller has detected the failure: it writes through."""
    UNNOTICED = "unnoticed"
    """The battery has failed, and the controller has not detected the failure: it continues to cache writes."""


@dataclass(frozen=True)
class ControllerSpec:
    """The parameters of one simulated controller."""

    name: str
    bandwidth_mb_s: float | None = None
    """Rate of all transfers in both directions together, in 10^6 bytes per second; None: unlimited."""
    commands_per_s: float | None = None
    """Limit of commands per second; None: unlimited."""
    cache: int = 0
    """Size of the write cache in bytes; 0: no write cache."""
    battery: Battery = Battery.GOOD


class Disk(Protocol):
    """The interface of a simulated disk, for its controller and for `Hardware`."""

    usage: Usage

    def submit(self, request: Request, now: int) -> None:
        """Accept a request at the time ``now``; the disk answers by a call of ``request.then``."""


class _AttachedDisk:
    """A disk that is attached to a controller, with the disk's data in the controller's write cache."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.dirty = Extents()
        """Data in the controller's cache that the controller has not begun to write to the disk."""
        self.under_way = 0
        """Number of writes from the controller's cache that the disk has not answered yet."""
        self.at = 0
        """Address at which the last write from the controller's cache ended."""


class Controller:
    """A simulated controller with its disks.

    The data of a write passes the controller before the disk writes; the data of a read passes while the disk reads.
    """

    def __init__(self, spec: ControllerSpec, calendar: Calendar) -> None:
        self.usage = Usage()
        self._calendar = calendar
        self._path = Interface(spec.bandwidth_mb_s, spec.commands_per_s)
        self._cache_bytes = spec.cache if spec.battery is not Battery.FAILED else 0
        self._cached_bytes = 0
        self._waiting_for_cache: deque[tuple[_AttachedDisk, Request]] = deque()
        self._disks: dict[int, _AttachedDisk] = {}

    def attach(self, member: int, disk: Disk) -> None:
        """Attach the disk of a member to the controller."""
        self._disks[member] = _AttachedDisk(disk)

    def submit(self, request: Request, now: int) -> None:
        """Accept a request at the time ``now``; the controller answers by a call of ``request.then``."""
        attached = self._disks[request.member]
        match request.op:
            case Op.WRITE:
                self._calendar.at(self._carry(request.length, now), lambda at: self._take_write(attached, request, at))
            case Op.READ:
                self._read(attached, request, now)
            case Op.FLUSH if self._cache_bytes:
                self._answer(request, self._carry(0, now))
            case _:
                self._calendar.at(self._carry(0, now), lambda at: attached.disk.submit(request, at))

    def _carry(self, length: int, now: int) -> int:
        """Transfer the data of a write, or a command without data; return the time at which the transfer ends."""
        passed = self._path.pass_through(length, now)
        self.usage.work(passed - self._path.needed_ns(length), passed)
        return passed

    def _carry_read(self, length: int, since: int, now: int) -> int:
        """Transfer the data of a read to the host; return the time at which the transfer ends.

        The disk has read the data between ``since`` and ``now``; the data passes meanwhile, and waits only for other
        transfers.
        """
        passed = self._path.trail(length, now, since)
        self.usage.work(passed - self._path.needed_ns(length), passed)
        return passed

    def _read(self, attached: _AttachedDisk, request: Request, now: int) -> None:
        if self._cache_bytes and attached.dirty.covers(request.offset, request.length):
            self._answer(request, self._carry(request.length, now))
            return
        inner = Request(Op.READ, request.offset, request.length, member=request.member)
        inner.then = lambda _, at: self._answer(request, self._carry_read(request.length, now, at))
        attached.disk.submit(inner, now)

    def _take_write(self, attached: _AttachedDisk, request: Request, now: int) -> None:
        if not self._cache_bytes:
            self.usage.serve(request.length)
            request.passed = True
            attached.disk.submit(request, now)
        elif self._waiting_for_cache or (
            self._cached_bytes and self._cached_bytes + request.length > self._cache_bytes
        ):
            self._waiting_for_cache.append((attached, request))
        else:
            self._accept(attached, request, now)

    def _accept(self, attached: _AttachedDisk, request: Request, now: int) -> None:
        before = attached.dirty.bytes
        attached.dirty.add(request.offset, request.length)
        self._cached_bytes += attached.dirty.bytes - before
        self._answer(request, now)
        self._destage(attached, now)

    def _destage(self, attached: _AttachedDisk, now: int) -> None:
        while attached.under_way < _DESTAGED and len(attached.dirty):
            start = attached.dirty.near(attached.at, _CANDIDATES)[0]
            length, numbers = attached.dirty.take(start, _PIECE)
            attached.under_way += 1
            attached.at = start + length

            def written(inner: Request, at: int, numbers: object = numbers) -> None:
                attached.under_way -= 1
                attached.dirty.written(numbers)  # type: ignore[arg-type]
                self._cached_bytes -= inner.length
                while self._waiting_for_cache and (
                    not self._cached_bytes
                    or self._cached_bytes + self._waiting_for_cache[0][1].length <= self._cache_bytes
                ):
                    self._accept(*self._waiting_for_cache.popleft(), at)
                self._destage(attached, at)

            # FUA bypasses the disk's cache: data that leaves the controller's cache must be on the medium.
            inner = Request(Op.WRITE, start, length, fua=True)
            inner.then = written
            attached.disk.submit(inner, now)

    def _answer(self, request: Request, now: int) -> None:
        answer_at(self._calendar, self.usage, request, now)


class Hardware:
    """The simulated disks and controllers of a lab.

    The result depends only on the submitted requests and their times; the simulation has no clock and no threads.
    """

    def __init__(self, members: Sequence[Member], controllers: Sequence[ControllerSpec] = ()) -> None:
        self._members = tuple(members)
        self._specs = tuple(controllers)
        self._earlier_usage = [Usage() for _ in self._members], [Usage() for _ in self._specs]
        self._create()

    def _create(self) -> None:
        self._calendar = Calendar()
        self._done: list[Request] = []
        self._controllers = {spec.name: Controller(spec, self._calendar) for spec in self._specs}
        self._disks: list[Disk | None] = []
        self._paths: list[Disk | Controller | None] = []
        for number, (profile, size, placement, controller) in enumerate(self._members):
            disk = _make_disk(profile, size, placement, self._calendar)
            self._disks.append(disk)
            if disk is None or controller is None:
                self._paths.append(disk)
            else:
                self._controllers[controller].attach(number, disk)
                self._paths.append(self._controllers[controller])

    @property
    def next_ns(self) -> int | None:
        """Time of the next event in ns; None if no event is scheduled."""
        return self._calendar.next_ns

    def submit(self, request: Request, now_ns: int) -> None:
        """Submit a request to its member at ``now_ns``, or at the time of the last event if that is later."""
        now_ns = max(now_ns, self._calendar.reached_ns)
        self._calendar.advance(now_ns)
        request.submitted_ns, request.then = now_ns, self._answered
        path = self._paths[request.member]
        if path is None:
            self._answered(request, now_ns)
        else:
            path.submit(request, now_ns)

    def advance(self, now_ns: int) -> list[Request]:
        """Advance the simulated time; return the requests that completed until ``now_ns``, in order of ``done_ns``."""
        self._calendar.advance(now_ns)
        done, self._done = self._done, []
        return done

    def reset(self, now_ns: int) -> None:
        """Drop all requests: disks are idle, caches empty, and heads at the outer edge. Counters stay."""
        self._earlier_usage = self.busy(now_ns)
        self._create()

    def busy(self, now_ns: int) -> tuple[list[Usage], list[Usage]]:
        """Return the work of each member and of each controller from the creation of this object until ``now_ns``."""
        members = [one.usage.until(now_ns) if one else Usage() for one in self._disks]
        controllers = [one.usage.until(now_ns) for one in self._controllers.values()]
        return (
            [one.plus(before) for one, before in zip(members, self._earlier_usage[0], strict=True)],
            [one.plus(before) for one, before in zip(controllers, self._earlier_usage[1], strict=True)],
        )

    def _answered(self, request: Request, now_ns: int) -> None:
        request.done_ns = now_ns
        self._done.append(request)


def _make_disk(profile: Profile, size: int, placement: Placement, calendar: Calendar) -> Disk | None:
    if profile.timed and size > profile.capacity:
        raise RequestError(
            f"a disk of {size} bytes does not fit the disk profile {profile.name!r}, whose capacity is "
            f"{profile.capacity} bytes"
        )
    if profile.rotational is not None:
        return RotationalDisk(profile, size, placement, calendar)
    return FlashDisk(profile, calendar) if profile.flash is not None else None


def drive(hardware: Hardware, requests: Iterable[Request], depth: int, until_ns: int | None = None) -> list[Request]:
    """Submit requests from time 0 on, keeping ``depth`` of them in flight; return the answered requests in order.

    The simulation ends when all requests are answered, before the first event after ``until_ns``, or when no event is
    left. In the last case the result is shorter than the input: the hardware has lost requests.
    """
    source, now, under_way = iter(requests), 0, 0
    answered: list[Request] = []
    while True:
        while under_way < depth and (request := next(source, None)) is not None:
            hardware.submit(request, now)
            under_way += 1
        upcoming = hardware.next_ns
        if not under_way or upcoming is None or (until_ns is not None and upcoming > until_ns):
            return answered
        now = upcoming
        done = hardware.advance(now)
        under_way -= len(done)
        answered += done
