"""Disk faults of one drive, and the requests that they affect. Pure: no clock, no thread, no content."""

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
    """Reads of these sectors end with EIO until they are written: a write remaps them."""
    SLOW = "slow"
    """Every request takes longer."""
    DROP_FLUSHES = "drop-flushes"
    """Flushes and FUA writes are acknowledged, and the data that they covered stays in the volatile cache."""
    MISDIRECTED = "misdirected"
    """Writes land elsewhere; the data at the intended place stays."""
    LOST_WRITES = "lost-writes"
    """Writes are acknowledged and never done: the old data stays for good."""
    SLOW_FLUSHES = "slow-flushes"
    """Every flush takes longer."""
    EARLY_FLUSHES = "early-flushes"
    """Flushes are acknowledged some time before they take effect."""
    NEWEST_UNFLUSHED = "newest-unflushed"
    """A flush leaves the newest requests in the volatile cache; the next one covers them, and leaves newer ones."""
    OVERWRITES_UNFLUSHED = "overwrites-unflushed"
    """Flushes leave out requests that overwrite durable data: these stay in the volatile cache."""


PARTIAL = frozenset({DiskFaultKind.NEWEST_UNFLUSHED, DiskFaultKind.OVERWRITES_UNFLUSHED})
"""Kinds whose flushes cover a part of what they must cover."""
LEAST_MISDIRECTED = 4096
"""Bytes of the smallest write that is misdirected: smaller ones are md's metadata, whose loss destroys the array."""


@dataclass(frozen=True)
class DiskFault:
    """A disk fault of a drive; made by the functions below."""

    kind: DiskFaultKind
    offset: int = 0
    length: int | None = None
    """Number of affected bytes from ``offset``; None: up to the end."""
    count: int | None = None
    """Number of requests that it affects; None: unlimited."""
    shift: int = 0
    """Bytes from the intended place of a write to its actual place."""
    ms: int = 0
    us: int = 0
    """Microseconds from the acknowledgement of a flush to its effect."""
    newest: int = 0
    """Requests that a flush leaves out."""

    def touches(self, offset: int, length: int) -> bool:
        """Return whether a request touches the bytes of this disk fault."""
        return offset + length > self.offset and (self.length is None or offset < self.offset + self.length)


def failed() -> DiskFault:
    """Return a disk fault: every request ends with EIO."""
    return DiskFault(DiskFaultKind.FAILED)


def bad_sectors(offset: int, length: int) -> DiskFault:
    """Return a disk fault: reads of these bytes end with EIO until they are written."""
    return DiskFault(DiskFaultKind.BAD_SECTORS, offset, length)


def slow(ms: int) -> DiskFault:
    """Return a disk fault: every request takes ``ms`` longer, without an effect on other drives."""
    return DiskFault(DiskFaultKind.SLOW, ms=ms)


def drop_flushes(count: int | None = None) -> DiskFault:
    """Return a disk fault: the next ``count`` flushes and FUA writes, or all, are acknowledged and not done."""
    return DiskFault(DiskFaultKind.DROP_FLUSHES, count=count)


def slow_flushes(ms: int) -> DiskFault:
    """Return a disk fault: every flush takes ``ms`` longer, without an effect on other drives."""
    return DiskFault(DiskFaultKind.SLOW_FLUSHES, ms=ms)


def early_flushes(us: int) -> DiskFault:
    """Return a disk fault: every flush is acknowledged ``us`` before it takes effect; FUA writes are honoured."""
    return DiskFault(DiskFaultKind.EARLY_FLUSHES, us=us)


def newest_unflushed(newest: int = 2) -> DiskFault:
    """Return a disk fault: every flush leaves the ``newest`` writes volatile until the next flush."""
    return DiskFault(DiskFaultKind.NEWEST_UNFLUSHED, newest=newest)


def overwrites_unflushed(*, offset: int = 0, length: int | None = None) -> DiskFault:
    """Return a disk fault: flushes leave out overwrites of data, in these bytes, that became durable since it was set.

    First writes are flushed. Left-out requests stay volatile until a flush after the disk fault is removed.
    """
    return DiskFault(DiskFaultKind.OVERWRITES_UNFLUSHED, offset, length)


def misdirected(shift: int, count: int = 1, *, offset: int = 0, length: int | None = None) -> DiskFault:
    """Return a disk fault: the next ``count`` writes to these bytes land ``shift`` bytes away, where possible."""
    return DiskFault(DiskFaultKind.MISDIRECTED, offset, length, count, shift)


def lost_writes(count: int = 1, *, offset: int = 0, length: int | None = None) -> DiskFault:
    """Return a disk fault: the next ``count`` writes to these bytes are acknowledged and never done."""
    return DiskFault(DiskFaultKind.LOST_WRITES, offset, length, count)


class DriveError(OSError):
    """The drive answers a request with EIO."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, what)


class _Standing:
    """A disk fault with its remaining count."""

    def __init__(self, disk_fault: DiskFault, size: int) -> None:
        self.disk_fault = disk_fault
        self.left = disk_fault.count
        end = size if disk_fault.length is None else disk_fault.offset + disk_fault.length
        self.bad = [(disk_fault.offset, end)]

    def strikes(self) -> bool:
        """Use up one count; return False if none was left."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0

    def remap(self, offset: int, end: int) -> None:
        """Make bytes readable again."""
        pieces = [piece for first, last in self.bad for piece in ((first, min(last, offset)), (max(first, end), last))]
        self.bad = [(first, last) for first, last in pieces if first < last]


class Cached(NamedTuple):
    """A request in the volatile cache of a drive whose flushes are incomplete."""

    number: int
    """`Member.acknowledged` before the request."""
    sequence: int
    """Its sequence number in the write log; -1: no log was open."""
    offset: int
    length: int


class DiskFaults:
    """All disk faults of one drive of ``size`` bytes, and the number of requests that each kind has affected."""

    def __init__(self, serial: str, size: int) -> None:
        self.struck: Counter[DiskFaultKind] = Counter()
        self._serial = serial
        self._size = size
        self._standing: list[_Standing] = []
        self._cached: list[Cached] = []
        """Requests that no flush has covered or left out yet."""
        self._left = 0
        """Number of requests that flushes have left out for good."""
        self._durable = bytearray()
        """For each sector whether it was made durable; maintained only for OVERWRITES_UNFLUSHED."""

    def add(self, disk_fault: DiskFault) -> None:
        """Add a disk fault."""
        self._standing.append(_Standing(disk_fault, self._size))
        if disk_fault.kind is DiskFaultKind.OVERWRITES_UNFLUSHED:
            self._durable = bytearray(-(-self._size // SECTOR))

    def clear(self) -> None:
        """Remove all disk faults; the counters stay."""
        self._standing, self._cached, self._left, self._durable = [], [], 0, bytearray()

    @property
    def errors(self) -> int:
        """Number of requests that ended with an error."""
        return self.struck[DiskFaultKind.FAILED] + self.struck[DiskFaultKind.BAD_SECTORS]

    def delay_ms(self, *, flush: bool = False) -> int:
        """Return the additional duration of the next request in ms."""
        ms = 0
        for kind in (DiskFaultKind.SLOW, *([DiskFaultKind.SLOW_FLUSHES] if flush else [])):
            more = sum(one.disk_fault.ms for one in self._of(kind))
            self.struck[kind] += more > 0
            ms += more
        return ms

    def read(self, offset: int, length: int) -> None:
        """Apply the disk faults to a read.

        Raises:
            DriveError: the read fails.
        """
        self._require_alive()
        for one in self._of(DiskFaultKind.BAD_SECTORS):
            if any(first < offset + length and offset < last for first, last in one.bad):
                self.struck[DiskFaultKind.BAD_SECTORS] += 1
                raise DriveError(f"{self._serial}: unreadable sectors")

    def write(self, offset: int, length: int) -> int | None:
        """Return the offset at which a write lands; None if it is lost.

        Raises:
            DriveError: the write fails.
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
        """Apply the disk faults to a discard or write-zeroes request.

        Raises:
            DriveError: the request fails.
        """
        self._require_alive()
        self._remap(offset, length)

    def flush(self) -> bool:
        """Return whether a flush, or the flush of a FUA write, is dropped.

        Raises:
            DriveError: the flush fails.
        """
        self._require_alive()
        for one in self._of(DiskFaultKind.DROP_FLUSHES):
            if one.strikes():
                self.struck[DiskFaultKind.DROP_FLUSHES] += 1
                return True
        return False

    def early_us(self) -> int:
        """Return the microseconds by which a flush is acknowledged before its effect."""
        us = sum(one.disk_fault.us for one in self._of(DiskFaultKind.EARLY_FLUSHES))
        self.struck[DiskFaultKind.EARLY_FLUSHES] += us > 0
        return us

    def taken(self, request: Cached, *, forced: bool) -> None:
        """Note an acknowledged change; ``forced``: it is durable already."""
        if forced:
            self._make_durable(request)
        elif any(one.disk_fault.kind in PARTIAL for one in self._standing):
            self._cached.append(request)

    def partly(self) -> list[Cached] | None:
        """Return the requests that a flush covers, in order; None: all that it must cover."""
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
