"""Conditions of an array (degraded, rebuild, resync, check, reshape), and functions for faults of its members."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar, NamedTuple, Self, TypeVar

from raidproof.core.blame import Blame, Culprit
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import read_files, whole_number
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.disk_fault import DiskFaultKind
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.storage.array import LEVELS, Array, Identity, stale
from raidproof.storage.array.level import listed
from raidproof.storage.array.upkeep import Action, Progress, Upkeep, ended_in
from raidproof.storage.member import disk_path
from raidproof.storage.stack import StackSpec

ALARMS = (
    r"I/O error, dev vd",
    r"Buffer I/O error on dev vd\w+, logical block \d+, async page read",
    r"Disk failure on",
    r"read error (?:not |NOT )?correct",
    r"unrecoverable I/O read error|Too many read errors",
    r"md: (?:super_written gets error|vd\w+ flush io error)|Cannot continue operation|vd\w+: unable to read RDB block",
)
"""Regular expressions for the kernel log lines that a fault of a member excuses: they report the failing member."""
NOTICE_DEADLINE_S = 60.0
"""Time limit in seconds for md to detect a fault of a member, and to remove a faulty member."""
FAST_KIB_S = 1_000_000
"""Rate of background work in KiB/s that `fast` sets. md's default minimum rate is 1000 KiB/s."""
DRIVERS = "/sys/bus/virtio/drivers/virtio_blk"
DEVICES = "/sys/bus/virtio/devices"

KIB_PER_S = 1000
"""Default rate of throttled background work in KiB/s of each member: a member of 288 MiB takes five minutes.

It equals md's default minimum (speed_limit_min, md(4)).
"""
WRITE_HOLE = Blame(
    culprit=Culprit.WRITE_HOLE, detail="the array was started dirty and degraded, because the scenario requested it"
)
DISK_FAILURE = r"md/raid\S*: Disk failure on"
"""Regular expression for the kernel log line about a member that was declared faulty."""


class Place(NamedTuple):
    """The names by which sysfs lists a member of an array."""

    md: str
    """The kernel's name of the md device: ``md0``."""
    disk: str
    """The kernel's name of the disk: ``vdb``."""

    @property
    def directory(self) -> str:
        """The sysfs directory of the member's attributes in md."""
        return f"/sys/block/{self.md}/md/dev-{self.disk}"

    def words(self, context: FaultContext) -> tuple[str, ...]:
        """Return the flags in the member's md state file; empty if md has removed the member."""
        path = f"{self.directory}/state"
        found = context.lab.server.read_files([path])
        return tuple(found[path].split(",")) if path in found else ()

    def degraded(self, context: FaultContext) -> int:
        """Return the number of members that the md device lacks."""
        path = f"/sys/block/{self.md}/md/degraded"
        return whole_number(read_files(context.lab.server, [path])[path].strip(), "degraded")


def place_of(context: FaultContext, serial: str) -> Place:
    """Return the sysfs names of the member with this serial.

    Raises:
        RequestError: the array has no member with this serial, or its md device has no redundancy.
    """
    md = context.stack.array.upkeep(serial).md
    found = context.lab.server.succeed(["realpath", "--canonicalize-missing", disk_path(serial)])
    return Place(md.name, found.strip().removeprefix("/dev/"))


def hits(context: FaultContext, serial: str, kind: DiskFaultKind) -> int:
    """Return the number of requests to a disk that a disk fault of this kind has affected."""
    return context.lab.disks.counters()[serial].struck_by(kind)


def provoke(context: FaultContext, noticed: Callable[[], bool], what: str) -> None:
    """Write to the file system, and so to every member, until ``noticed`` returns True.

    md does not detect a fault of a member while the array is idle. ``what`` completes the message "waiting for ...".

    Raises:
        DeadlineExceeded: ``noticed`` still returns False after `NOTICE_DEADLINE_S` seconds.
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
    """Let md's background work run at full speed while the body runs, even if clients use the array.

    ``serial`` names a member of the md device.
    """
    upkeep = context.stack.array.upkeep(serial)
    upkeep.throttle(FAST_KIB_S)
    try:
        yield
    finally:
        upkeep.throttle(None)


def drop(context: FaultContext, serial: str) -> None:
    """Remove a faulty member from its array, even if its block device is gone.

    Raises:
        DeadlineExceeded: md does not remove the member within `NOTICE_DEADLINE_S` seconds.
    """
    place, server = place_of(context, serial), context.lab.server

    def gone() -> bool | None:
        # The write fails with EBUSY while a request to the member is in flight.
        server.put_all({f"{place.directory}/state": "remove\n"})
        return not place.words(context) or None

    wait_until(gone, Deadline.after(NOTICE_DEADLINE_S), f"{place.md} to remove {serial}", 0.1)


def detach(context: FaultContext, place: Place) -> None:
    """Remove the block device of a disk: unbind the disk from its driver.

    Raises:
        RigError: the block device still exists.
    """
    server, block = context.lab.server, f"/sys/block/{place.disk}"
    (path,) = server.resolve([f"{block}/device"])
    device = path.rpartition("/")[2]
    server.put(f"{device}\n", f"{DRIVERS}/unbind")
    if server.exists(block):
        raise RigError(f"{server.name}: {place.disk} was unbound from its driver, but {block} still exists")


def attach(context: FaultContext, serial: str) -> None:
    """Bind the disk that `detach` has unbound, which is the only virtio device without a driver.

    Raises:
        RigError: not exactly one virtio device has no driver, or the cache mode of the disk is not "write back".
    """
    server = context.lab.server
    listed = server.succeed(["find", f"{DEVICES}/", "-mindepth", "1", "-maxdepth", "1", "-printf", "%f\\n"]).split()
    idle = [one for one in listed if not server.exists(f"{DEVICES}/{one}/driver")]
    if len(idle) != 1:
        raise RigError(
            f"{server.name}: {serial} cannot be attached: exactly one virtio device should have no driver, found "
            f"{', '.join(idle) or 'none'}"
        )
    server.put(f"{idle[0]}\n", f"{DRIVERS}/bind")
    names = server.succeed(
        ["find", f"{DEVICES}/{idle[0]}/block/", "-mindepth", "1", "-maxdepth", "1", "-printf", "%f"]
    )
    # User-mode Linux sets a new vhost-user disk to "write through", and then sends it no flushes.
    server.put("write back\n", f"/sys/block/{names}/cache_type")
    cache = server.get(f"/sys/block/{names}/queue/write_cache").strip()
    if cache != "write back":
        raise RigError(
            f"{server.name}: {serial} ({names}) has write_cache {cache!r}, not 'write back': the kernel would send it "
            "no flushes"
        )
    server.succeed(["ln", "--symbolic", "--force", "--no-dereference", f"/dev/{names}", disk_path(serial)])


def can_lose(stack: StackSpec) -> bool:
    """Return whether members of the stack's array can be lost and replaced, and md's work on it be throttled."""
    array = stack.array
    return array.md_files and array.kind.redundant and not array.encrypts and array.disks == array.members


M = TypeVar("M", bound=Fault)


def drawn_member(kind: Callable[[str], M], rng: Random, stack: StackSpec) -> M | None:
    """Return a fault of a random member; None if members of the array cannot be lost and replaced."""
    return kind(rng.choice(stack.array.members)) if can_lose(stack) else None


@contextmanager
def _changing(context: FaultContext) -> Iterator[None]:
    """Let the body change the array's members; the whole stack is offline meanwhile if the kind requires that."""
    stack = context.stack
    if not stack.array.removes_offline:
        yield
        return
    stack.deactivate()
    yield
    stack.activate()


def lacking(array: Array) -> list[str]:
    """Return a sentence for each device of an array that lacks members. The rest must be as requested.

    Raises:
        NotEffective: an effective value differs from the requested one, and no expected deviation allows it.
    """
    found = array.require_effective().devices
    return [f"{one.device}: {one.degraded} member missing" for one in found if one.degraded]


@dataclass(frozen=True)
class _Incomplete(Fault):
    """A condition in which one member is missing or not yet rebuilt."""

    serial: str
    """The serial of the member."""
    lasting: ClassVar[bool] = True
    starts_dirty: bool = field(default=False, kw_only=True)
    """Whether to start the array after a crash although it is dirty and degraded.

    By default md refuses, unless a partial parity log or a journal closes the write hole (see `ExpectedDeviation`).
    """

    @property
    def lacked(self) -> frozenset[str]:
        """The serial of the member."""
        return frozenset({self.serial})

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: a missing member, messages about it, and the write hole if dirty."""
        explanation = WRITE_HOLE if self.starts_dirty else None
        messages = (DISK_FAILURE, stack.array.lost)
        return FaultEffects(member_missing=True, kernel_messages=messages, explanation=explanation)

    def _upkeep(self, context: FaultContext) -> Upkeep:
        """Return the object that replaces members of the md device that has this fault's member.

        Raises:
            RequestError: no md device has this member, or the array has a spare that would replace it at once.
        """
        return context.stack.array.upkeep(self.serial).require_no_spare(self.serial)

    def _expect(self, array: Array, **more: frozenset[str]) -> None:
        """Add to the array's expected deviation: ``starts_dirty`` of this fault, and the serials in ``more``."""
        expected = array.expected_deviation
        dirty = expected.starts_dirty or self.starts_dirty
        array.expected_deviation = replace(expected, starts_dirty=dirty).plus(**more)


@dataclass(frozen=True)
class Degraded(_Incomplete):
    """A member is taken away, and the array works without it. `heal` adds it again."""

    name: ClassVar[str] = "degraded"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:
        """Return the fault of a random member."""
        return drawn_member(cls, rng, stack)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Take the member away, and wait until the kernel reports a degraded array.

        Raises:
            RequestError: the array has no such member, or has a spare that would replace it at once.
            RequirementMissing: members of this kind of array cannot be taken away.
            DeadlineExceeded: the kernel does not report a degraded array within `NOTICE_DEADLINE_S` seconds.
        """
        array = context.stack.array
        with _changing(context):
            array.take_out(self.serial)
            at_ns = now_ns()
            self._expect(array, absent=frozenset({self.serial}))
        if not lacking(array):
            provoke(context, lambda: bool(lacking(array)), f"the kernel to detect that {self.serial} is gone")
        return FaultEvent(self.name, self.serial, at_ns, "; ".join(lacking(array)))

    def heal(self, context: FaultContext) -> None:
        """Add the member again, and wait until it is rebuilt: with a bitmap, only regions written meanwhile."""
        array = context.stack.array
        with _changing(context):
            array.take_back(self.serial)
            array.wait_clean()
            array.expected_deviation = array.expected_deviation.minus(self.serial)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], kernel_log: str | None) -> str:  # noqa: ARG002
        """Return as proof by how many events the member's superblock is behind the other members'.

        Raises:
            RigError: the member's superblock is not behind.
        """
        behind = stale(members).get(self.serial)
        if behind is None:
            raise RigError(
                f"fault {self.name}: {self.serial} was not missing when the crash test's main fault was "
                "injected: its superblock has the events "
                "of the other members"
            )
        return f"the superblock of {self.serial} is {behind} events behind"


@dataclass(frozen=True)
class Rebuilding(_Incomplete):
    """A member is removed, its metadata erased, and added again. md rebuilds it slowly, at ``kib_s`` KiB/s.

    Without the erasure, an array with a bitmap would rebuild the member at once. The array is degraded until the
    rebuild ends.
    """

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "rebuilding"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Remove and add the member, and wait until its rebuild begins.

        Raises:
            RequestError: no md device has this member, or the array has a spare that would replace it at once.
        """
        upkeep = self._upkeep(context)
        upkeep.throttle(self.kib_s)
        upkeep.take_out(self.serial)
        upkeep.put_in(self.serial)
        mine = frozenset({self.serial})
        self._expect(context.stack.array, rebuilding=mine, renewed=mine)
        return begun(self.name, self.serial, upkeep.wait_for("recover"), self.kib_s)

    def heal(self, context: FaultContext) -> None:
        """Remove the throttle from the rebuild, and wait until the array is in sync."""
        array = context.stack.array
        array.upkeep(self.serial).throttle(None)
        array.wait_clean()
        array.expected_deviation = array.expected_deviation.minus(self.serial)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], kernel_log: str | None) -> str:
        """Return as proof the recovery offset in the member's superblock.

        Raises:
            RigError: the kernel log has a message of the rebuild's end, or the superblock has no recovery offset.
        """
        not_ended(context.stack.array.upkeep(self.serial), kernel_log)
        mine = members.get(self.serial)
        if mine is None or mine.recovery_offset is None:
            raise RigError(
                f"fault {self.name}: the rebuild of {self.serial} had ended or not begun when the crash test's "
                "main fault was injected: its "
                "superblock has no recovery offset"
            )
        return f"{self.serial} is rebuilt up to sector {mine.recovery_offset}"


class _Throttled(Fault):
    """A condition in which md works in the background on a whole md device, throttled to ``kib_s`` KiB/s."""

    kib_s: int
    lasting: ClassVar[bool] = True

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: none, because background work leaves copies and parity consistent."""
        return FaultEffects()

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], kernel_log: str | None) -> str:  # noqa: ARG002
        """Return the proof that the background work had not ended. Raises as `not_ended`."""
        return not_ended(top(context), kernel_log)

    def heal(self, context: FaultContext) -> None:
        """Remove the throttle from the background work, and wait until the array is in sync."""
        top(context).throttle(None)
        context.stack.array.wait_clean()


@dataclass(frozen=True)
class Resyncing(_Throttled):
    """md rewrites all parity or copies: by a resync as after a crash, or on an array with a bitmap, by a repair."""

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "resyncing"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:  # noqa: ARG003
        """Return the fault, if the kind of array has it."""
        return cls() if can_lose(stack) else None

    def inject(self, context: FaultContext) -> FaultEvent:
        """Start the resync or repair. Raises as `run_in_background`."""
        bitmap = top(context).md.consistency_policy == "bitmap"
        return run_in_background(self.name, context, "repair" if bitmap else "resync", self.kib_s)


@dataclass(frozen=True)
class Scrubbing(_Throttled):
    """md checks the array: it reads all members, and compares copies or parity."""

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "scrubbing"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:  # noqa: ARG003
        """Return the fault, if the kind of array has it."""
        return cls() if can_lose(stack) else None

    def inject(self, context: FaultContext) -> FaultEvent:
        """Start the check. Raises as `run_in_background`."""
        return run_in_background(self.name, context, "check", self.kib_s)


@dataclass(frozen=True)
class Reshaping(_Throttled):
    """md reshapes a RAID4, 5 or 6: its spares become members, so that every stripe gets wider.

    After the test the array still has the additional members.
    """

    kib_s: int = KIB_PER_S
    name: ClassVar[str] = "reshaping"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: the new members are not in sync before the reshape ends."""
        return FaultEffects(member_missing=True)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Start the reshape.

        Raises:
            RequestError: the array has no parity or no spare, or a consistency policy with which md does not reshape.
        """
        array, upkeep = context.stack.array, top(context)
        if not LEVELS[upkeep.md.level].parity or not upkeep.md.spares:
            others = listed(lambda kind: kind.parity > 0, "or")
            raise RequestError(
                f"fault {self.name}: {upkeep.md.device} is a RAID{upkeep.md.level} with "
                f"{len(upkeep.md.spares)} spares, but only a RAID{others} with a spare can be reshaped to more members"
            )
        if upkeep.md.consistency_policy in {"ppl", "journal"}:
            raise RequestError(
                f"fault {self.name}: md does not reshape an array with consistency policy "
                f"{upkeep.md.consistency_policy}"
            )
        members = len(upkeep.md.members) + len(upkeep.md.spares)
        upkeep.throttle(self.kib_s)
        upkeep.grow(members)
        array.expected_deviation = replace(array.expected_deviation, raid_disks=members)
        return begun(self.name, upkeep.md.device, upkeep.wait_for("reshape"), self.kib_s)

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], kernel_log: str | None) -> str:
        """Return as proof the reshape position in the members' superblocks.

        Raises:
            RigError: the kernel log has a message of the reshape's end, or a superblock has no reshape position.
        """
        not_ended(top(context), kernel_log)
        positions = {one.reshape_position for one in members.values()}
        if not positions or None in positions:
            raise RigError(
                f"fault {self.name}: the reshape had ended or not begun when the crash test's main fault was "
                "injected: not all superblocks have a "
                "reshape position"
            )
        return f"the reshape has reached {', '.join(f'{position} KiB' for position in positions)}"


def top(context: FaultContext) -> Upkeep:
    """Return the object that starts and throttles work of the md device that carries the file system.

    Raises:
        RequestError: this md device has no redundancy.
    """
    return context.stack.array.upkeep()


def run_in_background(fault: str, context: FaultContext, action: Action, kib_s: int) -> FaultEvent:
    """Start throttled background work of md for the fault of this name, and wait until the work runs.

    Raises:
        RequirementMissing: the server has no console, whose kernel log must show that the work has not ended.
        RequestError: the md device with the file system has no redundancy.
        DeadlineExceeded: the work does not start.
    """
    if not context.lab.server.consoles:
        raise RequirementMissing(
            f"fault {fault}: {context.lab.server.name} has no console, whose kernel log must show whether the "
            f"{action} has ended"
        )
    upkeep = top(context)
    upkeep.throttle(kib_s)
    upkeep.begin(action)
    return begun(fault, upkeep.md.device, upkeep.wait_for(action), kib_s)


def begun(fault: str, target: str, now: Progress, kib_s: int) -> FaultEvent:
    """Return the event for a fault whose background work has started; ``now`` is the progress of the work."""
    proof = f"{now.action} at sector {now.done:,} of {now.total:,}, {kib_s} KiB/s at most"
    return FaultEvent(fault, target, now_ns(), proof)


def not_ended(upkeep: Upkeep, kernel_log: str | None) -> str:
    """Return the proof that background work of an md device had not ended when the crash test injected its main fault.

    ``kernel_log`` is the kernel log up to the main fault; None if it was not recorded.

    Raises:
        RigError: the kernel log has a message that the background work ended.
    """
    if kernel_log is None:
        return "the kernel log was not recorded"
    if ended := ended_in(kernel_log, upkeep.md):
        raise RigError(
            f"the crash test's main fault was injected too late: the background work of {upkeep.md.name} had already "
            f"ended: {ended.strip()!r}",
            remedy="use a lower rate, kib_s",
        )
    return f"the kernel log has no message that the background work of {upkeep.md.name} ended"
