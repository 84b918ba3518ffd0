"""One member disk, the state that all disks of a lab share, and NBD connections: requests, counters, disk faults."""

import errno
import threading
from collections.abc import Callable, Sequence
from random import Random
from threading import Timer

from raidproof.core.waiting import now_ns, pause
from raidproof.disk.cache import CacheMode, CutPolicy, CutResult, Member
from raidproof.disk.disk_fault import Cached, DiskFault, DiskFaults
from raidproof.disk.messages import Counters, MemberSpec, Power, Struck
from raidproof.disk.sparse_image import Buffer
from raidproof.disk.timekeeper import Timekeeper
from raidproof.disk.timing.request import Op
from raidproof.disk.writelog import ALL_MEMBERS, Flag, Kind, LogWriter, pack_kept


class Shelf:
    """The state that all disks of a lab share: lock, clock, power, simulated time and write log."""

    def __init__(self, clock: Callable[[], int] = now_ns) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.log: LogWriter | None = None
        self.epoch = 0
        """Number of power cuts so far; a connection belongs to the epoch in which it was made."""
        self.serving: int | None = 0
        """The epoch that is served; ``None`` without power."""
        self.power = Power.ON
        self.waiting = 0
        """Number of requests that wait for the end of a cut."""
        self.timekeeper: Timekeeper | None = None
        """Simulates service times; None where no disk has a timing profile."""
        self._released = threading.Condition(self.lock)
        self._log_error: str | None = None

    def note(self, kind: Kind, member: int = ALL_MEMBERS, *, data: bytes = b"", at_ns: int | None = None) -> int:
        """Log an event that is no request, under the lock; return its instant."""
        at = self.clock() if at_ns is None else at_ns
        self.record(kind, 0, member, (0, 0), (at, at), data=data)
        return at

    def record(
        self,
        kind: Kind,
        flags: int,
        member: int,
        span: tuple[int, int],
        times: tuple[int, int],
        *,
        data: Buffer = b"",
    ) -> None:
        """Append a record to the log, if one is open, under the lock; on a write error give up the log only.

        ``span``: offset, length; ``times``: issued, completed.
        """
        log = self.log
        if log is None:
            return
        try:
            if kind is Kind.WRITE:
                log.write(flags, member, span[0], times, data)
            else:
                log.note(kind, flags, member, span, times, data=bytes(data))
        except OSError as error:
            self._log_error = f"writing {log.path} failed: {error.strerror}"
            self.log = None
            log.abandon()

    def wait_for_the_cut(self, epoch: int) -> None:
        """Hold a request, under the lock, while its guest may be alive to see an error."""
        self.waiting += 1
        while self.power is Power.FROZEN and epoch == self.epoch:
            self._released.wait()
        self.waiting -= 1


class Drive:
    """One member with its counters and disk faults."""

    def __init__(self, index: int, spec: MemberSpec) -> None:
        self.index = index
        self.spec = spec
        self.member = Member(spec.serial, spec.size, spec.mode)
        self.disk_faults: DiskFaults | None = None
        """The disk faults; None without any, so that requests to a working drive cost only this test."""
        self.clear_counters()

    def clear_counters(self) -> None:
        """Reset the counters, and remove all disk faults."""
        self.reads = self.writes = self.flushes = self.fua = self.discards = self.zeroes = self.lied = 0
        self.read_bytes = self.written_bytes = self.discarded_bytes = 0
        self._history = DiskFaults(self.spec.serial, self.spec.size)
        self.disk_faults = None

    def set_disk_fault(self, disk_fault: DiskFault) -> None:
        """Set a disk fault."""
        self.disk_faults = self._history
        self.disk_faults.add(disk_fault)

    def clear_disk_faults(self) -> None:
        """Remove the disk faults; their counters stay."""
        self._history.clear()
        self.disk_faults = None

    def exchange(self, other: "Drive") -> None:
        """Exchange the content with another drive; each keeps its serial and its mode."""
        modes = self.member.mode, other.member.mode
        self.member, other.member = other.member, self.member
        for drive, mode in zip((self, other), modes, strict=True):
            drive.member.serial = drive.spec.serial
            drive.member.mode = mode

    def counters(self) -> Counters:
        """Return the counters."""
        member = self.member
        return Counters(
            serial=member.serial,
            reads=self.reads,
            writes=self.writes,
            flushes=self.flushes,
            fua=self.fua,
            discards=self.discards,
            zeroes=self.zeroes,
            read_bytes=self.read_bytes,
            written_bytes=self.written_bytes,
            discarded_bytes=self.discarded_bytes,
            lied=self.lied,
            pending=member.pending,
            pending_bytes=member.pending_bytes,
            errors=self._history.errors,
            struck=tuple(Struck(kind, times) for kind, times in self._history.struck.items() if times),
        )

    def cut(self, policy: CutPolicy, seed: int) -> CutResult:
        """Cut the power; the result depends on the seed, the serial and the pending requests."""
        return cut(self.member, policy, seed)


def cut(member: Member, policy: CutPolicy, seed: int) -> CutResult:
    """Cut the power of a member; the random choices depend on the seed and the serial only."""
    return member.cut(policy, Random(f"{seed}/{member.serial}"))  # noqa: S311  a seeded choice, no secret


class PowerLost(OSError):
    """A request reached a disk without power, or came over a connection from before the power cut."""

    def __init__(self, serial: str) -> None:
        super().__init__(errno.ESHUTDOWN, f"{serial}: no power")


class Connection:
    """A connection to one member: executes its NBD requests."""

    def __init__(self, shelf: Shelf, drive: Drive, epoch: int) -> None:
        self.shelf = shelf
        self.drive = drive
        self.epoch = epoch
        self.serial = drive.spec.serial
        self.size = drive.spec.size
        self.cacheless = drive.member.mode is CacheMode.NONE
        """Whether the disk advertised no write cache when this connection was made."""

    def read(self, buffer: memoryview, offset: int) -> None:
        """Fill ``buffer`` from the disk.

        Raises:
            PowerLost: there is no power.
            DriveError: a disk fault makes the request fail.
        """
        shelf, drive = self.shelf, self.drive
        if (disk_faults := drive.disk_faults) is not None:
            self._linger(disk_faults)
        self._take_time(Op.READ, (offset, len(buffer)))
        with shelf.lock:
            if shelf.serving != self.epoch:
                shelf.wait_for_the_cut(self.epoch)
                raise PowerLost(self.serial)
            if disk_faults is not None:
                disk_faults.read(offset, len(buffer))
            drive.member.read_into(buffer, offset)
            drive.reads += 1
            drive.read_bytes += len(buffer)

    def write(self, data: Buffer, offset: int, fua: bool) -> None:
        """Execute a write.

        Raises:
            PowerLost: there is no power.
            DriveError: a disk fault makes the request fail.
        """
        shelf, drive = self.shelf, self.drive
        issued = shelf.clock()
        if (disk_faults := drive.disk_faults) is not None:
            self._linger(disk_faults)
        self._take_time(Op.WRITE, (offset, len(data)), fua=fua)
        with shelf.lock:
            if shelf.serving != self.epoch:
                self._refuse(Kind.WRITE, fua, (offset, len(data)), issued, data=data)
            drive.writes += 1
            drive.written_bytes += len(data)
            lied = None
            if disk_faults is not None:
                landing = disk_faults.write(offset, len(data))
                lied = self._lies(disk_faults) if fua else None
                if landing != offset:
                    self._tell_of(offset, len(data), landing)
                    if landing is None:
                        return
                    offset = landing
            self._taken(disk_faults, (offset, len(data)), forced=fua and not lied)
            drive.member.write(data, offset, fua, lied)
            flags = self._promised(lied) if fua else 0
            if shelf.log is not None:
                span = (offset, len(data))
                shelf.record(Kind.WRITE, flags, drive.index, span, (issued, shelf.clock()), data=data)

    def flush(self) -> None:
        """Execute a FLUSH.

        Raises:
            PowerLost: there is no power.
            DriveError: a disk fault makes the request fail.
        """
        shelf, drive = self.shelf, self.drive
        issued = shelf.clock()
        if (disk_faults := drive.disk_faults) is not None:
            self._linger(disk_faults, flush=True)
        covered = self._take_time(Op.FLUSH, (0, 0))
        with shelf.lock:
            if shelf.serving != self.epoch:
                self._refuse(Kind.FLUSH, False, (0, 0), issued)
            drive.flushes += 1
            lied = drive.member.mode is CacheMode.LYING if disk_faults is None else self._lies(disk_faults)
            kept: Sequence[Cached] = ()
            if disk_faults is not None and not lied:
                lied, kept = self._lies_in_part(disk_faults)
            drive.member.flush(covered, lied, [one.number for one in kept])
            drive.lied += lied
            flags, times = Flag.LIED if lied else 0, (issued, shelf.clock())
            shelf.record(Kind.FLUSH, flags, drive.index, (0, 0), times, data=pack_kept([one.sequence for one in kept]))

    def discard(self, offset: int, length: int, fua: bool) -> None:
        """Execute a discard: the region reads as zeroes afterwards.

        Raises:
            PowerLost: there is no power.
            DriveError: a disk fault makes the request fail.
        """
        self._zero(Kind.DISCARD, offset, length, fua)

    def write_zeroes(self, offset: int, length: int, fua: bool) -> None:
        """Execute a write-zeroes request.

        Raises:
            PowerLost: there is no power.
            DriveError: a disk fault makes the request fail.
        """
        self._zero(Kind.ZERO, offset, length, fua)

    def _zero(self, kind: Kind, offset: int, length: int, fua: bool) -> None:
        shelf, drive = self.shelf, self.drive
        issued = shelf.clock()
        if (disk_faults := drive.disk_faults) is not None:
            self._linger(disk_faults)
        self._take_time(Op.TRIM, (offset, length), fua=fua)
        with shelf.lock:
            if shelf.serving != self.epoch:
                self._refuse(kind, fua, (offset, length), issued)
            lied = None
            if disk_faults is not None:
                disk_faults.zero(offset, length)
                lied = self._lies(disk_faults) if fua else None
            self._taken(disk_faults, (offset, length), forced=fua and not lied)
            drive.member.zero(offset, length, fua, lied)
            flags = self._promised(lied) if fua else 0
            drive.discards += kind is Kind.DISCARD
            drive.zeroes += kind is Kind.ZERO
            drive.discarded_bytes += length
            shelf.record(kind, flags, drive.index, (offset, length), (issued, shelf.clock()))

    def _take_time(self, op: Op, span: tuple[int, int], *, fua: bool = False) -> int | None:
        """Wait for the simulated service time; the request is executed afterwards.

        Return `Member.acknowledged` at the arrival of the request, for a flush; None without simulated times.
        """
        shelf = self.shelf
        if shelf.timekeeper is None or not shelf.timekeeper.running:
            return None
        with shelf.lock:
            if shelf.serving != self.epoch or not shelf.timekeeper.running:
                return None
            covered = self.drive.member.acknowledged
            ticket = shelf.timekeeper.submit(self.drive.index, op, span, fua=fua)
        ticket.served.acquire()
        with shelf.lock:
            shelf.timekeeper.account(ticket)
        return covered

    def _linger(self, disk_faults: DiskFaults, *, flush: bool = False) -> None:
        """Delay a request by its disk faults, without blocking other requests."""
        with self.shelf.lock:
            ms = disk_faults.delay_ms(flush=flush)
        if ms:
            pause(ms / 1000)

    def _lies(self, disk_faults: DiskFaults) -> bool:
        """Return whether a flush now would lie, because of a disk fault or of the mode."""
        return disk_faults.flush() or self.drive.member.mode is CacheMode.LYING

    def _taken(self, disk_faults: DiskFaults | None, span: tuple[int, int], *, forced: bool) -> None:
        """Note a change that is about to be made, if a disk fault needs the note."""
        if disk_faults is not None:
            sequence = self.shelf.log.records if self.shelf.log is not None else -1
            disk_faults.taken(Cached(self.drive.member.acknowledged, sequence, *span), forced=forced)

    def _lies_in_part(self, disk_faults: DiskFaults) -> tuple[bool, Sequence[Cached]]:
        """Return whether a disk fault makes a flush incomplete, and the requests that the flush makes durable now."""
        if us := disk_faults.early_us():
            effect = Timer(us / 1e6, self._flush_late)
            effect.daemon = True
            effect.start()
            return True, ()
        kept = disk_faults.partly()
        return kept is not None, kept or ()

    def _flush_late(self) -> None:
        """Execute a flush that was acknowledged before, unless the power has gone meanwhile."""
        shelf, drive = self.shelf, self.drive
        issued = shelf.clock()
        with shelf.lock:
            if shelf.serving == self.epoch:
                drive.member.flush(lied=False)
                shelf.record(Kind.FLUSH, 0, drive.index, (0, 0), (issued, shelf.clock()))

    def _tell_of(self, offset: int, length: int, landing: int | None) -> None:
        cut_result = "is lost" if landing is None else f"lands at {landing}"
        text = f"{self.serial}: a write of {length} bytes at {offset} {cut_result}"
        self.shelf.note(Kind.MARK, data=text.encode())

    def _promised(self, lied: bool | None) -> int:
        lied = self.drive.member.mode is CacheMode.LYING if lied is None else lied
        self.drive.fua += 1
        self.drive.lied += lied
        return int(Flag.FUA | Flag.LIED if lied else Flag.FUA)

    def _refuse(self, kind: Kind, fua: bool, span: tuple[int, int], issued: int, *, data: Buffer = b"") -> None:
        """Wait until the guest is dead, log the request as in flight at the cut, and fail."""
        shelf = self.shelf
        caught = shelf.serving is None and self.epoch == shelf.epoch
        shelf.wait_for_the_cut(self.epoch)
        if caught:
            flags = int(Flag.IN_FLIGHT | Flag.FUA if fua else Flag.IN_FLIGHT)
            shelf.record(kind, flags, self.drive.index, span, (issued, 0), data=data)
        raise PowerLost(self.serial)
