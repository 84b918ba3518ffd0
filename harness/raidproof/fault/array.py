"""Faults and maintenance of an array: members fail, leave, return; resync, check, reshape."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from raidproof.core.blame import Blame, Culprit
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import read_files, whole_number
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.disk_fault import DiskFaultKind
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.storage.array import LEVELS, Array, Identity, stale
from raidproof.storage.array.array import Action, Progress, Upkeep, ended_in
from raidproof.storage.array.level import listed
from raidproof.storage.array.spec import disk_path
from raidproof.storage.stack import StackSpec

ALARMS = (r"I/O error, dev vd", r"Disk failure on", r"read error (?:not )?correct")
"""Patterns of kernel log lines about a failing member, which a fault of a member excuses; no other line is excused."""
NOTICE_DEADLINE_S = 60.0
FAST_KIB_S = 1_000_000
"""KiB/s; while clients work, md rebuilds at a thousandth of this."""
DRIVERS = "/sys/bus/virtio/drivers/virtio_blk"
DEVICES = "/sys/bus/virtio/devices"

KIB_PER_S = 1000
"""KiB/s per member: 288 MiB take five minutes. Equals md's default minimum (speed_limit_min, md(4))."""
WRITE_HOLE = Blame(culprit=Culprit.WRITE_HOLE, detail="the array was started dirty and degraded, as was requested")
DISK_FAILURE = r"md/raid\S*: Disk failure on"
"""Pattern of the kernel log line about a member that was declared faulty."""


class Place(NamedTuple):
    """The place of a member in sysfs."""

    md: str
    disk: str
    """The kernel's device name of the disk."""

    @property
    def directory(self) -> str:
        """The directory of md's attributes of the member."""
        return f"/sys/block/{self.md}/md/dev-{self.disk}"

    def words(self, context: FaultContext) -> tuple[str, ...]:
        """Return the flags in the member's md state file; empty if md has no such member any more."""
        path = f"{self.directory}/state"
        found = context.lab.server.read_files([path])
        return tuple(found[path].split(",")) if path in found else ()

    def degraded(self, context: FaultContext) -> int:
        """Return the number of members that the array lacks."""
        path = f"/sys/block/{self.md}/md/degraded"
        return whole_number(read_files(context.lab.server, [path])[path].strip(), "degraded")


def place_of(context: FaultContext, serial: str) -> Place:
    """Return the place of a member.

    Raises:
        RequestError: the array has no such member, or no redundancy.
    """
    md = Upkeep.with_member(context.stack.array, serial).md
    found = context.lab.server.succeed(["realpath", "--canonicalize-missing", disk_path(serial)])
    return Place(md.name, found.strip().removeprefix("/dev/"))


def hits(context: FaultContext, serial: str, kind: DiskFaultKind) -> int:
    """Return the number of requests to a disk that a disk fault has affected."""
    return context.lab.disks.counters()[serial].struck_by(kind)


def provoke(context: FaultContext, noticed: Callable[[], bool], what: str) -> None:
    """Write through the file system to every member until ``noticed``: md does not detect a fault of an idle array.

    Raises:
        DeadlineExceeded: the fault is not noticed in time.
    """
    server, path = context.lab.server, f"{context.stack.filesystem.directory}/.provoked"
    write = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=2", "oflag=direct", "conv=fsync", "status=none"]

    def once() -> bool | None:
        server.run(write)
        return noticed() or None

    wait_until(once, Deadline.after(NOTICE_DEADLINE_S), what, 0.2)
    server.run(["rm", "--force", path])


@contextmanager
def fast(context: FaultContext, serial: str) -> Iterator[None]:
    """Let md's background work run at full speed, regardless of the clients."""
    upkeep = Upkeep.with_member(context.stack.array, serial)
    upkeep.throttle(FAST_KIB_S)
    try:
        yield
    finally:
        upkeep.throttle(None)


def drop(context: FaultContext, serial: str) -> None:
    """Remove a faulty member from its array, even if its block device is gone.

    Raises:
        DeadlineExceeded: md does not remove it in time.
    """
    place, server = place_of(context, serial), context.lab.server

    def gone() -> bool | None:
        # EBUSY while a request to the member is in flight.
        server.put_all({f"{place.directory}/state": "remove\n"})
        return not place.words(context) or None

    wait_until(gone, Deadline.after(NOTICE_DEADLINE_S), f"{place.md} to remove {serial}", 0.1)


def detach(context: FaultContext, place: Place) -> None:
    """Pull out a disk: unbind it from its driver.

    Raises:
        RigError: its block device still exists.
    """
    server, block = context.lab.server, f"/sys/block/{place.disk}"
    (path,) = server.resolve([f"{block}/device"])
    device = path.rpartition("/")[2]
    server.put(f"{device}\n", f"{DRIVERS}/unbind")
    if server.exists(block):
        raise RigError(f"{server.name}: {place.disk} was unbound, and {block} is still there")


def attach(context: FaultContext, serial: str) -> None:
    """Plug in a disk that `detach` has pulled out: the only one without a driver.

    Raises:
        RigError: not exactly one disk has no driver, its block device does not appear, or its cache mode is wrong.
    """
    server = context.lab.server
    listed = server.succeed(["find", f"{DEVICES}/", "-mindepth", "1", "-maxdepth", "1", "-printf", "%f\\n"]).split()
    idle = [one for one in listed if not server.exists(f"{DEVICES}/{one}/driver")]
    if len(idle) != 1:
        raise RigError(f"{server.name}: one disk should be without a driver, found {', '.join(idle) or 'none'}")
    server.put(f"{idle[0]}\n", f"{DRIVERS}/bind")
    names = server.succeed(
        ["find", f"{DEVICES}/{idle[0]}/block/", "-mindepth", "1", "-maxdepth", "1", "-printf", "%f"]
    )
    # User-mode Linux sets a vhost-user disk to "write through", in which the guest sends no flushes.
    server.put("write back\n", f"/sys/block/{names}/cache_type")
    cache = server.get(f"/sys/block/{names}/queue/write_cache").strip()
    if cache != "write back":
        raise RigError(f"{server.name}: {serial} ({names}) has its cache {cache}: nothing would be flushed")
    server.succeed(["ln", "--symbolic", "--force", "--no-dereference", f"/dev/{names}", disk_path(serial)])


@dataclass(frozen=True)
class _Incomplete(Fault):
    """A member is missing, or not yet rebuilt."""

    serial: str
    starts_dirty: bool = field(default=False, kw_only=True)
    """Whether to start the array after a crash although it is dirty and degraded. By default md refuses, unless a
    partial parity log or a journal closes the write hole (see `ExpectedDeviation`)."""

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects, equal for a missing member and for one that is being rebuilt."""
        explanation = WRITE_HOLE if self.starts_dirty else None
        return FaultEffects(member_missing=True, kernel_messages=(DISK_FAILURE,), explanation=explanation)

    def _upkeep(self, context: FaultContext) -> Upkeep:
        """Return the md device with the member.

        Raises:
            RequestError: the array has no such member, or a spare that would replace it at once.
        """
        upkeep = Upkeep.with_member(context.stack.array, self.serial)
        if context.stack.array.spec.spares:
            raise RequestError("a spare would take the place of the member at once", remedy="leave the spare out")
        return upkeep

    def _expect(self, array: Array, **more: frozenset[str]) -> None:
        """Expect the array to be as the fault leaves it; ``more`` are serials for its expected deviation."""
        expected = array.expected_deviation
        dirty = expected.starts_dirty or self.starts_dirty
        array.expected_deviation = replace(expected, starts_dirty=dirty).plus(**more)


@dataclass(frozen=True)
class Degraded(_Incomplete):
    """A member is declared faulty and removed; it is added again after all checks."""

    name: ClassVar[str] = "degraded"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Remove the member.

        Raises:
            RequestError: the array has no such member, or a spare that would replace it at once.
        """
        array, upkeep = context.stack.array, self._upkeep(context)
        upkeep.take_out(self.serial)
        at_ns = now_ns()
        self._expect(array, absent=frozenset({self.serial}))
        found = next(one for one in array.require_effective().devices if one.device == upkeep.md.device)
        return FaultEvent(self.name, self.serial, at_ns, f"{found.device}: {found.degraded} member missing")

    def heal(self, context: FaultContext) -> None:
        """Add the member and wait until it is rebuilt: with a bitmap the changed parts only, otherwise wholly."""
        array = context.stack.array
        upkeep = Upkeep.with_member(array, self.serial)
        if upkeep.md.consistency_policy == "bitmap":
            upkeep.take_back(self.serial)
        else:
            upkeep.put_in(self.serial)
            array.expected_deviation = array.expected_deviation.plus(renewed=frozenset({self.serial}))
        array.wait_clean()
        array.expected_deviation = array.expected_deviation.minus(self.serial)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str:  # noqa: ARG002
        """Return as proof how far the member's event count is behind the other members'."""
        behind = stale(members).get(self.serial)
        if behind is None:
            raise RigError(f"{self.serial} is not behind the other members, so it was not missing")
        return f"{self.serial} is {behind} events behind"


@dataclass(frozen=True)
class Rebuilding(_Incomplete):
    """A member is replaced by a blank disk; its rebuild is throttled to ``kib_s`` (KiB/s) so that it takes long.

    The member's metadata is wiped: with a bitmap, a member that is only added again would be rebuilt in an instant.
    The array is degraded until the rebuild ends.
    """

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "rebuilding"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Replace the member and wait until the rebuild begins.

        Raises:
            RequestError: the array has no such member, or a spare that would replace it at once.
        """
        upkeep = self._upkeep(context)
        upkeep.throttle(self.kib_s)
        upkeep.take_out(self.serial)
        upkeep.put_in(self.serial)
        mine = frozenset({self.serial})
        self._expect(context.stack.array, rebuilding=mine, renewed=mine)
        return begun(self.name, self.serial, upkeep.wait_for("recover"), self.kib_s)

    def heal(self, context: FaultContext) -> None:
        """Let the rebuild run at full speed, and wait for its end."""
        array = context.stack.array
        Upkeep.with_member(array, self.serial).throttle(None)
        array.wait_clean()
        array.expected_deviation = array.expected_deviation.minus(self.serial)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str:
        """Return as proof the position of the rebuild in the member's metadata."""
        not_ended(Upkeep.with_member(context.stack.array, self.serial), said)
        mine = members.get(self.serial)
        if mine is None or mine.recovery_offset is None:
            raise RigError(f"{self.serial} has no rebuild position in its metadata")
        return f"{self.serial} is rebuilt up to sector {mine.recovery_offset}"


class _Throttled(Fault):
    """Background work of md on a whole array, throttled to ``kib_s`` (KiB/s)."""

    kib_s: int

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return no effects: copies and parity are consistent in the end."""
        return FaultEffects()

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str:  # noqa: ARG002
        """Return as proof that the kernel log has no message of the end."""
        return not_ended(top(context), said)

    def heal(self, context: FaultContext) -> None:
        """Let the work run at full speed, and wait for its end."""
        top(context).throttle(None)
        context.stack.array.wait_clean()


@dataclass(frozen=True)
class Resyncing(_Throttled):
    """All parity or copies are rewritten: by a resync as after a crash, or with a bitmap, by a repair of the array."""

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "resyncing"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Begin the resync or repair.

        Raises:
            RequirementMissing: the server has no console, so that an end before the next fault could not be seen.
        """
        bitmap = top(context).md.consistency_policy == "bitmap"
        return run_in_background(self.name, context, "repair" if bitmap else "resync", self.kib_s)


@dataclass(frozen=True)
class Scrubbing(_Throttled):
    """A check reads all members and compares copies or parity."""

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "scrubbing"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Begin the check. Raises as `Resyncing`."""
        return run_in_background(self.name, context, "check", self.kib_s)


@dataclass(frozen=True)
class Reshaping(_Throttled):
    """A parity array takes in its spares as members, which changes the layout of every stripe. It keeps them."""

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "reshaping"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(member_missing=True)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Begin the reshape.

        Raises:
            RequestError: the array has no spare, or md cannot reshape it.
        """
        array, upkeep = context.stack.array, top(context)
        if not LEVELS[upkeep.md.level].parity or not upkeep.md.spares:
            others = listed(lambda kind: kind.parity > 0, "or")
            raise RequestError(f"only a RAID{others} with a spare can be reshaped to more members")
        if upkeep.md.consistency_policy in {"ppl", "journal"}:
            raise RequestError(f"md does not reshape an array with consistency policy {upkeep.md.consistency_policy}")
        members = len(upkeep.md.members) + len(upkeep.md.spares)
        upkeep.throttle(self.kib_s)
        upkeep.grow(members)
        array.expected_deviation = replace(array.expected_deviation, raid_disks=members)
        return begun(self.name, upkeep.md.device, upkeep.wait_for("reshape"), self.kib_s)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str:
        """Return as proof the position of the reshape in the members' metadata."""
        not_ended(top(context), said)
        places = {one.reshape_position for one in members.values()}
        if not places or None in places:
            raise RigError("not all members have a reshape position in their metadata")
        return f"the reshape has reached {', '.join(f'{place} KiB' for place in places)}"


def top(context: FaultContext) -> Upkeep:
    """Return the md device that carries the file system.

    Raises:
        RequestError: the device has no redundancy.
    """
    array = context.stack.array
    return Upkeep(array, array.spec.devices[-1]).require_redundancy()


def run_in_background(fault: str, context: FaultContext, action: Action, kib_s: int) -> FaultEvent:
    """Begin throttled background work of md.

    Raises:
        RequirementMissing: the server has no console.
    """
    if not context.lab.server.consoles:
        raise RequirementMissing(f"{context.lab.server.name} has no console that would show when the {action} ended")
    upkeep = top(context)
    upkeep.throttle(kib_s)
    upkeep.begin(action)
    return begun(fault, upkeep.md.device, upkeep.wait_for(action), kib_s)


def begun(fault: str, target: str, now: Progress, kib_s: int) -> FaultEvent:
    """Return the event of background work that has begun."""
    proof = f"{now.action} at sector {now.done:,} of {now.total:,}, {kib_s} KiB/s at most"
    return FaultEvent(fault, target, now_ns(), proof)


def not_ended(upkeep: Upkeep, said: str | None) -> str:
    """Return the proof that background work had not ended; ``said`` is the kernel log, None where it was not recorded.

    Raises:
        RigError: the kernel log has a message of the end.
    """
    if said is None:
        return "the kernel log was not recorded"
    if ended := ended_in(said, upkeep.md):
        raise RigError(f"the fault came too late: {ended.strip()!r}", remedy="throttle it more")
    return f"the kernel log has no message that {upkeep.md.name} was done"
