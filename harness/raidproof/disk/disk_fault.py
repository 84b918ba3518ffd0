"""What is wrong with one drive, and what of its requests that strikes. Pure: no clock, no thread, no content."""

import errno
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from raidproof.disk.cache import SECTOR


class DiskFaultKind(Enum):
    """Ways in which a drive fails."""

    FAILED = "failed"
    """Every request ends with EIO."""
    BAD_SECTORS = "bad-sectors"
    """Reads of them end with EIO until they were written: a write remaps them."""
    SLOW = "slow"
    """Every request takes longer."""
    DROP_FLUSHES = "drop-flushes"
    """Flushes and forced writes are acknowledged, and what they covered stays in the volatile cache."""
    MISDIRECTED = "misdirected"
    """Writes land elsewhere; what stood at their place stays."""
    LOST_WRITES = "lost-writes"
    """Writes are acknowledged and never done: their place reads as before, for good."""
    SLOW_FLUSHES = "slow-flushes"
    """Every flush takes longer."""
    EARLY_FLUSHES = "early-flushes"
    """Flushes are acknowledged some time before they take effect."""
    NEWEST_UNFLUSHED = "newest-unflushed"
    """A flush leaves the newest requests in the volatile cache; the next one covers them, and leaves others."""
    OVERWRITES_UNFLUSHED = "overwrites-unflushed"
    """Flushes leave out what overwrites something durable: it stays in the volatile cache."""


PARTIAL = frozenset({DiskFaultKind.NEWEST_UNFLUSHED, DiskFaultKind.OVERWRITES_UNFLUSHED})
"""Flushes that cover a part of what they owe."""
LEAST_MISDIRECTED = 4096
"""Bytes of the smallest write that is misdirected: smaller ones are metadata of md, and the array would be gone."""


@dataclass(frozen=True)
class DiskFault:
    """Something wrong with a drive; made by the functions below."""

    kind: DiskFaultKind
    offset: int = 0
    length: int | None = None
    """The bytes from ``offset`` that are concerned; None: up to the end."""
    count: int | None = None
    """How often it strikes; None: for as long as it stands."""
    shift: int = 0
    """Bytes by which a write misses its place."""
    ms: int = 0
    us: int = 0
    """Microseconds from the acknowledgement of a flush to its effect."""
    newest: int = 0
    """Requests that a flush leaves out."""

    def touches(self, offset: int, length: int) -> bool:
        """Whether a request concerns the bytes of this disk fault."""
        return offset + length > self.offset and (self.length is None or offset < self.offset + self.length)


def failed() -> DiskFault:
    """Every request ends with EIO."""
    return DiskFault(DiskFaultKind.FAILED)


def bad_sectors(offset: int, length: int) -> DiskFault:
    """Reads of these bytes end with EIO until they were written."""
    return DiskFault(DiskFaultKind.BAD_SECTORS, offset, length)


def slow(ms: int) -> DiskFault:
    """Every request takes ``ms`` longer, of which the other drives notice nothing."""
    return DiskFault(DiskFaultKind.SLOW, ms=ms)


def drop_flushes(count: int | None = None) -> DiskFault:
    """The next ``count`` flushes are lies, or all; a forced write (FUA) is one too."""
    return DiskFault(DiskFaultKind.DROP_FLUSHES, count=count)


def slow_flushes(ms: int) -> DiskFault:
    """Every flush takes ``ms`` longer, of which the other drives notice nothing."""
    return DiskFault(DiskFaultKind.SLOW_FLUSHES, ms=ms)


def early_flushes(us: int) -> DiskFault:
    """Every flush is acknowledged ``us`` before it takes effect; forced writes (FUA) are honest."""
    return DiskFault(DiskFaultKind.EARLY_FLUSHES, us=us)


def newest_unflushed(newest: int = 2) -> DiskFault:
    """Every flush leaves the newest writes that it owes volatile until the next one."""
    return DiskFault(DiskFaultKind.NEWEST_UNFLUSHED, newest=newest)


def overwrites_unflushed(*, offset: int = 0, length: int | None = None) -> DiskFault:
    """Flushes leave out writes to those of these bytes that became durable since the disk fault began.

    First writes are flushed. What was left out stays volatile until the disk fault is gone and a flush comes.
    """
    return DiskFault(DiskFaultKind.OVERWRITES_UNFLUSHED, offset, length)


def misdirected(shift: int, count: int = 1, *, offset: int = 0, length: int | None = None) -> DiskFault:
    """The next ``count`` writes that touch these bytes land ``shift`` bytes away, where the drive has such a place."""
    return DiskFault(DiskFaultKind.MISDIRECTED, offset, length, count, shift)


def lost_writes(count: int = 1, *, offset: int = 0, length: int | None = None) -> DiskFault:
    """The next ``count`` writes that touch these bytes are acknowledged and never done."""
    return DiskFault(DiskFaultKind.LOST_WRITES, offset, length, count)


class DriveError(OSError):
    """The drive answers a request with an error."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, what)


class _Standing:
    """A disk fault with what is left of it."""

    def __init__(self, disk_fault: DiskFault, size: int) -> None:
        self.disk_fault = disk_fault
        self.left = disk_fault.count
        end = size if disk_fault.length is None else disk_fault.offset + disk_fault.length
        self.bad = [(disk_fault.offset, end)]

    def strikes(self) -> bool:
        """Use it up by one; False if there was nothing left."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0

    def remap(self, offset: int, end: int) -> None:
        """Make bytes good again."""
        pieces = [piece for first, last in self.bad for piece in ((first, min(last, offset)), (max(first, end), last))]
        self.bad = [(first, last) for first, last in pieces if first < last]


class Cached(NamedTuple):
    """A request in the volatile cache of a drive whose flushes cover a part of what they owe."""

    number: int
    """What `Member.acknowledged` was before it."""
    sequence: int
    """Its place in the write log; -1: there was none."""
    offset: int
    length: int


class DiskFaults:
    """All that is wrong with one drive of ``size`` bytes, and how often each kind struck."""

    def __init__(self, serial: str, size: int) -> None:
        self.struck: Counter[DiskFaultKind] = Counter()
        self._serial = serial
        self._size = size
        self._standing: list[_Standing] = []
        self._cached: list[Cached] = []
        """Requests that no flush has decided about."""
        self._left = 0
        """Requests that flushes have left out for good."""
        self._durable = bytearray()
        """For each sector whether it was made durable, as far as flushes that leave out overwrites need it."""

    def add(self, disk_fault: DiskFault) -> None:
        """Let something be wrong from now on."""
        self._standing.append(_Standing(disk_fault, self._size))
        if disk_fault.kind is DiskFaultKind.OVERWRITES_UNFLUSHED:
            self._durable = bytearray(-(-self._size // SECTOR))

    def clear(self) -> None:
        """Let nothing be wrong any more; how often it struck stays."""
        self._standing, self._cached, self._left, self._durable = [], [], 0, bytearray()

    @property
    def errors(self) -> int:
        """Requests that ended with an error."""
        return self.struck[DiskFaultKind.FAILED] + self.struck[DiskFaultKind.BAD_SECTORS]

    def delay_ms(self, *, flush: bool = False) -> int:
        """Return how much longer the next request takes."""
        ms = 0
        for kind in (DiskFaultKind.SLOW, *([DiskFaultKind.SLOW_FLUSHES] if flush else [])):
            more = sum(one.disk_fault.ms for one in self._of(kind))
            self.struck[kind] += more > 0
            ms += more
        return ms

    def read(self, offset: int, length: int) -> None:
        """Decide about a read.

        Raises:
            DriveError: it fails.
        """
        self._require_alive()
        for one in self._of(DiskFaultKind.BAD_SECTORS):
            if any(first < offset + length and offset < last for first, last in one.bad):
                self.struck[DiskFaultKind.BAD_SECTORS] += 1
                raise DriveError(f"{self._serial}: unreadable sectors")

    def write(self, offset: int, length: int) -> int | None:
        """Return where a write lands; None: nowhere.

        Raises:
            DriveError: it fails.
        """
        self._require_alive()
        for one in self._of(DiskFaultKind.LOST_WRITES):
            if one.disk_fault.touches(offset, length) and one.strikes():
                self.struck[DiskFaultKind.LOST_WRITES] += 1
                return None
        landing = offset
        for one in self._of(DiskFaultKind.MISDIRECTED):
            there = offset + one.disk_fault.shift
            fits = length >= LEAST_MISDIRECTED and 0 <= there <= self._size - length
            if fits and one.disk_fault.touches(offset, length) and one.strikes():
                self.struck[DiskFaultKind.MISDIRECTED] += 1
                landing = there
                break
        self._remap(landing, length)
        return landing

    def zero(self, offset: int, length: int) -> None:
        """Decide about a discard, or a request to write zeroes.

        Raises:
            DriveError: it fails.
        """
        self._require_alive()
        self._remap(offset, length)

    def flush(self) -> bool:
        """Return whether a flush, or that part of a forced write, is a lie.

        Raises:
            DriveError: it fails.
        """
        self._require_alive()
        for one in self._of(DiskFaultKind.DROP_FLUSHES):
            if one.strikes():
                self.struck[DiskFaultKind.DROP_FLUSHES] += 1
                return True
        return False

    def early_us(self) -> int:
        """Return how long before its effect a flush is acknowledged."""
        us = sum(one.disk_fault.us for one in self._of(DiskFaultKind.EARLY_FLUSHES))
        self.struck[DiskFaultKind.EARLY_FLUSHES] += us > 0
        return us

    def taken(self, request: Cached, *, forced: bool) -> None:
        """Note a change that was acknowledged; ``forced``: it is durable already."""
        if forced:
            self._make_durable(request)
        elif any(one.disk_fault.kind in PARTIAL for one in self._standing):
            self._cached.append(request)

    def partly(self) -> list[Cached] | None:
        """Return what a flush covers, in order; None: all that it owes."""
        if not any(one.disk_fault.kind in PARTIAL for one in self._standing):
            return None
        newest = sum(one.disk_fault.newest for one in self._of(DiskFaultKind.NEWEST_UNFLUSHED))
        count = max(0, len(self._cached) - newest)
        owed, later = self._cached[:count], self._cached[count:]
        kept = [one for one in owed if not self._overwrites(one)]
        for one in kept:
            self._make_durable(one)
        self._cached, self._left = later, self._left + len(owed) - len(kept)
        self.struck[DiskFaultKind.NEWEST_UNFLUSHED] += bool(later)
        self.struck[DiskFaultKind.OVERWRITES_UNFLUSHED] += len(kept) < len(owed)
        return kept if self._left or later else None

    def _overwrites(self, request: Cached) -> bool:
        if not any(one.disk_fault.touches(*request[2:]) for one in self._of(DiskFaultKind.OVERWRITES_UNFLUSHED)):
            return False
        first, last = request.offset // SECTOR, -(-(request.offset + request.length) // SECTOR)
        return self._durable.find(0, first, last) < 0

    def _make_durable(self, request: Cached) -> None:
        if self._durable:
            first, last = request.offset // SECTOR, -(-(request.offset + request.length) // SECTOR)
            self._durable[first:last] = b"\1" * (last - first)

    def _of(self, kind: DiskFaultKind) -> list[_Standing]:
        return [one for one in self._standing if one.disk_fault.kind is kind]

    def _remap(self, offset: int, length: int) -> None:
        for one in self._of(DiskFaultKind.BAD_SECTORS):
            one.remap(offset, offset + length)

    def _require_alive(self) -> None:
        if self._of(DiskFaultKind.FAILED):
            self.struck[DiskFaultKind.FAILED] += 1
            raise DriveError(f"{self._serial}: the drive has failed")
