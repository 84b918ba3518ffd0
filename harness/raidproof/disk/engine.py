"""The disk engine: all member disks of a lab under one lock, and the operations that set disk faults."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from random import Random

from raidproof.core.errors import RigError
from raidproof.core.waiting import cpu_time_ns, now_ns
from raidproof.disk.cache import CacheMode, CutPolicy, CutResult, Member
from raidproof.disk.connection import Connection, Drive, Shelf
from raidproof.disk.disk_fault import PARTIAL, DiskFault, DiskFaultKind
from raidproof.disk.messages import Busy, Counters, Description, LogClosed, MemberSpec, Power, Use
from raidproof.disk.sparse_image import save_platter
from raidproof.disk.timekeeper import Timekeeper
from raidproof.disk.timing.hardware import ControllerSpec, Hardware
from raidproof.disk.writelog import Flag, Kind, LogError, LogWriter, MemberInfo, Record, WriteLog

_OF_FLUSHES = PARTIAL | {DiskFaultKind.DROP_FLUSHES, DiskFaultKind.EARLY_FLUSHES}

_CHANGES = {Kind.WRITE, Kind.ZERO, Kind.DISCARD}


def set_disk_fault(engine: "Engine", serial: str, disk_fault: DiskFault) -> None:
    """Set a disk fault of a drive, in addition to those that it has.

    Raises:
        RigError: no such member; bytes beyond its end; or a flush fault of a disk without a volatile cache.
    """
    drive = engine.drive(serial)
    end = disk_fault.offset + (disk_fault.length or 0)
    if not 0 <= disk_fault.offset <= end <= drive.spec.size:
        raise RigError(f"{serial} has {drive.spec.size} bytes, the disk fault concerns {disk_fault.offset} to {end}")
    with engine.lock:
        mode = drive.member.mode
        if disk_fault.kind in _OF_FLUSHES and mode is not CacheMode.VOLATILE:
            raise RigError(f"{serial} has no volatile cache that a flush would empty: it is {mode.value}")
        if disk_fault.kind in PARTIAL:
            # Flush now: a partial flush chooses only among requests from now on.
            drive.member.flush(lied=False)
            at = engine.clock()
            engine.record(Kind.FLUSH, 0, drive.index, (0, 0), (at, at))
        drive.set_disk_fault(disk_fault)
        engine.note(Kind.MARK, data=f"{serial}: {disk_fault.kind.value} from now on".encode())


def clear_disk_faults(engine: "Engine", serials: Iterable[str] | None = None) -> None:
    """Remove the disk faults of some drives, or of all; damaged data stays damaged.

    Raises:
        RigError: no such member.
    """
    drives = engine.drives if serials is None else [engine.drive(serial) for serial in serials]
    with engine.lock:
        for drive in drives:
            if drive.disk_faults is not None:
                drive.clear_disk_faults()
                engine.note(Kind.MARK, data=f"{drive.spec.serial}: no disk faults from now on".encode())


def corrupt(engine: "Engine", serial: str, offset: int, length: int, seed: int) -> None:
    """Change every byte of a region durably, in a way that depends on the seed only; no request fails.

    In the write log the change is a FUA write that no client sent, after a mark that names it.

    Raises:
        RigError: no such member or region; or a power cut is under way.
    """
    drive = engine.drive(serial)
    member = drive.member
    if length <= 0 or not 0 <= offset <= drive.spec.size - length:
        raise RigError(f"{serial} has {drive.spec.size} bytes, not {length} from {offset}")
    noise = Random(seed).choices(range(1, 256), k=length)  # noqa: S311  reproducible, no secret
    with engine.lock:
        _require_no_cut(engine)
        powered, member.powered = member.powered, True
        now = bytearray(length)
        member.read_into(memoryview(now), offset)
        spoilt = bytes(byte ^ change for byte, change in zip(now, noise, strict=True))
        member.write(spoilt, offset, True, False)
        member.powered = powered
        at = engine.note(Kind.MARK, data=f"{serial}: {length} bytes at {offset} corrupted, seed {seed}".encode())
        engine.record(Kind.WRITE, Flag.FUA, drive.index, (offset, length), (at, at), data=spoilt)


def swap(engine: "Engine", one: str, other: str) -> None:
    """Exchange the content of two drives, as if each had the other's serial number.

    Raises:
        RigError: no such members, different sizes, or a client is connected to them under power.
    """
    drives = engine.drive(one), engine.drive(other)
    first, second = drives
    if first is second or first.spec.size != second.spec.size:
        raise RigError(f"only two drives of one size can be exchanged: {one}, {other}")
    with engine.lock:
        _require_no_cut(engine)
        if engine.power is Power.ON and (used := engine.connected & {one, other}):
            raise RigError(f"drives are exchanged without power only, these are in use: {', '.join(sorted(used))}")
        first.exchange(second)
        engine.note(Kind.SWAP, data=f"{first.index} {second.index}".encode())


def _require_no_cut(engine: "Engine") -> None:
    if engine.power is Power.FROZEN:
        raise RigError("frozen disks cannot be changed: resolve the cut first")


class Change:
    """The changes in a write log: each request that took effect, in order.

    Raises:
        LogError: it is no whole write log with data, is of other members, or reaches beyond the end of one.
    """

    def __init__(self, path: Path, members: Sequence[Member]) -> None:
        try:
            log = WriteLog(path)
        except OSError as error:
            raise LogError(f"cannot read {path}: {error.strerror}") from error
        if not log.with_data:
            raise LogError(f"{path}: written without data, there is nothing to show")
        theirs, ours = [(m.serial, m.size) for m in log.members], [(m.serial, m.size) for m in members]
        if theirs != ours:
            raise LogError(f"{path}: a log of {_listed(theirs)}; here are {_listed(ours)}")
        self._members = members
        self._records: list[Record] = [
            record for record in log if record.kind in _CHANGES and not record.flags & Flag.IN_FLIGHT
        ]
        if log.ending is None or not log.ending.complete:
            raise LogError(f"{path}: the log has no end")
        for record in self._records:
            if record.member >= len(members) or record.offset + record.length > members[record.member].size:
                raise LogError(f"{path}: record {record.sequence} reaches beyond the end of its member")

    def apply(self) -> None:
        """Execute all changes, as unflushed requests."""
        for record in self._records:
            member = self._members[record.member]
            if record.kind is Kind.WRITE:
                member.write(record.data, record.offset)
            else:
                member.zero(record.offset, record.length)


def _listed(members: list[tuple[str, int]]) -> str:
    return ", ".join(f"{serial} ({size} bytes)" for serial, size in members) or "nothing"


class Engine(Shelf):
    """The members of a lab.

    A power cut has three steps. ``freeze``: from that instant on no request to any member is served, and none fails,
    because the guest may still be alive to see the error. Then the harness kills the guest. ``resolve`` applies
    the cut policy and fails the waiting requests. ``power_on`` serves again, but only connections made since the
    resolve: requests that a storage daemon has queued from before the cut never reach the disks.
    """

    def __init__(
        self,
        members: Sequence[MemberSpec],
        controllers: Sequence[ControllerSpec] = (),
        slow_motion: float = 1.0,
        clock: Callable[[], int] = now_ns,
    ) -> None:
        serials = [spec.serial for spec in members]
        if len(set(serials)) != len(serials):
            raise RigError(f"two members with one serial: {', '.join(serials)}")
        super().__init__(clock)
        self.drives = [Drive(index, spec) for index, spec in enumerate(members)]
        self._by_serial = {drive.spec.serial: drive for drive in self.drives}
        self._frozen_at = 0
        self._ports: set[Connection] = set()
        self._controllers = tuple(controllers)
        self.timekeeper = self._make_timekeeper(slow_motion)

    def _make_timekeeper(self, slow_motion: float) -> Timekeeper | None:
        timed = [drive for drive in self.drives if drive.spec.profile is not None]
        if not timed:
            return None
        if len(timed) < len(self.drives):
            raise RigError("either every disk has a profile, or none")
        members = [
            (drive.spec.profile, drive.spec.size, drive.spec.placement, drive.spec.controller)
            for drive in timed
            if drive.spec.profile is not None
        ]
        return Timekeeper(Hardware(members, self._controllers), self.lock, self.clock, slow_motion)

    def set_timing(self, on: bool) -> None:
        """Simulate the disks' service times, or answer requests at once.

        Raises:
            RigError: no disk has a timing profile, or there is no power.
        """
        with self.lock:
            if self.timekeeper is None:
                raise RigError("these disks have no timing profile")
            if on and self.power is not Power.ON:
                raise RigError(f"disks take time only under power, the power is {self.power.value}")
            if on is not self.timekeeper.running:
                (self.timekeeper.start if on else self.timekeeper.stop)()

    def use(self) -> Use:
        """Return the utilization counters of disks, controllers and this process."""
        with self.lock:
            keeper = self.timekeeper
            members, controllers = keeper.hardware.busy(keeper.now) if keeper else ((), ())
            return Use(
                at_ns=self.clock(),
                disks_ns=keeper.now if keeper else self.clock(),
                cpu_ns=cpu_time_ns(),
                served=keeper.served if keeper else 0,
                late_ns=keeper.late_ns if keeper else 0,
                service_ns=keeper.service_ns if keeper else 0,
                members=tuple(
                    Busy(drive.spec.serial, one.busy_ns, one.requests, one.bytes)
                    for drive, one in zip(self.drives, members, strict=False)
                ),
                controllers=tuple(
                    Busy(spec.name, one.busy_ns, one.requests, one.bytes)
                    for spec, one in zip(self._controllers, controllers, strict=False)
                ),
            )

    def connect(self, serial: str) -> Connection:
        """Return a new connection to a member.

        Raises:
            RigError: there is no such member.
        """
        drive = self.drive(serial)
        with self.lock:
            port = Connection(self, drive, self.epoch)
            self._ports.add(port)
        return port

    @property
    def connected(self) -> set[str]:
        """The members with a client connection in the current epoch; to be called under the lock."""
        return {port.serial for port in self._ports if port.epoch == self.epoch}

    def disconnect(self, port: Connection) -> None:
        """Remove a connection."""
        with self.lock:
            self._ports.discard(port)

    def freeze(self) -> int:
        """Stop serving all members at one instant and return it (CLOCK_MONOTONIC, ns); if repeated, the same instant.

        Raises:
            RigError: the power is off.
        """
        with self.lock:
            if self.power is Power.OFF:
                raise RigError("the disks cannot lose power: it is off")
            if self.power is Power.ON:
                self.power, self.serving = Power.FROZEN, None
                self._frozen_at = self.clock()
                self.note(Kind.FREEZE, at_ns=self._frozen_at)
                if self.timekeeper is not None:
                    # Requests that waited for their disk now wait for the cut, and are logged as in flight.
                    self.timekeeper.stop()
            return self._frozen_at

    def resolve(self, policy: CutPolicy, seed: int) -> tuple[CutResult, ...]:
        """Apply the power cut to each member's cache, and fail the waiting requests.

        Raises:
            RigError: the members were not frozen.
        """
        with self.lock:
            if self.power is not Power.FROZEN:
                raise RigError(f"only frozen disks can be resolved, the power is {self.power.value}")
            cut_results = tuple(drive.cut(policy, seed) for drive in self.drives)
            self.note(Kind.RESOLVE, data=json.dumps({"policy": policy.value, "seed": seed}).encode())
            self.power = Power.OFF
            self.epoch += 1
            self._released.notify_all()
        return cut_results

    def power_on(self) -> int:
        """Serve the members again; return the instant of the power-on (CLOCK_MONOTONIC, ns).

        Raises:
            RigError: the power is not off.
        """
        with self.lock:
            if self.power is not Power.OFF:
                raise RigError(f"only disks without power can be powered on, the power is {self.power.value}")
            for drive in self.drives:
                drive.member.power_on()
            self.power, self.serving = Power.ON, self.epoch
            return self.note(Kind.POWER_ON)

    def set_mode(self, serials: Iterable[str] | None, mode: CacheMode) -> None:
        """Change the cache mode of some members, or of all.

        Raises:
            RigError: no such member; or a cache for a member that has clients to which it advertised none, and which
                would never flush it.
        """
        drives = self.drives if serials is None else [self.drive(serial) for serial in serials]
        with self.lock:
            blind = {port.serial for port in self._ports if port.cacheless and port.epoch == self.epoch}
            if mode is not CacheMode.NONE and (stuck := blind & {drive.spec.serial for drive in drives}):
                raise RigError(f"connected as disks without a cache, and their guest flushes nothing: {sorted(stuck)}")
            for drive in drives:
                drive.member.mode = mode
                self.note(Kind.MODE, drive.index, data=mode.value.encode())

    def reset(self, old: Collection[str] = ()) -> None:
        """Make all members blank, without disk faults, with initial modes and counters; connections stay.

        ``old``: serials of members whose unwritten parts read as old data, not as zeroes.

        Raises:
            RigError: the members are frozen, or one does not exist.
        """
        for serial in old:
            self.drive(serial)
        with self.lock:
            if self.power is Power.FROZEN:
                raise RigError("frozen disks cannot be reset: resolve the cut first")
            if self.timekeeper is not None:
                self.timekeeper.stop()
            for drive in self.drives:
                drive.member.mode = drive.spec.mode
                drive.member.blank(old=drive.spec.serial in old)
                drive.clear_counters()
            self.note(Kind.RESET, data=json.dumps(sorted(old)).encode() if old else b"")

    def counters(self) -> tuple[Counters, ...]:
        """Return the request counters of each member."""
        with self.lock:
            return tuple(drive.counters() for drive in self.drives)

    def describe(self) -> Description:
        """Return what is served, and the state."""
        with self.lock:
            return Description(
                power=self.power,
                members=tuple(MemberSpec(d.spec.serial, d.spec.size, d.member.mode) for d in self.drives),
                connections=sum(port.epoch == self.epoch for port in self._ports),
                log=str(self.log.path) if self.log else None,
                log_error=self._log_error,
                pid=os.getpid(),
            )

    def start_log(self, path: Path, *, data: bool = True) -> None:
        """Begin a write log.

        Raises:
            RigError: a write log is open, or the file cannot be written.
        """
        with self.lock:
            if self.log is not None:
                raise RigError(f"a write log is being written already: {self.log.path}")
            infos = [
                MemberInfo(d.spec.serial, d.spec.size, d.member.mode, d.spec.mode, d.member.old) for d in self.drives
            ]
            blank = all(next(d.member.image(durable=False).extents(), None) is None for d in self.drives)
            try:
                self.log = LogWriter(path, infos, self.clock(), data=data, blank=blank)
            except OSError as error:
                raise RigError(f"cannot write the log {path}: {error.strerror}") from error
            self._log_error = None

    def stop_log(self) -> LogClosed:
        """End the write log and return its size.

        Raises:
            RigError: no write log is open.
        """
        with self.lock:
            log, self.log = self.log, None
            if log is None:
                raise RigError(self._log_error or "no write log is being written")
            try:
                log.close(self.clock())
            except OSError as error:
                self._log_error = f"writing {log.path} failed: {error.strerror}"
            return LogClosed(str(log.path), log.records, log.bytes, self._log_error)

    def mark(self, text: str) -> int:
        """Write a text to the write log; return the instant (CLOCK_MONOTONIC, ns)."""
        with self.lock:
            return self.note(Kind.MARK, data=text.encode())

    def save(self, serial: str, path: Path, *, durable: bool = True) -> None:
        """Write the image of a member to a sparse file; unwritten parts are holes, also if they read as old data.

        Raises:
            RigError: no such member, or the file cannot be written.
        """
        drive = self.drive(serial)
        with self.lock:
            try:
                save_platter(drive.member.image(durable), path)
            except OSError as error:
                raise RigError(f"cannot write {path}: {error.strerror}") from error

    def show(self, path: Path, *, keep: bool = False) -> None:
        """Undo what was written since the last kept state, then apply a write log; ``keep``: the result is kept.

        The guest's caches keep the old content.

        Raises:
            RigError: a member is not LYING, the members are frozen, a write log is open (its replay would not give the
                shown content), or the log at ``path`` does not fit these members; nothing was changed.
        """
        members = [drive.member for drive in self.drives]
        change = Change(path, members)
        with self.lock:
            if self.power is Power.FROZEN:
                raise RigError("frozen disks cannot be changed: resolve the cut first")
            if self.log is not None:
                raise RigError(f"a write log is being written: {self.log.path}")
            honest = [member.serial for member in members if member.mode is not CacheMode.LYING]
            if honest:
                raise RigError(f"flushed writes cannot be undone, the mode must be lying: {', '.join(honest)}")
            for member in members:
                member.revert()
                member.power_on()
            change.apply()
            for member in members:
                member.powered = self.power is Power.ON
                if keep:
                    member.settle()

    def drive(self, serial: str) -> Drive:
        """Return the drive of a serial.

        Raises:
            RigError: there is none.
        """
        try:
            return self._by_serial[serial]
        except KeyError:
            raise RigError(f"no member {serial!r}, there are {', '.join(self._by_serial)}") from None
