"""What several disks hang on: one path for all of them, and perhaps a write cache with a battery."""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from raidproof.disk.timing.answer import answer_at
from raidproof.disk.timing.calendar import Calendar
from raidproof.disk.timing.extents import Extents
from raidproof.disk.timing.interface import Interface
from raidproof.disk.timing.request import Op, Request
from raidproof.disk.timing.usage import Usage

_DESTAGED = 4
"""Writes that a controller has under way to each disk while it empties its cache."""
_PIECE = 1 << 20
_CANDIDATES = 1


class Battery(Enum):
    """What keeps a controller's cache through a power cut."""

    GOOD = "good"
    FAILED = "failed"
    """It knows, and writes through."""
    UNNOTICED = "unnoticed"
    """It does not know, and goes on as if all were well."""


@dataclass(frozen=True)
class ControllerSpec:
    """One controller. ``bandwidth_mb_s`` in 10^6 bytes a second, both directions together; ``cache`` in bytes."""

    name: str
    bandwidth_mb_s: float | None = None
    commands_per_s: float | None = None
    cache: int = 0
    battery: Battery = Battery.GOOD


class Disk(Protocol):
    """What a controller needs of a disk."""

    usage: Usage

    def submit(self, request: Request, now: int) -> None:
        """Take a request at a time; it is answered through its ``then``."""


class _Behind:
    """One disk behind a controller: what waits in the cache for it."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.dirty = Extents()
        self.under_way = 0
        self.at = 0


class Controller:
    """One controller and its disks. Data passes its path before a disk writes it, and after a disk has read it."""

    def __init__(self, spec: ControllerSpec, calendar: Calendar) -> None:
        self.usage = Usage()
        self._calendar = calendar
        self._path = Interface(spec.bandwidth_mb_s, spec.commands_per_s)
        self._room = spec.cache if spec.battery is not Battery.FAILED else 0
        self._held = 0
        self._for_room: deque[tuple[_Behind, Request]] = deque()
        self._disks: dict[int, _Behind] = {}

    def attach(self, member: int, disk: Disk) -> None:
        """Hang a disk on it."""
        self._disks[member] = _Behind(disk)

    def submit(self, request: Request, now: int) -> None:
        """Take a request at a time; it is answered through its ``then``."""
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
        """Carry a write's data, or a bare command."""
        passed = self._path.pass_through(length, now)
        self.usage.work(passed - self._path.needed_ns(length), passed)
        return passed

    def _return(self, length: int, since: int, now: int) -> int:
        """Carry what a disk has read since then: its bytes pass while they are read, and wait only behind others."""
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

            # Not into the disk's own cache: what left the controller's must be on the medium.
            inner = Request(Op.WRITE, start, length, fua=True)
            inner.then = written
            behind.disk.submit(inner, now)

    def _answer(self, request: Request, now: int) -> None:
        answer_at(self._calendar, self.usage, request, now)
