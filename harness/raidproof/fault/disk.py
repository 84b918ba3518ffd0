"""Faults of member disks: they fail, vanish, slow down, and drop flushes."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.core.errors import NotRecovered, RigError
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.flaw import FlawKind, drop_flushes, failed, slow
from raidproof.fault.fault import Injected, NobodyGoesDown, Scene
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

    def inject(self, scene: Scene) -> Injected:
        """Let it fail, and wait until md has noticed."""
        place = place_of(scene, self.serial)
        begun_ns = now_ns()
        scene.lab.disks.set_flaw(self.serial, failed())
        provoke(scene, lambda: "faulty" in place.words(scene), f"md to notice that {self.serial} has failed")
        errors = struck(scene, self.serial, FlawKind.FAILED)
        if not errors:
            raise RigError(f"{self.serial} is faulty, yet no request to it has failed")
        proof = f"{errors} requests failed, md says {','.join(place.words(scene))}, degraded {place.degraded(scene)}"
        return Injected(self.name, self.serial, begun_ns, proof)

    def heal(self, scene: Scene) -> None:
        """Put a sound drive in its place, and wait until it is rebuilt.

        Raises:
            DeadlineExceeded: it is not in time.
        """
        begin_rebuild(scene, self.serial)
        with fast(scene, self.serial):
            scene.stack.array.wait_clean(REBUILD_DEADLINE_S)


@dataclass(frozen=True)
class MemberVanishes(_Member):
    """One member is pulled out: its block device is gone. Healed: it is plugged in again, and rebuilt."""

    name: ClassVar[str] = "member-vanishes"
    alarms: ClassVar[tuple[str, ...]] = ALARMS

    def inject(self, scene: Scene) -> Injected:
        """Pull it out, and wait until md has noticed."""
        place = place_of(scene, self.serial)
        begun_ns = now_ns()
        detach(scene, place)
        provoke(scene, lambda: "faulty" in (place.words(scene) or ("faulty",)), f"md to miss {self.serial}")
        proof = f"/sys/block/{place.disk} is gone, degraded {place.degraded(scene)}"
        return Injected(self.name, self.serial, begun_ns, proof)

    def heal(self, scene: Scene) -> None:
        """Plug it in, and wait until it is rebuilt.

        Raises:
            RigError: its block device does not appear.
            DeadlineExceeded: it is not rebuilt in time.
        """
        drop(scene, self.serial)
        attach(scene, self.serial)
        begin_rebuild(scene, self.serial)
        with fast(scene, self.serial):
            scene.stack.array.wait_clean(REBUILD_DEADLINE_S)


@dataclass(frozen=True)
class SecondMemberFails(_Member):
    """While the array is rebuilt onto a new drive in the place of ``other``, ``serial`` fails too."""

    other: str
    name: ClassVar[str] = "second-member-fails"
    alarms: ClassVar[tuple[str, ...]] = ALARMS
    explains: ClassVar[Blame] = Blame(
        culprit=Culprit.DISKS, cause=Cause.SECOND_MEMBER_FAILED, detail=Cause.SECOND_MEMBER_FAILED
    )
    """Whose fault a loss is."""

    def inject(self, scene: Scene) -> Injected:
        """Let one fail, begin the rebuild, and let another one fail in it.

        Raises:
            RigError: the rebuild was over before.
        """
        array = scene.stack.array
        first = MemberFails(self.other).inject(scene)
        upkeep = Upkeep.with_member(array, self.other)
        upkeep.throttle(SLOW_REBUILD_KIB_S)
        begin_rebuild(scene, self.other)
        reached = upkeep.wait_for("recover")
        place = place_of(scene, self.serial)
        scene.lab.disks.set_flaw(self.serial, failed())
        provoke(scene, lambda: "faulty" in place.words(scene), f"md to notice that {self.serial} has failed")
        at_ns = now_ns()
        degraded = place.degraded(scene)
        if degraded < 2:
            raise RigError(f"the rebuild of {self.other} was over before {self.serial} failed")
        proof = f"{first.proof}; rebuilt {reached.done} of {reached.total} sectors; then degraded {degraded}"
        return Injected(self.name, self.serial, at_ns, proof)

    def heal(self, scene: Scene) -> None:
        """Say that nothing can be healed where the level does not survive two failures.

        Raises:
            NotRecovered: the array has failed.
        """
        array = scene.stack.array
        broken = [one for one in array.state().devices if one.array_state == "broken" or one.degraded > 1]
        if broken and str(broken[0].level) not in {"6", "10"}:
            said = ", ".join(f"{one.device} {one.array_state}, {one.degraded} members missing" for one in broken)
            raise NotRecovered(f"the array has failed: {said}")
        for serial in (self.other, self.serial):
            # The first one is still being rebuilt.
            if "faulty" in place_of(scene, serial).words(scene):
                begin_rebuild(scene, serial)
        with fast(scene, self.serial):
            array.wait_clean(REBUILD_DEADLINE_S)


@dataclass(frozen=True)
class SlowMember(_Member):
    """Every request to one member takes ``ms`` longer."""

    ms: int = 50
    name: ClassVar[str] = "slow-member"

    def inject(self, scene: Scene) -> Injected:
        """Slow it down, and see that it is slow."""
        scene.lab.disks.set_flaw(self.serial, slow(self.ms))
        at_ns = now_ns()
        provoke(scene, lambda: struck(scene, self.serial, FlawKind.SLOW) > 0, f"a request to {self.serial}")
        times = struck(scene, self.serial, FlawKind.SLOW)
        return Injected(self.name, self.serial, at_ns, f"{times} requests took {self.ms} ms longer")

    def heal(self, scene: Scene) -> None:
        """Let it be as fast as the others."""
        scene.lab.disks.clear_flaws([self.serial])


@dataclass(frozen=True)
class FlushesDropped(_Member):
    """One member acknowledges flushes and keeps nothing: the next ``count``, or all."""

    count: int | None = None
    name: ClassVar[str] = "flushes-dropped"

    def inject(self, scene: Scene) -> Injected:
        """Let it lie, and see that it has."""
        scene.lab.disks.set_flaw(self.serial, drop_flushes(self.count))
        at_ns = now_ns()
        provoke(scene, lambda: struck(scene, self.serial, FlawKind.DROP_FLUSHES) > 0, f"a flush of {self.serial}")
        times = struck(scene, self.serial, FlawKind.DROP_FLUSHES)
        return Injected(self.name, self.serial, at_ns, f"{times} flushes dropped so far")

    def heal(self, scene: Scene) -> None:
        """Let it be honest from now on."""
        scene.lab.disks.clear_flaws([self.serial])


def begin_rebuild(scene: Scene, serial: str) -> None:
    """Put a sound drive in the place of a member that has failed; md begins to rebuild it."""
    array = scene.stack.array
    drop(scene, serial)
    scene.lab.disks.clear_flaws([serial])
    array.leftover = array.leftover.plus(renewed=frozenset({serial}))
    Upkeep.with_member(array, serial).put_in(serial)
    wait_until(
        lambda: place_of(scene, serial).words(scene), Deadline.after(REBUILD_DEADLINE_S), f"{serial} to be a member"
    )
