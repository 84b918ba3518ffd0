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
from raidproof.fault.effects import FaultEffects
from raidproof.fault.fault import Fault, FaultContext, FaultEvent
from raidproof.storage.array import ExpectedDeviation, Identity, Level, stale
from raidproof.storage.array.array import Action, Progress, Upkeep, ended_in
from raidproof.storage.array.spec import disk_path
from raidproof.storage.stack import StackSpec

ALARMS = (r"I/O error, dev vd", r"Disk failure on", r"read error (?:not )?correct")
"""Patterns of what a kernel says of a member that fails: it says the same of each, and nothing else is excused."""
NOTICE_DEADLINE_S = 60.0
FAST_KIB_S = 1_000_000
"""While clients work, md rebuilds at a thousandth of this."""
DRIVERS = "/sys/bus/virtio/drivers/virtio_blk"
DEVICES = "/sys/bus/virtio/devices"

KIB_PER_S = 1000
"""A rate of each member at which 288 MiB take five minutes. It is the least to which md's own default goes down."""
WRITE_HOLE = Blame(culprit=Culprit.WRITE_HOLE, detail="the array was started dirty and degraded, as was requested")
DISK_FAILURE = r"md/raid\S*: Disk failure on"
"""What a kernel says of a member that was declared faulty."""


class Place(NamedTuple):
    """Where a member is found in sysfs."""

    md: str
    disk: str
    """The kernel's name of the disk."""

    @property
    def directory(self) -> str:
        """What md says of the member."""
        return f"/sys/block/{self.md}/md/dev-{self.disk}"

    def words(self, context: FaultContext) -> tuple[str, ...]:
        """Return the kernel's words for the member's state; none if md has it no more."""
        path = f"{self.directory}/state"
        found = context.lab.server.read_files([path])
        return tuple(found[path].split(",")) if path in found else ()

    def degraded(self, context: FaultContext) -> int:
        """Return how many members the array misses."""
        path = f"/sys/block/{self.md}/md/degraded"
        return whole_number(read_files(context.lab.server, [path])[path].strip(), "degraded")


def place_of(context: FaultContext, serial: str) -> Place:
    """Return where a member is.

    Raises:
        RequestError: the array has no such member, or keeps nothing twice.
    """
    md = Upkeep.with_member(context.stack.array, serial).md
    found = context.lab.server.succeed(["realpath", "--canonicalize-missing", disk_path(serial)])
    return Place(md.name, found.strip().removeprefix("/dev/"))


def struck(context: FaultContext, serial: str, kind: DiskFaultKind) -> int:
    """Return how many requests to a disk a disk fault has struck."""
    return context.lab.disks.counters()[serial].struck_by(kind)


def provoke(context: FaultContext, noticed: Callable[[], bool], what: str) -> None:
    """Let the file system write on every member until something is noticed: an idle array notices nothing.

    Raises:
        DeadlineExceeded: it is not.
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
    """Let md do what it does in the background as fast as it can, clients or not."""
    upkeep = Upkeep.with_member(context.stack.array, serial)
    upkeep.throttle(FAST_KIB_S)
    try:
        yield
    finally:
        upkeep.throttle(None)


def drop(context: FaultContext, serial: str) -> None:
    """Take a faulty member out of its array, also one whose block device is gone.

    Raises:
        DeadlineExceeded: md does not let go of it.
    """
    place, server = place_of(context, serial), context.lab.server

    def gone() -> bool | None:
        # Busy as long as a request to it is on its way.
        server.put_all({f"{place.directory}/state": "remove\n"})
        return not place.words(context) or None

    wait_until(gone, Deadline.after(NOTICE_DEADLINE_S), f"{place.md} to let go of {serial}", 0.1)


def detach(context: FaultContext, place: Place) -> None:
    """Pull a disk out: take it away from its driver.

    Raises:
        RigError: its block device is still there.
    """
    server, block = context.lab.server, f"/sys/block/{place.disk}"
    (path,) = server.resolve([f"{block}/device"])
    device = path.rpartition("/")[2]
    server.put(f"{device}\n", f"{DRIVERS}/unbind")
    if server.exists(block):
        raise RigError(f"{server.name}: {place.disk} was unbound, and {block} is still there")


def attach(context: FaultContext, serial: str) -> None:
    """Plug a disk in again that `detach` has pulled out: the only one without a driver.

    Raises:
        RigError: there is not one such disk, its block device does not appear, or it would not be flushed.
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
    # A vhost-user disk comes up "write through" in User-mode Linux: then the guest would send no flush at all.
    server.put("write back\n", f"/sys/block/{names}/cache_type")
    cache = server.get(f"/sys/block/{names}/queue/write_cache").strip()
    if cache != "write back":
        raise RigError(f"{server.name}: {serial} ({names}) has its cache {cache}: nothing would be flushed")
    server.succeed(["ln", "--symbolic", "--force", "--no-dereference", f"/dev/{names}", disk_path(serial)])


@dataclass(frozen=True)
class _Incomplete(Fault):
    """A member is not there, or not yet rebuilt."""

    serial: str
    starts_dirty: bool = field(default=False, kw_only=True)
    """Whether the array is to start after a crash although it is dirty and degraded, which md refuses where no partial
    parity log and no journal closes the write hole (see `ExpectedDeviation`)."""

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return what it does, whether the member is missing or being rebuilt."""
        explanation = WRITE_HOLE if self.starts_dirty else None
        return FaultEffects(member_missing=True, kernel_messages=(DISK_FAILURE,), explanation=explanation)


@dataclass(frozen=True)
class Degraded(_Incomplete):
    """A member is declared faulty and taken out; it comes back when everything has been looked at."""

    name: ClassVar[str] = "degraded"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Take the member out.

        Raises:
            RequestError: it is none, or a spare would take its place at once.
        """
        array = context.stack.array
        upkeep = Upkeep.with_member(array, self.serial)
        if array.spec.spares:
            raise RequestError("a spare would take the place of the member at once", remedy="ask for `Rebuilding`")
        upkeep.take_out(self.serial)
        at_ns = now_ns()
        array.expected_deviation = allowed(array.expected_deviation, starts_dirty=self.starts_dirty).plus(
            absent=frozenset({self.serial})
        )
        found = next(one for one in array.require_effective().devices if one.device == upkeep.md.device)
        return FaultEvent(self.name, self.serial, at_ns, f"{found.device}: {found.degraded} member missing")

    def heal(self, context: FaultContext) -> None:
        """Give the member back and wait until it is rebuilt: with a bitmap what it missed, otherwise all of it."""
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
        """Prove it by the member's events, which have stood still."""
        behind = stale(members).get(self.serial)
        if behind is None:
            raise RigError(f"{self.serial} does not lag behind the other members, so it was none of those missing")
        return f"{self.serial} is {behind} events behind"


@dataclass(frozen=True)
class Rebuilding(_Incomplete):
    """A member is exchanged for a blank disk, and its rebuild is throttled to ``kib_s`` so that it goes on for long.

    Its metadata is wiped: with a bitmap, a member that is merely taken back would be rebuilt in an instant. Until its
    end an array that rebuilds is degraded.
    """

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "rebuilding"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Exchange the member and see that the rebuild begins.

        Raises:
            RequestError: it is no member, or a spare would take its place at once.
        """
        array = context.stack.array
        upkeep = Upkeep.with_member(array, self.serial)
        if array.spec.spares:
            raise RequestError("a spare would take the place of the member at once", remedy="leave the spare out")
        upkeep.throttle(self.kib_s)
        upkeep.take_out(self.serial)
        upkeep.put_in(self.serial)
        mine = frozenset({self.serial})
        array.expected_deviation = allowed(array.expected_deviation, starts_dirty=self.starts_dirty).plus(
            rebuilding=mine, renewed=mine
        )
        return begun(self.name, self.serial, upkeep.wait_for("recover"), self.kib_s)

    def heal(self, context: FaultContext) -> None:
        """Let it run at full speed, and wait for its end."""
        array = context.stack.array
        Upkeep.with_member(array, self.serial).throttle(None)
        array.wait_clean()
        array.expected_deviation = array.expected_deviation.minus(self.serial)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str:
        """Prove it by the member's own metadata, which says how far it is rebuilt."""
        not_ended(Upkeep.with_member(context.stack.array, self.serial), said)
        mine = members.get(self.serial)
        if mine is None or mine.recovery_offset is None:
            raise RigError(f"{self.serial} does not say that it is being rebuilt")
        return f"{self.serial} says that it is rebuilt up to sector {mine.recovery_offset}"


class _Throttled(Fault):
    """What md does of its own in the background of a whole array."""

    kib_s: int

    def heal(self, context: FaultContext) -> None:
        """Let it run at full speed, and wait for its end."""
        top(context).throttle(None)
        context.stack.array.wait_clean()


@dataclass(frozen=True)
class Resyncing(_Throttled):
    """All parity or copies are written anew: a resync as after a crash, or where a bitmap would spare it, a repair."""

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "resyncing"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return nothing that a verdict has to know: copies and parity are consistent in the end."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Begin it.

        Raises:
            RequirementMissing: the server has no console, so nobody could tell whether it ended before the fault.
        """
        bitmap = top(context).md.consistency_policy == "bitmap"
        return run_in_background(self.name, context, "repair" if bitmap else "resync", self.kib_s)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str:  # noqa: ARG002
        """Prove it by the kernel's silence: at its end it would have said so."""
        return not_ended(top(context), said)


@dataclass(frozen=True)
class Scrubbing(_Throttled):
    """A check reads everything and compares."""

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "scrubbing"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return nothing that a verdict has to know: a check only reads."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Begin it. Raises as `Resyncing`."""
        return run_in_background(self.name, context, "check", self.kib_s)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str:  # noqa: ARG002
        """Prove it by the kernel's silence: at its end it would have said so."""
        return not_ended(top(context), said)


@dataclass(frozen=True)
class Reshaping(_Throttled):
    """An array of parity takes in its spares as members, and every stripe is laid out anew. It stays so."""

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "reshaping"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return what it does."""
        return FaultEffects(member_missing=True)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Begin it.

        Raises:
            RequestError: it has no spare, or md cannot reshape such an array.
        """
        array, upkeep = context.stack.array, top(context)
        if upkeep.md.level not in {Level.RAID4, Level.RAID5, Level.RAID6} or not upkeep.md.spares:
            raise RequestError("only a RAID4, 5 or 6 with a spare can be reshaped to more members")
        if upkeep.md.consistency_policy in {"ppl", "journal"}:
            raise RequestError(f"md does not reshape an array with consistency policy {upkeep.md.consistency_policy}")
        members = len(upkeep.md.members) + len(upkeep.md.spares)
        upkeep.throttle(self.kib_s)
        upkeep.grow(members)
        array.expected_deviation = replace(array.expected_deviation, raid_disks=members)
        return begun(self.name, upkeep.md.device, upkeep.wait_for("reshape"), self.kib_s)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str:
        """Prove it by the members' own metadata, which says how far it has come."""
        not_ended(top(context), said)
        places = {one.reshape_position for one in members.values()}
        if not places or None in places:
            raise RigError("not all members say that they are being reshaped")
        return f"members say that the reshape has come to {', '.join(f'{place} KiB' for place in places)}"


def top(context: FaultContext) -> Upkeep:
    """Return the md device that carries the file system.

    Raises:
        RequestError: it keeps nothing twice.
    """
    array = context.stack.array
    return Upkeep(array, array.spec.devices[-1]).require_redundancy()


def run_in_background(fault: str, context: FaultContext, action: Action, kib_s: int) -> FaultEvent:
    """Begin what md does in the background, throttled.

    Raises:
        RequirementMissing: the server has no console.
    """
    if not context.lab.server.consoles:
        raise RequirementMissing(f"{context.lab.server.name} has no console that would tell when the {action} ended")
    upkeep = top(context)
    upkeep.throttle(kib_s)
    upkeep.begin(action)
    return begun(fault, upkeep.md.device, upkeep.wait_for(action), kib_s)


def begun(fault: str, target: str, now: Progress, kib_s: int) -> FaultEvent:
    """Return what was injected: something that runs in the background."""
    proof = f"{now.action} at sector {now.done:,} of {now.total:,}, {kib_s} KiB/s at most"
    return FaultEvent(fault, target, now_ns(), proof)


def not_ended(upkeep: Upkeep, said: str | None) -> str:
    """Return the proof that what ran in the background had not ended.

    Raises:
        RigError: the kernel said that it had.
    """
    if said is None:
        return "nobody heard the kernel"
    if ended := ended_in(said, upkeep.md):
        raise RigError(f"the fault came too late: {ended.strip()!r}", remedy="throttle it more")
    return f"until its end the kernel had not said that {upkeep.md.name} was done"


def allowed(expected_deviation: ExpectedDeviation, *, starts_dirty: bool) -> ExpectedDeviation:
    """Return what may be left, with or without the consent to start it dirty and degraded."""
    return replace(expected_deviation, starts_dirty=expected_deviation.starts_dirty or starts_dirty)
