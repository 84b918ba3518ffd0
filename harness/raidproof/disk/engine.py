"""The disk engine: serves all member disks of a lab under one lock, cuts their power, and sets disk faults."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from random import Random

from raidproof.core.errors import RigError
from raidproof.core.waiting import cpu_time_ns, now_ns
from raidproof.disk.cache import CacheMode, CutPolicy, CutResult, Member
from raidproof.disk.connection import FENCED, Connection, Drive, EngineState
from raidproof.disk.disk_fault import PARTIAL, DiskFault, DiskFaultKind
from raidproof.disk.messages import OF_MACHINE, Busy, Counters, Description, LogClosed, MemberSpec, Power, Use
from raidproof.disk.sparse_image import save_platter
from raidproof.disk.timekeeper import Timekeeper
from raidproof.disk.timing.hardware import ControllerSpec, Hardware
from raidproof.disk.writelog import CHANGES, Flag, Kind, LogError, LogWriter, MemberInfo, Record, WriteLog

_OF_FLUSHES = PARTIAL | {DiskFaultKind.DROP_FLUSHES, DiskFaultKind.EARLY_FLUSHES, DiskFaultKind.FLUSH_ERRORS}


def set_disk_fault(engine: "Engine", serial: str, disk_fault: DiskFault) -> None:
    """Add a disk fault to a drive.

    Raises:
        RigError: no member has this serial number; the affected bytes reach beyond the end of the drive; or the disk
            fault affects flushes, and the drive has no volatile cache.
    """
    drive = engine.drive(serial)
    end = disk_fault.offset + (disk_fault.length or 0)
    if not 0 <= disk_fault.offset <= end <= drive.spec.size:
        raise RigError(
            f"{serial} has {drive.spec.size} bytes; the disk fault {disk_fault.kind.value} "
            f"affects bytes {disk_fault.offset} to {end}"
        )
    with engine.lock:
        mode = drive.member.mode
        if disk_fault.kind in _OF_FLUSHES and mode is not CacheMode.VOLATILE:
            raise RigError(
                f"{serial} has no volatile cache, as the disk fault {disk_fault.kind.value} needs: its cache mode is "
                f"{mode.value}"
            )
        if disk_fault.kind in PARTIAL:
            # A partial flush selects only among requests after the setting of the disk fault: flush the earlier ones.
            drive.member.flush(lied=False)
            at = engine.clock()
            engine.record(Kind.FLUSH, 0, drive.index, (0, 0), (at, at))
        drive.set_disk_fault(disk_fault)
        engine.note(Kind.MARK, data=f"{serial}: disk fault {disk_fault.kind.value} set".encode())


def clear_disk_faults(engine: "Engine", serials: Iterable[str] | None = None) -> None:
    """Remove the disk faults of the drives with these serial numbers (None: all); damaged data stays damaged.

    Raises:
        RigError: no member has one of the serial numbers.
    """
    drives = engine.drives if serials is None else [engine.drive(serial) for serial in serials]
    with engine.lock:
        for drive in drives:
            if drive.disk_faults is not None:
                drive.clear_disk_faults()
                engine.note(Kind.MARK, data=f"{drive.spec.serial}: all disk faults removed".encode())


def corrupt(engine: "Engine", serial: str, offset: int, length: int, seed: int) -> None:
    """Change every byte of a region of a drive durably; no request reports an error.

    The seed alone determines the new content. The write log gets a MARK record, and a FUA write that no client
    sent.

    Raises:
        RigError: no member has this serial number, the region reaches beyond the end of the drive, or the disks are
            frozen.
    """
    drive = engine.drive(serial)
    member = drive.member
    if length <= 0 or not 0 <= offset <= drive.spec.size - length:
        raise RigError(f"{serial} has {drive.spec.size} bytes; cannot corrupt {length} bytes from offset {offset}")
    noise = Random(seed).choices(range(1, 256), k=length)  # noqa: S311  reproducible, no secret
    with engine.lock:
        _require_no_cut(engine)
        powered, member.powered = member.powered, True
        now = bytearray(length)
        member.read_into(memoryview(now), offset)
        spoilt = bytes(byte ^ change for byte, change in zip(now, noise, strict=True))
        member.write(spoilt, offset, True, False)
        member.powered = powered
        at = engine.note(
            Kind.MARK, data=f"{serial}: {length} bytes at offset {offset} corrupted, seed {seed}".encode()
        )
        engine.record(Kind.WRITE, Flag.FUA, drive.index, (offset, length), (at, at), data=spoilt)


def swap(engine: "Engine", one: str, other: str) -> None:
    """Exchange the content of two drives, as if their serial numbers had been exchanged.

    Raises:
        RigError: no member has one of the serial numbers, the sizes differ, the disks are frozen, or the power is on
            and a client is connected to one of the drives.
    """
    drives = engine.drive(one), engine.drive(other)
    first, second = drives
    if first is second or first.spec.size != second.spec.size:
        raise RigError(
            f"only two drives of equal size can be exchanged: "
            f"{one} has {first.spec.size} bytes, {other} has {second.spec.size}"
        )
    with engine.lock:
        _require_no_cut(engine)
        if engine.power is Power.ON and (used := engine.connected & {one, other}):
            raise RigError(
                f"cannot exchange the content of {one} and {other} under power: clients use {', '.join(sorted(used))}"
            )
        first.exchange(second)
        engine.note(Kind.SWAP, data=f"{first.index} {second.index}".encode())


def _require_no_cut(engine: "Engine") -> None:
    if engine.power is Power.FROZEN:
        raise RigError("the content of frozen disks cannot be changed: resolve the cut first")


class Change:
    """The writes and discards in a write log that took effect, in order; `Engine.show` applies them.

    Raises:
        LogError: the file cannot be read, is not a complete write log with data, has other members, or changes bytes
            beyond the end of a member.
    """

    def __init__(self, path: Path, members: Sequence[Member]) -> None:
        try:
            log = WriteLog(path)
        except OSError as error:
            raise LogError(f"cannot read the write log {path}: {error.strerror}") from error
        if not log.with_data:
            raise LogError(f"{path}: the write log has no data, so that it cannot be applied")
        theirs, ours = [(m.serial, m.size) for m in log.members], [(m.serial, m.size) for m in members]
        if theirs != ours:
            raise LogError(f"{path}: the write log has members {_listed(theirs)}; the engine has {_listed(ours)}")
        self._members = members
        self._records: list[Record] = [
            record for record in log if record.kind in CHANGES and not record.flags & Flag.IN_FLIGHT
        ]
        if log.ending is None or not log.ending.complete:
            raise LogError(f"{path}: the write log has no END record: it was not closed")
        for record in self._records:
            if record.member >= len(members) or record.offset + record.length > members[record.member].size:
                raise LogError(f"{path}: record {record.sequence} reaches beyond the end of member {record.member}")

    def apply(self) -> None:
        """Execute the writes and discards of this change on the members, as requests that no flush covers."""
        for record in self._records:
            member = self._members[record.member]
            if record.kind is Kind.WRITE:
                member.write(record.data, record.offset)
            else:
                member.zero(record.offset, record.length)


def _listed(members: list[tuple[str, int]]) -> str:
    return ", ".join(f"{serial} ({size} bytes)" for serial, size in members) or "none"


class Engine(EngineState):
    """The disk engine: all member disks of a lab, with power, write log and simulated time.

    A power cut has three steps. `freeze` stops all members at one instant: requests wait, and none fails, because the
    guest still runs and would see the error. The harness then kills the guest. `resolve` applies the cut policy to the
    caches, and fails the waiting requests. `power_on` serves the members again, but only over connections that were
    made after `resolve`, so that requests from before the cut, queued in a storage daemon, never reach the disks.
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
            raise RigError(f"two members have the same serial number: {', '.join(serials)}")
        super().__init__(clock)
        self.drives = [Drive(index, spec) for index, spec in enumerate(members)]
        self._by_serial = {drive.spec.serial: drive for drive in self.drives}
        self._frozen_at = 0
        self._connections: set[Connection] = set()
        self._controllers = tuple(controllers)
        self.timekeeper = self._make_timekeeper(slow_motion)

    def _make_timekeeper(self, slow_motion: float) -> Timekeeper | None:
        timed = [drive for drive in self.drives if drive.spec.profile is not None]
        if not timed:
            return None
        if len(timed) < len(self.drives):
            untimed = ", ".join(drive.spec.serial for drive in self.drives if drive.spec.profile is None)
            raise RigError(f"either all disks or no disk must have a timing profile; disks without profile: {untimed}")
        members = [
            (drive.spec.profile, drive.spec.size, drive.spec.placement, drive.spec.controller)
            for drive in timed
            if drive.spec.profile is not None
        ]
        return Timekeeper(Hardware(members, self._controllers), self.lock, self.clock, slow_motion)

    def set_timing(self, on: bool) -> None:
        """Switch the simulation of the disks' service times on or off; off: requests are answered at once.

        Raises:
            RigError: no disk has a timing profile, or the power is not on.
        """
        with self.lock:
            if self.timekeeper is None:
                raise RigError("service times cannot be simulated: the disks have no timing profile")
            if on and self.power is not Power.ON:
                raise RigError(f"service times can be simulated only under power; the power is {self.power.value}")
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

    def connect(self, export: str) -> Connection:
        """Return a new connection to a member; ``export``: its serial number, or `export_of` a machine.

        Raises:
            RigError: no member has this serial number.
        """
        serial, _, machine = export.partition(OF_MACHINE)
        drive = self.drive(serial)
        with self.lock:
            connection = Connection(self, drive, self.epoch, machine)
            self._connections.add(connection)
        return connection

    @property
    def connected(self) -> set[str]:
        """Serial numbers of the members with a connection made since the last cut. The caller holds the lock."""
        return {connection.serial for connection in self._connections if connection.epoch == self.epoch}

    def disconnect(self, connection: Connection) -> None:
        """Remove a connection that its client has closed."""
        with self.lock:
            self._connections.discard(connection)

    def fence(self, machine: str) -> int:
        """Fail all requests over the connections that a machine has; return the instant (CLOCK_MONOTONIC, ns).

        The disks keep their power, and serve all other connections, also new ones of this machine.

        Raises:
            RigError: the machine has no connection, so that it cannot be excluded.
        """
        with self.lock:
            fenced = [one for one in self._connections if one.machine == machine]
            if not machine or not fenced:
                raise RigError(f"no disk has a connection of machine {machine!r}, which is to be fenced")
            for connection in fenced:
                connection.epoch = FENCED
            return self.note(Kind.MARK, data=f"{machine}: fenced".encode())

    def freeze(self) -> int:
        """Stop serving all members at one instant; return the instant (CLOCK_MONOTONIC, ns).

        For frozen disks the method returns the instant of the first call.

        Raises:
            RigError: the power is off.
        """
        with self.lock:
            if self.power is Power.OFF:
                raise RigError("the power of the disks cannot be cut: the power is off")
            if self.power is Power.ON:
                self.power, self.serving = Power.FROZEN, None
                self._frozen_at = self.clock()
                self.note(Kind.FREEZE, at_ns=self._frozen_at)
                if self.timekeeper is not None:
                    # Requests that waited for their service time now wait for `resolve`, and are logged as in flight.
                    self.timekeeper.stop()
            return self._frozen_at

    def resolve(self, policy: CutPolicy, seed: int) -> tuple[CutResult, ...]:
        """Apply the power cut to each member's cache, fail the waiting requests, and return the result per member.

        Raises:
            RigError: the disks are not frozen.
        """
        with self.lock:
            if self.power is not Power.FROZEN:
                raise RigError(f"a power cut can be resolved only on frozen disks; the power is {self.power.value}")
            cut_results = tuple(drive.cut(policy, seed) for drive in self.drives)
            self.note(Kind.RESOLVE, data=json.dumps({"policy": policy.value, "seed": seed}).encode())
            self.power = Power.OFF
            self.epoch += 1
            self._released.notify_all()
        return cut_results

    def power_on(self) -> int:
        """Switch the power of all members on; return the instant (CLOCK_MONOTONIC, ns).

        Raises:
            RigError: the power is not off.
        """
        with self.lock:
            if self.power is not Power.OFF:
                raise RigError(f"the power can be switched on only when it is off; the power is {self.power.value}")
            for drive in self.drives:
                drive.member.power_on()
            self.power, self.serving = Power.ON, self.epoch
            return self.note(Kind.POWER_ON)

    def set_mode(self, serials: Iterable[str] | None, mode: CacheMode) -> None:
        """Change the cache mode of the members with these serial numbers; None: of all members.

        Raises:
            RigError: no member has one of the serial numbers; or the new mode has a cache, and the member advertised
                no cache to a connected client: this client would never send a flush.
        """
        drives = self.drives if serials is None else [self.drive(serial) for serial in serials]
        with self.lock:
            uncached = {
                connection.serial
                for connection in self._connections
                if connection.cacheless and connection.epoch == self.epoch
            }
            if mode is not CacheMode.NONE and (stuck := uncached & {drive.spec.serial for drive in drives}):
                raise RigError(
                    f"cannot set cache mode {mode.value} of {', '.join(sorted(stuck))}: the disk advertised "
                    "no write cache to a connected guest, which therefore sends no flush"
                )
            for drive in drives:
                drive.member.mode = mode
                self.note(Kind.MODE, drive.index, data=mode.value.encode())

    def reset(self, old: Collection[str] = ()) -> None:
        """Discard the content and the disk faults of all members; restore their cache modes; set their counters to 0.

        Connections stay open. ``old``: serial numbers of the members that read as `sparse_image.OLD_DATA`
        afterwards, not as zeroes.

        Raises:
            RigError: the disks are frozen, or no member has one of the serial numbers.
        """
        for serial in old:
            self.drive(serial)
        with self.lock:
            _require_no_cut(self)
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
        """Return the members, the power state, the number of connections, and the write log."""
        with self.lock:
            return Description(
                power=self.power,
                members=tuple(MemberSpec(d.spec.serial, d.spec.size, d.member.mode) for d in self.drives),
                connections=sum(connection.epoch == self.epoch for connection in self._connections),
                log=str(self.log.path) if self.log else None,
                log_error=self._log_error,
                pid=os.getpid(),
            )

    def start_log(self, path: Path, *, data: bool = True) -> None:
        """Begin a write log in the file ``path``; ``data``: include the written data, not only sizes and times.

        Raises:
            RigError: a write log is open, or the file exists or cannot be written.
        """
        with self.lock:
            if self.log is not None:
                raise RigError(f"cannot begin the write log {path}: the write log {self.log.path} is open")
            infos = [
                MemberInfo(d.spec.serial, d.spec.size, d.member.mode, d.spec.mode, d.member.old) for d in self.drives
            ]
            blank = all(next(d.member.image(durable=False).extents(), None) is None for d in self.drives)
            try:
                self.log = LogWriter(path, infos, self.clock(), data=data, blank=blank)
            except OSError as error:
                raise RigError(f"cannot create the write log {path}: {error.strerror}") from error
            self._log_error = None

    def stop_log(self) -> LogClosed:
        """End the write log and return its size.

        Raises:
            RigError: no write log is open.
        """
        with self.lock:
            log, self.log = self.log, None
            if log is None:
                raise RigError(self._log_error or "no write log is open")
            try:
                log.close(self.clock())
            except OSError as error:
                self._log_error = f"cannot write the write log {log.path}: {error.strerror}"
            return LogClosed(str(log.path), log.records, log.bytes, self._log_error)

    def mark(self, text: str) -> int:
        """Write a text to the write log, if a log is open; return the instant (CLOCK_MONOTONIC, ns)."""
        with self.lock:
            return self.note(Kind.MARK, data=text.encode())

    def save(self, serial: str, path: Path, *, durable: bool = True) -> None:
        """Write the content of a member to the sparse file ``path``; regions that were never written become holes.

        ``durable``: write only the durable content; otherwise the content that a read returns.

        Raises:
            RigError: no member has this serial number, or the file cannot be written.
        """
        drive = self.drive(serial)
        with self.lock:
            try:
                save_platter(drive.member.image(durable), path)
            except OSError as error:
                raise RigError(f"cannot write the image of {serial} to {path}: {error.strerror}") from error

    def show(self, path: Path, *, keep: bool = False) -> None:
        """Undo all requests that are not durable, then apply the write log ``path`` to the members.

        ``keep``: make the result durable, so that later calls do not undo it. The page cache of a guest keeps the
        previous content.

        Raises:
            RigError: a member does not have cache mode LYING, the disks are frozen, a write log is open (a replay of
                the open log would give another content), or the log ``path`` is of other members; no content was
                changed.
        """
        members = [drive.member for drive in self.drives]
        change = Change(path, members)
        with self.lock:
            _require_no_cut(self)
            if self.log is not None:
                raise RigError(
                    f"cannot apply the write log {path} to the disks: the write log {self.log.path} is open"
                )
            not_lying = [member.serial for member in members if member.mode is not CacheMode.LYING]
            if not_lying:
                raise RigError(
                    f"cannot apply the write log {path} to the disks: flushed writes cannot be undone; the "
                    f"cache mode must be lying on {', '.join(not_lying)}"
                )
            for member in members:
                member.revert()
                member.power_on()
            change.apply()
            for member in members:
                member.powered = self.power is Power.ON
                if keep:
                    member.settle()

    def drive(self, serial: str) -> Drive:
        """Return the drive with this serial number.

        Raises:
            RigError: no drive has this serial number.
        """
        try:
            return self._by_serial[serial]
        except KeyError:
            raise RigError(f"no member has serial number {serial!r}; members: {', '.join(self._by_serial)}") from None
