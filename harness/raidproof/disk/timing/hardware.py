"""All simulated disks of a lab with their controllers on one calendar."""

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
"""Concurrent writes per disk while a controller empties its cache."""
_PIECE = 1 << 20
_CANDIDATES = 1

Member = tuple[Profile, int, Placement, str | None]
"""Profile, size in bytes, placement on the drive, and the controller's name."""


class Battery(Enum):
    """The battery that preserves a controller's cache through a power cut."""

    GOOD = "good"
    FAILED = "failed"
    """Failed and detected: the controller writes through."""
    UNNOTICED = "unnoticed"
    """Failed and not detected: the controller keeps caching writes."""


@dataclass(frozen=True)
class ControllerSpec:
    """One controller. ``bandwidth_mb_s`` in 10^6 bytes per second, both directions together; ``cache`` in bytes."""

    name: str
    bandwidth_mb_s: float | None = None
    commands_per_s: float | None = None
    cache: int = 0
    battery: Battery = Battery.GOOD


class Disk(Protocol):
    """The interface of a simulated disk for its controller."""

    usage: Usage

    def submit(self, request: Request, now: int) -> None:
        """Accept a request at a time; it is answered through its ``then``."""


class _Behind:
    """One disk behind a controller, with its data in the controller's cache."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.dirty = Extents()
        self.under_way = 0
        self.at = 0


class Controller:
    """One controller and its disks. Data passes it before a disk writes, and after a disk has read."""

    def __init__(self, spec: ControllerSpec, calendar: Calendar) -> None:
        self.usage = Usage()
        self._calendar = calendar
        self._path = Interface(spec.bandwidth_mb_s, spec.commands_per_s)
        self._room = spec.cache if spec.battery is not Battery.FAILED else 0
        self._held = 0
        self._for_room: deque[tuple[_Behind, Request]] = deque()
        self._disks: dict[int, _Behind] = {}

    def attach(self, member: int, disk: Disk) -> None:
        """Attach a disk."""
        self._disks[member] = _Behind(disk)

    def submit(self, request: Request, now: int) -> None:
        """Accept a request at a time; it is answered through its ``then``."""
        behind = self._disks[request.member]
        match request.op:
            case Op.WRITE:
                self._calendar.at(self._pass(request.length, now), lambda at: self._take_write(behind, request, at))
            case Op.READ:
                self._read(behind, request, now)
            case Op.FLUSH if self._room:
                self._answer(request, self._pass(0, now))
            case _:
                self._calendar.at(self._pass(0, now), lambda at: behind.disk.submit(request, at))

    def _pass(self, length: int, now: int) -> int:
        """Carry a write's data, or a command without data."""
        passed = self._path.pass_through(length, now)
        self.usage.work(passed - self._path.needed_ns(length), passed)
        return passed

    def _return(self, length: int, since: int, now: int) -> int:
        """Carry data that a disk has read since a time: it passes during the read, and waits only for other data."""
        passed = self._path.trail(length, now, since)
        self.usage.work(passed - self._path.needed_ns(length), passed)
        return passed

    def _read(self, behind: _Behind, request: Request, now: int) -> None:
        if self._room and behind.dirty.covers(request.offset, request.length):
            self._answer(request, self._pass(request.length, now))
            return
        inner = Request(Op.READ, request.offset, request.length, member=request.member)
        inner.then = lambda _, at: self._answer(request, self._return(request.length, now, at))
        behind.disk.submit(inner, now)

    def _take_write(self, behind: _Behind, request: Request, now: int) -> None:
        if not self._room:
            self.usage.serve(request.length)
            request.passed = True
            behind.disk.submit(request, now)
        elif self._for_room or (self._held and self._held + request.length > self._room):
            self._for_room.append((behind, request))
        else:
            self._accept(behind, request, now)

    def _accept(self, behind: _Behind, request: Request, now: int) -> None:
        before = behind.dirty.bytes
        behind.dirty.add(request.offset, request.length)
        self._held += behind.dirty.bytes - before
        self._answer(request, now)
        self._destage(behind, now)

    def _destage(self, behind: _Behind, now: int) -> None:
        while behind.under_way < _DESTAGED and len(behind.dirty):
            start = behind.dirty.near(behind.at, _CANDIDATES)[0]
            length, numbers = behind.dirty.take(start, _PIECE)
            behind.under_way += 1
            behind.at = start + length

            def written(inner: Request, at: int, numbers: object = numbers) -> None:
                behind.under_way -= 1
                behind.dirty.written(numbers)  # type: ignore[arg-type]
                self._held -= inner.length
                while self._for_room and (not self._held or self._held + self._for_room[0][1].length <= self._room):
                    self._accept(*self._for_room.popleft(), at)
                self._destage(behind, at)

            # FUA, not to the disk's cache: data that leaves the controller's cache must be on the medium.
            inner = Request(Op.WRITE, start, length, fua=True)
            inner.then = written
            behind.disk.submit(inner, now)

    def _answer(self, request: Request, now: int) -> None:
        answer_at(self._calendar, self.usage, request, now)


class Hardware:
    """The simulated disks and controllers; a pure function of requests and times, without clock or thread."""

    def __init__(self, members: Sequence[Member], controllers: Sequence[ControllerSpec] = ()) -> None:
        self._members = tuple(members)
        self._specs = tuple(controllers)
        self._past = [Usage() for _ in self._members], [Usage() for _ in self._specs]
        self._make()

    def _make(self) -> None:
        self._calendar = Calendar()
        self._done: list[Request] = []
        self._controllers = {spec.name: Controller(spec, self._calendar) for spec in self._specs}
        self._disks: list[Disk | None] = []
        self._doors: list[Disk | Controller | None] = []
        for number, (profile, size, placement, controller) in enumerate(self._members):
            disk = _make_disk(profile, size, placement, self._calendar)
            self._disks.append(disk)
            if disk is None or controller is None:
                self._doors.append(disk)
            else:
                self._controllers[controller].attach(number, disk)
                self._doors.append(self._controllers[controller])

    @property
    def next_ns(self) -> int | None:
        """The time of the next event; None if there is none."""
        return self._calendar.next_ns

    def submit(self, request: Request, now_ns: int) -> None:
        """Submit a request to its member at a time, but not before the last event."""
        now_ns = max(now_ns, self._calendar.reached_ns)
        self._calendar.advance(now_ns)
        request.submitted_ns, request.then = now_ns, self._answered
        door = self._doors[request.member]
        if door is None:
            self._answered(request, now_ns)
        else:
            door.submit(request, now_ns)

    def advance(self, now_ns: int) -> list[Request]:
        """Advance the time, and return the requests served until ``now_ns``, in order, each with its ``done_ns``."""
        self._calendar.advance(now_ns)
        done, self._done = self._done, []
        return done

    def reset(self, now_ns: int) -> None:
        """Drop all requests: disks idle, caches empty, heads at the rim. Counters stay."""
        self._past = self.busy(now_ns)
        self._make()

    def busy(self, now_ns: int) -> tuple[list[Usage], list[Usage]]:
        """Return the work of each member and of each controller until ``now_ns``, since the creation."""
        members = [one.usage.until(now_ns) if one else Usage() for one in self._disks]
        controllers = [one.usage.until(now_ns) for one in self._controllers.values()]
        return (
            [one.plus(before) for one, before in zip(members, self._past[0], strict=True)],
            [one.plus(before) for one, before in zip(controllers, self._past[1], strict=True)],
        )

    def _answered(self, request: Request, now_ns: int) -> None:
        request.done_ns = now_ns
        self._done.append(request)


def _make_disk(profile: Profile, size: int, placement: Placement, calendar: Calendar) -> Disk | None:
    if profile.timed and size > profile.capacity:
        raise RequestError(f"a disk of {size} bytes is more than {profile.name} has, {profile.capacity}")
    if profile.rotational is not None:
        return RotationalDisk(profile, size, placement, calendar)
    return FlashDisk(profile, calendar) if profile.flash is not None else None


def drive(hardware: Hardware, requests: Iterable[Request], depth: int, until_ns: int | None = None) -> list[Request]:
    """Submit requests, ``depth`` at a time from time 0 on, and return them in the order of their answers.

    Ends when all are answered, before the first event after ``until_ns``, or when no event is left; in the last case
    the result is shorter than the input, because the hardware lost requests.
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
