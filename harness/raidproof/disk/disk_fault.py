"""Disk faults of one drive, and their effect on each request, computed without clock, threads and disk content."""

import errno
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from raidproof.disk.cache import SECTOR


class DiskFaultKind(Enum):
    """The kind of a disk fault."""

    FAILED = "failed"
    """Every request ends with EIO."""
    BAD_SECTORS = "bad-sectors"
    """A read of the affected sectors ends with EIO; a write remaps a sector, which is readable afterwards."""
    SLOW = "slow"
    """Every request takes longer."""
    DROP_FLUSHES = "drop-flushes"
    """The drive acknowledges flushes and FUA writes, and keeps the covered data in its volatile cache."""
    MISDIRECTED = "misdirected"
    """The drive writes data to a wrong offset; the data at the intended offset stays."""
    LOST_WRITES = "lost-writes"
    """The drive acknowledges writes and never executes them: the previous data stays."""
    SLOW_FLUSHES = "slow-flushes"
    """Every flush takes longer."""
    EARLY_FLUSHES = "early-flushes"
    """The drive acknowledges a flush some microseconds before the data is durable."""
    NEWEST_UNFLUSHED = "newest-unflushed"
    """Each flush leaves the newest requests in the volatile cache, until the next flush makes them durable."""
    OVERWRITES_UNFLUSHED = "overwrites-unflushed"
    """Each flush leaves requests that overwrite durable data in the volatile cache."""
    FLUSH_ERRORS = "flush-errors"
    """Every flush and FUA write ends with EIO, and makes no data durable."""


PARTIAL = frozenset({DiskFaultKind.NEWEST_UNFLUSHED, DiskFaultKind.OVERWRITES_UNFLUSHED})
"""Kinds of disk faults with which a flush makes only a part of the cached requests durable."""
LEAST_MISDIRECTED = 4096
"""Size in bytes of the smallest write that a disk fault misdirects.

Smaller writes are md's metadata, whose loss would destroy the array.
"""


@dataclass(frozen=True)
class DiskFault:
    """A disk fault of a drive; the functions of this module, such as `failed` and `slow`, create instances."""

    kind: DiskFaultKind
    offset: int = 0
    """First affected byte of the drive."""
    length: int | None = None
    """Number of affected bytes from ``offset`` on; None: up to the end of the drive."""
    count: int | None = None
    """Number of requests that the disk fault affects; None: unlimited."""
    shift: int = 0
    """MISDIRECTED: bytes from the intended offset of a write to its actual offset."""
    ms: int = 0
    """SLOW, SLOW_FLUSHES: additional duration of a request in milliseconds."""
    us: int = 0
    """EARLY_FLUSHES: microseconds from the acknowledgement of a flush to its effect."""
    newest: int = 0
    """NEWEST_UNFLUSHED: number of the newest requests that a flush leaves in the volatile cache."""

    def touches(self, offset: int, length: int) -> bool:
        """Return whether a request of ``length`` bytes at ``offset`` touches the affected bytes of the disk fault."""
        return offset + length > self.offset and (self.length is None or offset < self.offset + self.length)


def failed() -> DiskFault:
    """Return the disk fault with which every request ends with EIO."""
    return DiskFault(DiskFaultKind.FAILED)


def bad_sectors(offset: int, length: int, count: int | None = None) -> DiskFault:
    """Return the disk fault with which reads of these bytes end with EIO until the bytes are written.

    ``count``: number of reads that fail; None: all.
    """
    return DiskFault(DiskFaultKind.BAD_SECTORS, offset, length, count)


def slow(ms: int) -> DiskFault:
    """Return the disk fault with which every request takes ``ms`` milliseconds longer; other drives are unaffected."""
    return DiskFault(DiskFaultKind.SLOW, ms=ms)


def drop_flushes(count: int | None = None) -> DiskFault:
    """Return the disk fault that drops flushes: the drive acknowledges them and makes no data durable.

    ``count``: number of affected flushes and FUA writes; None: all.
    """
    return DiskFault(DiskFaultKind.DROP_FLUSHES, count=count)


def slow_flushes(ms: int) -> DiskFault:
    """Return the disk fault with which every flush takes ``ms`` milliseconds longer; other drives are unaffected."""
    return DiskFault(DiskFaultKind.SLOW_FLUSHES, ms=ms)


def flush_errors() -> DiskFault:
    """Return the disk fault with which every flush ends with EIO; reads and writes without FUA work."""
    return DiskFault(DiskFaultKind.FLUSH_ERRORS)


def early_flushes(us: int) -> DiskFault:
    """Return the disk fault with which the drive acknowledges every flush ``us`` microseconds before its effect.

    FUA writes are durable when they are acknowledged.
    """
    return DiskFault(DiskFaultKind.EARLY_FLUSHES, us=us)


def newest_unflushed(newest: int = 2) -> DiskFault:
    """Return the disk fault with which every flush leaves the ``newest`` writes volatile until the next flush."""
    return DiskFault(DiskFaultKind.NEWEST_UNFLUSHED, newest=newest)


def overwrites_unflushed(*, offset: int = 0, length: int | None = None) -> DiskFault:
    """Return the disk fault with which flushes leave overwrites of these bytes in the volatile cache.

    An overwrite is a write to sectors that became durable after the disk fault was set; a flush makes the first write
    to a sector durable. Overwrites stay volatile until the first flush after the removal of the disk fault.
    """
    return DiskFault(DiskFaultKind.OVERWRITES_UNFLUSHED, offset, length)


def misdirected(shift: int, count: int = 1, *, offset: int = 0, length: int | None = None) -> DiskFault:
    """Return the disk fault that misdirects the next ``count`` writes to these bytes by ``shift`` bytes.

    A write is not misdirected if it has fewer than `LEAST_MISDIRECTED` bytes, or would leave the drive.
    """
    return DiskFault(DiskFaultKind.MISDIRECTED, offset, length, count, shift)


def lost_writes(count: int = 1, *, offset: int = 0, length: int | None = None) -> DiskFault:
    """Return the disk fault with which the next ``count`` writes to these bytes are acknowledged and not executed."""
    return DiskFault(DiskFaultKind.LOST_WRITES, offset, length, count)


class DriveError(OSError):
    """A disk fault makes the drive answer a request with EIO."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, what)


class _ActiveFault:
    """A disk fault that is set on a drive, with the number of requests that it may still affect."""

    def __init__(self, disk_fault: DiskFault, size: int) -> None:
        self.disk_fault = disk_fault
        self.remaining = disk_fault.count
        end = size if disk_fault.length is None else disk_fault.offset + disk_fault.length
        self.unreadable = [(disk_fault.offset, end)]

    def count_request(self) -> bool:
        """Count one affected request; return False if the disk fault has already affected ``count`` requests."""
        if self.remaining is None:
            return True
        self.remaining -= 1
        return self.remaining >= 0

    def remap(self, offset: int, end: int) -> None:
        """Make the bytes from ``offset`` to ``end`` readable again."""
        pieces = [
            piece for first, last in self.unreadable for piece in ((first, min(last, offset)), (max(first, end), last))
        ]
        self.unreadable = [(first, last) for first, last in pieces if first < last]


class Cached(NamedTuple):
    """A write or discard in the volatile cache of a drive."""

    number: int
    """Value of `Member.acknowledged` before the request."""
    sequence: int
    """The request's sequence number in the write log; -1: no log was open."""
    offset: int
    length: int


class DiskFaults:
    """All disk faults of one drive of ``size`` bytes, and the number of requests that each kind has affected."""

    def __init__(self, serial: str, size: int) -> None:
        self.struck: Counter[DiskFaultKind] = Counter()
        """Number of affected requests by kind of disk fault."""
        self._serial = serial
        self._size = size
        self._active: list[_ActiveFault] = []
        self._cached: list[Cached] = []
        """Acknowledged requests that no flush has covered yet."""
        self._omitted = 0
        """Number of overwrites that flushes have left in the volatile cache."""
        self._durable = bytearray()
        """For each sector 1 if the sector was made durable, else 0; maintained only for OVERWRITES_UNFLUSHED."""

    def add(self, disk_fault: DiskFault) -> None:
        """Set a disk fault in addition to the present disk faults."""
        self._active.append(_ActiveFault(disk_fault, self._size))
        if disk_fault.kind is DiskFaultKind.OVERWRITES_UNFLUSHED:
            self._durable = bytearray(-(-self._size // SECTOR))

    def clear(self) -> None:
        """Remove all disk faults; the counters of affected requests stay."""
        self._active, self._cached, self._omitted, self._durable = [], [], 0, bytearray()

    @property
    def errors(self) -> int:
        """Number of requests that a disk fault has ended with EIO."""
        return sum(
            self.struck[kind] for kind in (DiskFaultKind.FAILED, DiskFaultKind.BAD_SECTORS, DiskFaultKind.FLUSH_ERRORS)
        )

    def delay_ms(self, *, flush: bool = False) -> int:
        """Return the additional duration of a request in ms; ``flush``: the request is a flush."""
        ms = 0
        for kind in (DiskFaultKind.SLOW, *([DiskFaultKind.SLOW_FLUSHES] if flush else [])):
            more = sum(one.disk_fault.ms for one in self._of(kind))
            self.struck[kind] += more > 0
            ms += more
        return ms

    def read(self, offset: int, length: int) -> None:
        """Apply the disk faults to a read.

        Raises:
            DriveError: the drive has failed, or the read touches bad sectors.
        """
        self._raise_if_failed()
        for one in self._of(DiskFaultKind.BAD_SECTORS):
            touched = any(first < offset + length and offset < last for first, last in one.unreadable)
            if touched and one.count_request():
                self.struck[DiskFaultKind.BAD_SECTORS] += 1
                raise DriveError(f"{self._serial}: a read of {length} bytes at offset {offset} touches bad sectors")

    def write(self, offset: int, length: int) -> int | None:
        """Return the offset to which the drive writes the data; None if the write is lost.

        Raises:
            DriveError: the drive has failed.
        """
        self._raise_if_failed()
        for one in self._of(DiskFaultKind.LOST_WRITES):
            if one.disk_fault.touches(offset, length) and one.count_request():
                self.struck[DiskFaultKind.LOST_WRITES] += 1
                return None
        landing = offset
        for one in self._of(DiskFaultKind.MISDIRECTED):
            there = offset + one.disk_fault.shift
            fits = length >= LEAST_MISDIRECTED and 0 <= there <= self._size - length
            if fits and one.disk_fault.touches(offset, length) and one.count_request():
                self.struck[DiskFaultKind.MISDIRECTED] += 1
                landing = there
                break
        self._remap(landing, length)
        return landing

    def zero(self, offset: int, length: int) -> None:
        """Apply the disk faults to a discard or write-zeroes request.

        Raises:
            DriveError: the drive has failed.
        """
        self._raise_if_failed()
        self._remap(offset, length)

    def flush(self) -> bool:
        """Return whether a disk fault drops a flush or the FUA of a write.

        Raises:
            DriveError: the drive has failed, or its flushes fail.
        """
        self._raise_if_failed()
        if self._of(DiskFaultKind.FLUSH_ERRORS):
            self.struck[DiskFaultKind.FLUSH_ERRORS] += 1
            raise DriveError(f"{self._serial}: a flush failed")
        for one in self._of(DiskFaultKind.DROP_FLUSHES):
            if one.count_request():
                self.struck[DiskFaultKind.DROP_FLUSHES] += 1
                return True
        return False

    def early_us(self) -> int:
        """Return the time in microseconds between the acknowledgement of a flush and its effect."""
        us = sum(one.disk_fault.us for one in self._of(DiskFaultKind.EARLY_FLUSHES))
        self.struck[DiskFaultKind.EARLY_FLUSHES] += us > 0
        return us

    def record_change(self, request: Cached, *, forced: bool) -> None:
        """Track an acknowledged write or discard; ``forced``: FUA has made the request durable."""
        if forced:
            self._make_durable(request)
        elif any(one.disk_fault.kind in PARTIAL for one in self._active):
            self._cached.append(request)

    def requests_to_flush(self) -> list[Cached] | None:
        """Return the requests that a flush makes durable, in order; None: no disk fault makes the flush partial."""
        if not any(one.disk_fault.kind in PARTIAL for one in self._active):
            return None
        newest = sum(one.disk_fault.newest for one in self._of(DiskFaultKind.NEWEST_UNFLUSHED))
        count = max(0, len(self._cached) - newest)
        owed, later = self._cached[:count], self._cached[count:]
        kept = [one for one in owed if not self._overwrites(one)]
        for one in kept:
            self._make_durable(one)
        self._cached, self._omitted = later, self._omitted + len(owed) - len(kept)
        self.struck[DiskFaultKind.NEWEST_UNFLUSHED] += bool(later)
        self.struck[DiskFaultKind.OVERWRITES_UNFLUSHED] += len(kept) < len(owed)
        return kept if self._omitted or later else None

    def _overwrites(self, request: Cached) -> bool:
        if not any(one.disk_fault.touches(*request[2:]) for one in self._of(DiskFaultKind.OVERWRITES_UNFLUSHED)):
            return False
        first, last = request.offset // SECTOR, -(-(request.offset + request.length) // SECTOR)
        return self._durable.find(0, first, last) < 0

    def _make_durable(self, request: Cached) -> None:
        if self._durable:
            first, last = request.offset // SECTOR, -(-(request.offset + request.length) // SECTOR)
            self._durable[first:last] = b"\1" * (last - first)

    def _of(self, kind: DiskFaultKind) -> list[_ActiveFault]:
        return [one for one in self._active if one.disk_fault.kind is kind]

    def _remap(self, offset: int, length: int) -> None:
        for one in self._of(DiskFaultKind.BAD_SECTORS):
            one.remap(offset, offset + length)

    def _raise_if_failed(self) -> None:
        if self._of(DiskFaultKind.FAILED):
            self.struck[DiskFaultKind.FAILED] += 1
            raise DriveError(f"{self._serial}: the drive has failed")
