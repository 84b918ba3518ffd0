"""NBD connections to member disks, the drives that they access, and the engine state that all drives share."""

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

FENCED = -1
"""Value of ``epoch`` in a connection that is never served again."""


class EngineState:
    """The state that all disks of a lab share: lock, clock, power, simulated time and write log.

    `raidproof.disk.engine.Engine` inherits from this class and controls the state.
    """

    def __init__(self, clock: Callable[[], int] = now_ns) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.log: LogWriter | None = None
        self.epoch = 0
        """Number of power cuts so far; each connection stores the epoch in which it was made."""
        self.serving: int | None = 0
        """Value of ``epoch`` in the connections that are served; None while the disks are frozen or have no power."""
        self.power = Power.ON
        self.waiting = 0
        """Number of requests that wait until the current power cut is resolved."""
        self.timekeeper: Timekeeper | None = None
        """Delays requests by simulated service times; None if no disk has a timing profile."""
        self._released = threading.Condition(self.lock)
        self._log_error: str | None = None

    def note(self, kind: Kind, member: int = ALL_MEMBERS, *, data: bytes = b"", at_ns: int | None = None) -> int:
        """Append an event that is not a request to the write log; return the event's instant (CLOCK_MONOTONIC, ns).

        The caller holds the lock.
        """
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
        """Append a record to the write log, if a log is open. The caller holds the lock.

        A write error closes the log, and the disks keep running. ``span``: (offset, length) in bytes. ``times``:
        (issued, completed), CLOCK_MONOTONIC, ns.
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
            self._log_error = f"cannot write the write log {log.path}: {error.strerror}"
            self.log = None
            log.abandon()

    def wait_for_resolve(self, epoch: int) -> None:
        """Hold a request until the power cut of its epoch is resolved. The caller holds the lock.

        Until the cut is resolved, the guest may still run, and would see an I/O error that a real power cut does not
        cause.
        """
        self.waiting += 1
        while self.power is Power.FROZEN and epoch == self.epoch:
            self._released.wait()
        self.waiting -= 1


class Drive:
    """A simulated drive: one member disk with its request counters and disk faults."""

    def __init__(self, index: int, spec: MemberSpec) -> None:
        self.index = index
        self.spec = spec
        self.member = Member(spec.serial, spec.size, spec.mode)
        self.disk_faults: DiskFaults | None = None
        """The drive's disk faults. None: there are none, and a request needs only one comparison to skip them."""
        self.clear_counters()

    def clear_counters(self) -> None:
        """Set the drive's counters to 0, and remove its disk faults."""
        self.reads = self.writes = self.flushes = self.fua = self.discards = self.zeroes = self.lied = 0
        self.read_bytes = self.written_bytes = self.discarded_bytes = 0
        self._fault_state = DiskFaults(self.spec.serial, self.spec.size)
        self.disk_faults = None

    def set_disk_fault(self, disk_fault: DiskFault) -> None:
        """Add a disk fault to the drive."""
        self.disk_faults = self._fault_state
        self.disk_faults.add(disk_fault)

    def clear_disk_faults(self) -> None:
        """Remove the drive's disk faults; the counters of affected requests stay."""
        self._fault_state.clear()
        self.disk_faults = None

    def exchange(self, other: "Drive") -> None:
        """Exchange the content with another drive; each drive keeps its serial number and cache mode."""
        modes = self.member.mode, other.member.mode
        self.member, other.member = other.member, self.member
        for drive, mode in zip((self, other), modes, strict=True):
            drive.member.serial = drive.spec.serial
            drive.member.mode = mode

    def counters(self) -> Counters:
        """Return the drive's counters."""
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
            errors=self._fault_state.errors,
            struck=tuple(Struck(kind, times) for kind, times in self._fault_state.struck.items() if times),
        )

    def cut(self, policy: CutPolicy, seed: int) -> CutResult:
        """Cut the drive's power; the result depends on the seed, the serial number and the pending requests."""
        return cut(self.member, policy, seed)


def cut(member: Member, policy: CutPolicy, seed: int) -> CutResult:
    """Cut the power of a member; the random choices depend only on the seed and the serial number."""
    return member.cut(policy, choices(member, seed))


def choices(member: Member, seed: int) -> Random:
    """Return the random numbers of a power cut of a member."""
    return Random(f"{seed}/{member.serial}")  # noqa: S311  a seeded choice, no secret


class PowerLost(OSError):
    """A request fails: the disk has no power, or the connection was made before the last power cut."""

    def __init__(self, serial: str) -> None:
        super().__init__(errno.ESHUTDOWN, f"{serial}: the disk has no power")


class Connection:
    """One NBD connection to one member: executes the client's requests."""

    def __init__(self, engine: EngineState, drive: Drive, epoch: int, machine: str = "") -> None:
        self.engine = engine
        self.drive = drive
        self.epoch = epoch
        self.machine = machine
        """The machine that uses the connection, by name; empty if only one machine uses the disks."""
        self.serial = drive.spec.serial
        self.size = drive.spec.size
        self.cacheless = drive.member.mode is CacheMode.NONE
        """Whether the disk had cache mode NONE when the connection was made, and so advertised no write cache."""

    def read(self, buffer: memoryview, offset: int) -> None:
        """Fill ``buffer`` with the disk's content at ``offset``.

        Raises:
            PowerLost: the disk has no power.
            DriveError: a disk fault makes the request fail.
        """
        engine, drive, disk_faults = self.engine, self.drive, self.drive.disk_faults
        self._delay(disk_faults, Op.READ, (offset, len(buffer)))
        with engine.lock:
            if engine.serving != self.epoch:
                engine.wait_for_resolve(self.epoch)
                raise PowerLost(self.serial)
            if disk_faults is not None:
                disk_faults.read(offset, len(buffer))
            drive.member.read_into(buffer, offset)
            drive.reads += 1
            drive.read_bytes += len(buffer)

    def write(self, data: Buffer, offset: int, fua: bool) -> None:
        """Execute a write.

        Raises:
            PowerLost: the disk has no power.
            DriveError: a disk fault makes the request fail.
        """
        engine, drive, disk_faults = self.engine, self.drive, self.drive.disk_faults
        issued = engine.clock()
        self._delay(disk_faults, Op.WRITE, (offset, len(data)), fua=fua)
        with engine.lock:
            if engine.serving != self.epoch:
                self._fail_after_cut(Kind.WRITE, fua, (offset, len(data)), issued, data=data)
            drive.writes += 1
            drive.written_bytes += len(data)
            lied = None
            if disk_faults is not None:
                landing = disk_faults.write(offset, len(data))
                lied = self._drops_flush(disk_faults) if fua else None
                if landing != offset:
                    self._log_diverted_write(offset, len(data), landing)
                    if landing is None:
                        return
                    offset = landing
            self._track_change(disk_faults, (offset, len(data)), forced=fua and not lied)
            drive.member.write(data, offset, fua, lied)
            flags = self._count_fua(lied) if fua else 0
            if engine.log is not None:
                span = (offset, len(data))
                engine.record(Kind.WRITE, flags, drive.index, span, (issued, engine.clock()), data=data)

    def flush(self) -> None:
        """Execute a FLUSH.

        Raises:
            PowerLost: the disk has no power.
            DriveError: a disk fault makes the request fail.
        """
        engine, drive, disk_faults = self.engine, self.drive, self.drive.disk_faults
        issued = engine.clock()
        covered = self._delay(disk_faults, Op.FLUSH, (0, 0))
        with engine.lock:
            if engine.serving != self.epoch:
                self._fail_after_cut(Kind.FLUSH, False, (0, 0), issued)
            drive.flushes += 1
            lied = drive.member.mode is CacheMode.LYING if disk_faults is None else self._drops_flush(disk_faults)
            kept: Sequence[Cached] = ()
            if disk_faults is not None and not lied:
                lied, kept = self._partial_flush(disk_faults)
            drive.member.flush(covered, lied, [one.number for one in kept])
            drive.lied += lied
            flags, times = Flag.LIED if lied else 0, (issued, engine.clock())
            engine.record(
                Kind.FLUSH, flags, drive.index, (0, 0), times, data=pack_kept([one.sequence for one in kept])
            )

    def discard(self, offset: int, length: int, fua: bool) -> None:
        """Execute a discard: the region reads as zeroes afterwards.

        Raises:
            PowerLost: the disk has no power.
            DriveError: a disk fault makes the request fail.
        """
        self._zero(Kind.DISCARD, offset, length, fua)

    def write_zeroes(self, offset: int, length: int, fua: bool) -> None:
        """Execute a write-zeroes request.

        Raises:
            PowerLost: the disk has no power.
            DriveError: a disk fault makes the request fail.
        """
        self._zero(Kind.ZERO, offset, length, fua)

    def _zero(self, kind: Kind, offset: int, length: int, fua: bool) -> None:
        engine, drive, disk_faults = self.engine, self.drive, self.drive.disk_faults
        issued = engine.clock()
        self._delay(disk_faults, Op.TRIM, (offset, length), fua=fua)
        with engine.lock:
            if engine.serving != self.epoch:
                self._fail_after_cut(kind, fua, (offset, length), issued)
            lied = None
            if disk_faults is not None:
                disk_faults.zero(offset, length)
                lied = self._drops_flush(disk_faults) if fua else None
            self._track_change(disk_faults, (offset, length), forced=fua and not lied)
            drive.member.zero(offset, length, fua, lied)
            flags = self._count_fua(lied) if fua else 0
            drive.discards += kind is Kind.DISCARD
            drive.zeroes += kind is Kind.ZERO
            drive.discarded_bytes += length
            engine.record(kind, flags, drive.index, (offset, length), (issued, engine.clock()))

    def _delay(
        self, disk_faults: DiskFaults | None, op: Op, span: tuple[int, int], *, fua: bool = False
    ) -> int | None:
        """Delay a request by its disk faults, then by its simulated service time, without blocking other requests.

        Return the value of `Member.acknowledged` at the beginning of the service time, which `Member.flush` takes as
        ``covered``; None without simulated service times.
        """
        engine = self.engine
        if disk_faults is not None:
            with engine.lock:
                ms = disk_faults.delay_ms(flush=op is Op.FLUSH)
            if ms:
                pause(ms / 1000)
        if engine.timekeeper is None or not engine.timekeeper.running:
            return None
        with engine.lock:
            if engine.serving != self.epoch or not engine.timekeeper.running:
                return None
            covered = self.drive.member.acknowledged
            ticket = engine.timekeeper.submit(self.drive.index, op, span, fua=fua)
        ticket.served.acquire()
        with engine.lock:
            engine.timekeeper.account(ticket)
        return covered

    def _drops_flush(self, disk_faults: DiskFaults) -> bool:
        """Return whether a disk fault or the cache mode LYING makes the disk drop a flush."""
        return disk_faults.flush() or self.drive.member.mode is CacheMode.LYING

    def _track_change(self, disk_faults: DiskFaults | None, span: tuple[int, int], *, forced: bool) -> None:
        """Report a write or discard to the disk faults, which track what a partial flush leaves volatile."""
        if disk_faults is not None:
            sequence = self.engine.log.records if self.engine.log is not None else -1
            disk_faults.record_change(Cached(self.drive.member.acknowledged, sequence, *span), forced=forced)

    def _partial_flush(self, disk_faults: DiskFaults) -> tuple[bool, Sequence[Cached]]:
        """Apply the disk faults that make a flush early or incomplete.

        Return whether the flush is early or incomplete, and the requests that it makes durable now.
        """
        if us := disk_faults.early_us():
            effect = Timer(us / 1e6, self._delayed_flush)
            effect.daemon = True
            effect.start()
            return True, ()
        kept = disk_faults.requests_to_flush()
        return kept is not None, kept or ()

    def _delayed_flush(self) -> None:
        """Execute a flush that was acknowledged earlier, unless the power was cut meanwhile."""
        engine, drive = self.engine, self.drive
        issued = engine.clock()
        with engine.lock:
            if engine.serving == self.epoch:
                drive.member.flush(lied=False)
                engine.record(Kind.FLUSH, 0, drive.index, (0, 0), (issued, engine.clock()))

    def _log_diverted_write(self, offset: int, length: int, landing: int | None) -> None:
        result = "is lost" if landing is None else f"goes to offset {landing}"
        text = f"{self.serial}: a write of {length} bytes at offset {offset} {result}"
        self.engine.note(Kind.MARK, data=text.encode())

    def _count_fua(self, lied: bool | None) -> int:
        """Count a FUA request; return the request's flags for the write log."""
        lied = self.drive.member.mode is CacheMode.LYING if lied is None else lied
        self.drive.fua += 1
        self.drive.lied += lied
        return int(Flag.FUA | Flag.LIED if lied else Flag.FUA)

    def _fail_after_cut(
        self, kind: Kind, fua: bool, span: tuple[int, int], issued: int, *, data: Buffer = b""
    ) -> None:
        """Wait until the power cut is resolved, log the request as in flight at the cut, and raise PowerLost."""
        engine = self.engine
        in_flight = engine.serving is None and self.epoch == engine.epoch
        engine.wait_for_resolve(self.epoch)
        if in_flight:
            flags = int(Flag.IN_FLIGHT | Flag.FUA if fua else Flag.IN_FLIGHT)
            engine.record(kind, flags, self.drive.index, span, (issued, 0), data=data)
        raise PowerLost(self.serial)
