"""Faults of member disks: they fail, vanish, slow down, drop flushes, or hold wrong data."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.core.errors import NotRecovered, RequirementMissing, RigError
from raidproof.core.layer import read_files
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.client import EngineClient
from raidproof.disk.disk_fault import DiskFaultKind, bad_sectors, drop_flushes, failed, slow
from raidproof.fault.array import ALARMS, attach, detach, drop, fast, hits, place_of, provoke
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.fault.machine import CleanReboot
from raidproof.storage.array.array import SYNC_DEADLINE_S, Upkeep
from raidproof.storage.array.spec import disk_path
from raidproof.storage.stack import StackSpec

REBUILD_DEADLINE_S = SYNC_DEADLINE_S
SLOW_REBUILD_KIB_S = 2000
"""KiB/s; slow enough for the second failure to fall into the rebuild."""

BLOCK = 4096
ROT = Blame(culprit=Culprit.DISKS, cause=Cause.CHANGED_CONTENT)
SECOND_FAILED = Blame(culprit=Culprit.DISKS, cause=Cause.SECOND_MEMBER_FAILED)
UNREADABLE = Blame(culprit=Culprit.DISKS, cause=Cause.UNREADABLE_SECTORS)
_PIECE = 1 << 20


@dataclass(frozen=True)
class _Member(Fault):
    """A fault of one member disk; no machine goes down."""

    serial: str

    def heal(self, context: FaultContext) -> None:
        """Let the drive work as before."""
        context.lab.disks.clear_disk_faults([self.serial])


@dataclass(frozen=True)
class _Lost(_Member):
    """A fault after which md has one member less."""

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(member_missing=True, kernel_messages=ALARMS)

    def heal(self, context: FaultContext) -> None:
        """Put a working drive in its place, and wait until it is rebuilt.

        Raises:
            DeadlineExceeded: the rebuild does not end in time.
        """
        begin_rebuild(context, self.serial)
        with fast(context, self.serial):
            context.stack.array.wait_clean(REBUILD_DEADLINE_S)


@dataclass(frozen=True)
class MemberFails(_Lost):
    """Every request to one member fails. Healed: a new, rebuilt drive is in its place."""

    name: ClassVar[str] = "member-fails"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Set the disk fault, and wait until md has marked the member faulty."""
        place = place_of(context, self.serial)
        begun_ns = now_ns()
        context.lab.disks.set_disk_fault(self.serial, failed())
        provoke(context, lambda: "faulty" in place.words(context), f"md to notice that {self.serial} has failed")
        errors = hits(context, self.serial, DiskFaultKind.FAILED)
        if not errors:
            raise RigError(f"{self.serial} is faulty, yet no request to it has failed")
        proof = (
            f"{errors} requests failed, md says {','.join(place.words(context))}, degraded {place.degraded(context)}"
        )
        return FaultEvent(self.name, self.serial, begun_ns, proof)


@dataclass(frozen=True)
class MemberVanishes(_Lost):
    """One member is pulled out: its block device is gone. Healed: the disk is plugged in again, and rebuilt."""

    name: ClassVar[str] = "member-vanishes"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Pull out the disk, and wait until md has noticed."""
        place = place_of(context, self.serial)
        begun_ns = now_ns()
        detach(context, place)
        provoke(context, lambda: "faulty" in (place.words(context) or ("faulty",)), f"md to miss {self.serial}")
        proof = f"/sys/block/{place.disk} is gone, degraded {place.degraded(context)}"
        return FaultEvent(self.name, self.serial, begun_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Plug in the disk, and wait until it is rebuilt.

        Raises:
            RigError: its block device does not appear.
            DeadlineExceeded: the rebuild does not end in time.
        """
        drop(context, self.serial)
        attach(context, self.serial)
        super().heal(context)


@dataclass(frozen=True)
class SecondMemberFails(_Member):
    """While the array is rebuilt onto a new drive in the place of ``other``, ``serial`` fails too."""

    other: str
    name: ClassVar[str] = "second-member-fails"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(
            member_missing=True,
            unreadable_blocks=True,
            kernel_messages=ALARMS,
            explanation=SECOND_FAILED,
        )

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let ``other`` fail, begin the rebuild, and let ``serial`` fail during the rebuild.

        Raises:
            RigError: the rebuild had ended before.
        """
        array = context.stack.array
        first = MemberFails(self.other).inject(context)
        upkeep = Upkeep.with_member(array, self.other)
        upkeep.throttle(SLOW_REBUILD_KIB_S)
        begin_rebuild(context, self.other)
        reached = upkeep.wait_for("recover")
        place = place_of(context, self.serial)
        context.lab.disks.set_disk_fault(self.serial, failed())
        provoke(context, lambda: "faulty" in place.words(context), f"md to notice that {self.serial} has failed")
        at_ns = now_ns()
        degraded = place.degraded(context)
        if degraded < 2:
            raise RigError(f"the rebuild of {self.other} was over before {self.serial} failed")
        proof = f"{first.proof}; rebuilt {reached.done} of {reached.total} sectors; then degraded {degraded}"
        return FaultEvent(self.name, self.serial, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Rebuild both members, where the level survives two failures.

        Raises:
            NotRecovered: the array has failed.
        """
        array = context.stack.array
        broken = [one for one in array.state().devices if one.array_state == "broken" or one.degraded > 1]
        if broken and broken[0].raid.most_lost < 2:
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

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return no effects: the member is only slower."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Slow the member down, and wait until a request was delayed."""
        context.lab.disks.set_disk_fault(self.serial, slow(self.ms))
        at_ns = now_ns()
        provoke(context, lambda: hits(context, self.serial, DiskFaultKind.SLOW) > 0, f"a request to {self.serial}")
        times = hits(context, self.serial, DiskFaultKind.SLOW)
        return FaultEvent(self.name, self.serial, at_ns, f"{times} requests took {self.ms} ms longer")


@dataclass(frozen=True)
class FlushesDropped(_Member):
    """One member acknowledges flushes without writing its cache: the next ``count`` flushes, or all."""

    count: int | None = None
    name: ClassVar[str] = "flushes-dropped"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return no effects: losses are judged by the engine's counters and the write log."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Set the disk fault, and wait until a flush was dropped."""
        context.lab.disks.set_disk_fault(self.serial, drop_flushes(self.count))
        at_ns = now_ns()
        provoke(
            context, lambda: hits(context, self.serial, DiskFaultKind.DROP_FLUSHES) > 0, f"a flush of {self.serial}"
        )
        times = hits(context, self.serial, DiskFaultKind.DROP_FLUSHES)
        return FaultEvent(self.name, self.serial, at_ns, f"{times} flushes dropped so far")


def begin_rebuild(context: FaultContext, serial: str) -> None:
    """Replace a failed member by a working drive; md begins to rebuild it."""
    array = context.stack.array
    drop(context, serial)
    context.lab.disks.clear_disk_faults([serial])
    array.expected_deviation = array.expected_deviation.plus(renewed=frozenset({serial}))
    Upkeep.with_member(array, serial).put_in(serial)
    wait_until(
        lambda: place_of(context, serial).words(context),
        Deadline.after(REBUILD_DEADLINE_S),
        f"{serial} to be a member",
    )


@dataclass(frozen=True)
class LatentSectorError(Fault):
    """Sectors of one member become unreadable unnoticed; a check of the array finds them."""

    serial: str
    offset: int
    """Offset in bytes on the disk."""
    length: int = BLOCK
    name: ClassVar[str] = "latent-sector-error"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(kernel_messages=ALARMS)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make sectors unreadable, and let md read the whole array."""
        at_ns = now_ns()
        context.lab.disks.set_disk_fault(self.serial, bad_sectors(self.offset, self.length))
        upkeep = Upkeep.with_member(context.stack.array, self.serial)
        with fast(context, self.serial):
            upkeep.begin("check")
            wait_idle(upkeep, "to end its check")
        times = hits(context, self.serial, DiskFaultKind.BAD_SECTORS)
        if not times:
            raise RigError(f"{self.serial}: the check has not read the {self.length} bytes at {self.offset}")
        return FaultEvent(self.name, self.serial, at_ns, f"{times} reads failed in a check of the array")

    def heal(self, context: FaultContext) -> None:
        """Verify that md has rewritten the sectors, so that they are readable.

        Raises:
            NotRecovered: they are not readable.
        """
        if not readable(context, self.serial, self.offset, self.length):
            raise NotRecovered(
                f"{self.serial}: the array's check left {self.length} bytes at {self.offset} unreadable"
            )


@dataclass(frozen=True)
class LatentSectorDuringRebuild(LatentSectorError):
    """As `LatentSectorError`, but found while the array is rebuilt onto a new drive in the place of ``other``."""

    other: str = ""
    name: ClassVar[str] = "latent-sector-during-rebuild"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(
            member_missing=True,
            unreadable_blocks=True,
            kernel_messages=ALARMS,
            explanation=UNREADABLE,
        )

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let ``other`` fail, make sectors of ``serial`` unreadable, and rebuild ``other``."""
        fails = MemberFails(self.other)
        first = fails.inject(context)
        at_ns = now_ns()
        context.lab.disks.set_disk_fault(self.serial, bad_sectors(self.offset, self.length))
        fails.heal(context)
        times = hits(context, self.serial, DiskFaultKind.BAD_SECTORS)
        if not times:
            raise RigError(f"{self.serial}: the rebuild has not read the {self.length} bytes at {self.offset}")
        known = {serial: listed for serial in (self.serial, self.other) if (listed := bad_blocks(context, serial))}
        proof = f"{first.proof}; {times} reads failed in the rebuild; md lists as bad: {known or 'nothing'}"
        return FaultEvent(self.name, self.serial, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Make the sectors readable again; md keeps the lost blocks in its bad block list."""
        context.lab.disks.clear_disk_faults([self.serial])


@dataclass(frozen=True)
class SilentCorruption(Fault):
    """Bytes of one member change, and reads of them succeed. Repaired only by a layer that detects the change."""

    serial: str
    offset: int
    """Offset in bytes on the disk."""
    length: int = BLOCK
    seed: int = 1
    name: ClassVar[str] = "silent-corruption"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(content_changed=True, explanation=ROT)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Change the bytes, and verify that a read returns other ones."""
        path, server = disk_path(self.serial), context.lab.server
        read = ["dd", f"if={path}", f"bs={BLOCK}", f"skip={self.offset}", f"count={self.length}"]
        checksum = [*read, "iflag=direct,skip_bytes,count_bytes", "status=none", "of=/run/raidproof/corrupted"]

        def content() -> str:
            server.succeed(checksum)
            return server.succeed(["md5sum", "/run/raidproof/corrupted"]).split()[0]

        before, at_ns = content(), now_ns()
        context.lab.disks.corrupt(self.serial, self.offset, self.length, self.seed)
        after = content()
        if before == after:
            raise RigError(f"{self.serial}: {self.length} bytes at {self.offset} are unchanged")
        return FaultEvent(
            self.name, self.serial, at_ns, f"{self.length} bytes at {self.offset}: md5 {before}, now {after}"
        )

    def heal(self, context: FaultContext) -> None:
        """Do nothing: a drive does not detect the change."""


@dataclass(frozen=True)
class CorruptedAtRest(CleanReboot):
    """Blocks of one member that hold known data change while the server is down; then the server is started again.

    ``holding`` is the data with which such blocks begin; their second half is changed.
    """

    serial: str
    holding: bytes
    blocks: int = 64
    seed: int = 1
    name: ClassVar[str] = "corrupted-at-rest"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(nfsd_restarted=True, server_away=True, content_changed=True, explanation=ROT)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Stop the server, then change some blocks.

        Raises:
            RequirementMissing: the disks are not the engine's.
            RigError: no block of the member begins with ``holding``.
        """
        if not isinstance(context.lab.disks, EngineClient):
            raise RequirementMissing("only a simulated disk can be changed at rest", remedy="use uml or qemu")
        stopped = super().inject(context)
        found = list(blocks_with(context.lab.disks, self.serial, self.holding))
        chosen = found[:: max(1, len(found) // self.blocks)][: self.blocks]
        if not chosen:
            raise RigError(f"{self.serial}: none of its blocks begins with {self.holding!r}")
        for number, offset in enumerate(chosen):
            context.lab.disks.corrupt(self.serial, offset + BLOCK // 2, BLOCK // 2, self.seed + number)
        proof = f"{stopped.proof}; {len(chosen)} of {len(found)} blocks corrupted, the first at {chosen[0]}"
        return FaultEvent(self.name, self.serial, stopped.at_ns, proof)


def blocks_with(disks: EngineClient, serial: str, beginning: bytes) -> Iterator[int]:
    """Yield the offsets of a member's durable blocks that begin with these bytes."""
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        path = Path(folder, serial)
        disks.image(serial, path)
        with path.open("rb") as file:
            at, size = 0, path.stat().st_size
            while at < size:
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
                except OSError:
                    return  # a hole up to the end
                data = os.pread(file.fileno(), _PIECE, at)
                starts = range(0, len(data), BLOCK)
                yield from (at + start for start in starts if data.startswith(beginning, start))
                at += len(data)


def readable(context: FaultContext, serial: str, offset: int, length: int) -> bool:
    """Return whether the server can read these bytes of a member directly from the drive."""
    read = ["dd", f"if={disk_path(serial)}", "of=/dev/null", f"bs={BLOCK}", f"skip={offset}", f"count={length}"]
    return context.lab.server.run([*read, "iflag=direct,skip_bytes,count_bytes", "status=none"]).ok


def bad_blocks(context: FaultContext, serial: str) -> str:
    """Return md's bad block list of a member: pairs of first sector and number of sectors."""
    path = f"{place_of(context, serial).directory}/bad_blocks"
    return ", ".join(read_files(context.lab.server, [path]).get(path, "").split("\n"))


def wait_idle(upkeep: Upkeep, what: str) -> None:
    """Wait until md has no background work.

    Raises:
        DeadlineExceeded: it did not end in time.
    """
    done = Deadline.after(REBUILD_DEADLINE_S)
    wait_until(lambda: upkeep.progress().action == "idle" or None, done, f"{upkeep.md.device} {what}", 0.2)
