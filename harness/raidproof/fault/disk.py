"""Faults of member disks: they fail, vanish, slow down, and drop flushes."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.core.errors import NotRecovered, RigError
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.flaw import FlawKind, drop_flushes, failed, slow
from raidproof.fault.fault import FaultContext, FaultEvent, NobodyGoesDown
from raidproof.fault.member import ALARMS, attach, detach, drop, fast, place_of, provoke, struck
from raidproof.storage.array.array import SYNC_DEADLINE_S
from raidproof.storage.array.upkeep import Upkeep

REBUILD_DEADLINE_S = SYNC_DEADLINE_S
SLOW_REBUILD_KIB_S = 2000
"""So slow that the second failure certainly falls into the rebuild."""


@dataclass(frozen=True)
class _Member(NobodyGoesDown):
    """A fault of one member disk; no machine goes down."""

    serial: str


@dataclass(frozen=True)
class MemberFails(_Member):
    """From now on every request to one member ends with an error. Healed: a new drive, rebuilt, is in its place."""

    name: ClassVar[str] = "member-fails"
    alarms: ClassVar[tuple[str, ...]] = ALARMS

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let it fail, and wait until md has noticed."""
        place = place_of(context, self.serial)
        begun_ns = now_ns()
        context.lab.disks.set_flaw(self.serial, failed())
        provoke(context, lambda: "faulty" in place.words(context), f"md to notice that {self.serial} has failed")
        errors = struck(context, self.serial, FlawKind.FAILED)
        if not errors:
            raise RigError(f"{self.serial} is faulty, yet no request to it has failed")
        proof = (
            f"{errors} requests failed, md says {','.join(place.words(context))}, degraded {place.degraded(context)}"
        )
        return FaultEvent(self.name, self.serial, begun_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Put a sound drive in its place, and wait until it is rebuilt.

        Raises:
            DeadlineExceeded: it is not in time.
        """
        begin_rebuild(context, self.serial)
        with fast(context, self.serial):
            context.stack.array.wait_clean(REBUILD_DEADLINE_S)


@dataclass(frozen=True)
class MemberVanishes(_Member):
    """One member is pulled out: its block device is gone. Healed: it is plugged in again, and rebuilt."""

    name: ClassVar[str] = "member-vanishes"
    alarms: ClassVar[tuple[str, ...]] = ALARMS

    def inject(self, context: FaultContext) -> FaultEvent:
        """Pull it out, and wait until md has noticed."""
        place = place_of(context, self.serial)
        begun_ns = now_ns()
        detach(context, place)
        provoke(context, lambda: "faulty" in (place.words(context) or ("faulty",)), f"md to miss {self.serial}")
        proof = f"/sys/block/{place.disk} is gone, degraded {place.degraded(context)}"
        return FaultEvent(self.name, self.serial, begun_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Plug it in, and wait until it is rebuilt.

        Raises:
            RigError: its block device does not appear.
            DeadlineExceeded: it is not rebuilt in time.
        """
        drop(context, self.serial)
        attach(context, self.serial)
        begin_rebuild(context, self.serial)
        with fast(context, self.serial):
            context.stack.array.wait_clean(REBUILD_DEADLINE_S)


@dataclass(frozen=True)
class SecondMemberFails(_Member):
    """While the array is rebuilt onto a new drive in the place of ``other``, ``serial`` fails too."""

    other: str
    name: ClassVar[str] = "second-member-fails"
    alarms: ClassVar[tuple[str, ...]] = ALARMS
    explains: ClassVar[Blame] = Blame(culprit=Culprit.DISKS, cause=Cause.SECOND_MEMBER_FAILED)
    """Whose fault a loss is."""

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let one fail, begin the rebuild, and let another one fail in it.

        Raises:
            RigError: the rebuild was over before.
        """
        array = context.stack.array
        first = MemberFails(self.other).inject(context)
        upkeep = Upkeep.with_member(array, self.other)
        upkeep.throttle(SLOW_REBUILD_KIB_S)
        begin_rebuild(context, self.other)
        reached = upkeep.wait_for("recover")
        place = place_of(context, self.serial)
        context.lab.disks.set_flaw(self.serial, failed())
        provoke(context, lambda: "faulty" in place.words(context), f"md to notice that {self.serial} has failed")
        at_ns = now_ns()
        degraded = place.degraded(context)
        if degraded < 2:
            raise RigError(f"the rebuild of {self.other} was over before {self.serial} failed")
        proof = f"{first.proof}; rebuilt {reached.done} of {reached.total} sectors; then degraded {degraded}"
        return FaultEvent(self.name, self.serial, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Say that nothing can be healed where the level does not survive two failures.

        Raises:
            NotRecovered: the array has failed.
        """
        array = context.stack.array
        broken = [one for one in array.state().devices if one.array_state == "broken" or one.degraded > 1]
        if broken and str(broken[0].level) not in {"6", "10"}:
            said = ", ".join(f"{one.device} {one.array_state}, {one.degraded} members missing" for one in broken)
            raise NotRecovered(f"the array has failed: {said}")
        for serial in (self.other, self.serial):
            # The first one is still being rebuilt.
            if "faulty" in place_of(context, serial).words(context):
                begin_rebuild(context, serial)
        with fast(context, self.serial):
            array.wait_clean(REBUILD_DEADLINE_S)


@dataclass(frozen=True)
class SlowMember(_Member):
    """Every request to one member takes ``ms`` longer."""

    ms: int = 50
    name: ClassVar[str] = "slow-member"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Slow it down, and see that it is slow."""
        context.lab.disks.set_flaw(self.serial, slow(self.ms))
        at_ns = now_ns()
        provoke(context, lambda: struck(context, self.serial, FlawKind.SLOW) > 0, f"a request to {self.serial}")
        times = struck(context, self.serial, FlawKind.SLOW)
        return FaultEvent(self.name, self.serial, at_ns, f"{times} requests took {self.ms} ms longer")

    def heal(self, context: FaultContext) -> None:
        """Let it be as fast as the others."""
        context.lab.disks.clear_flaws([self.serial])


@dataclass(frozen=True)
class FlushesDropped(_Member):
    """One member acknowledges flushes and keeps nothing: the next ``count``, or all."""

    count: int | None = None
    name: ClassVar[str] = "flushes-dropped"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let it lie, and see that it has."""
        context.lab.disks.set_flaw(self.serial, drop_flushes(self.count))
        at_ns = now_ns()
        provoke(context, lambda: struck(context, self.serial, FlawKind.DROP_FLUSHES) > 0, f"a flush of {self.serial}")
        times = struck(context, self.serial, FlawKind.DROP_FLUSHES)
        return FaultEvent(self.name, self.serial, at_ns, f"{times} flushes dropped so far")

    def heal(self, context: FaultContext) -> None:
        """Let it be honest from now on."""
        context.lab.disks.clear_flaws([self.serial])


def begin_rebuild(context: FaultContext, serial: str) -> None:
    """Put a sound drive in the place of a member that has failed; md begins to rebuild it."""
    array = context.stack.array
    drop(context, serial)
    context.lab.disks.clear_flaws([serial])
    array.expected_deviation = array.expected_deviation.plus(renewed=frozenset({serial}))
    Upkeep.with_member(array, serial).put_in(serial)
    wait_until(
        lambda: place_of(context, serial).words(context),
        Deadline.after(REBUILD_DEADLINE_S),
        f"{serial} to be a member",
    )
