"""Faults of member disks: a disk fails, is removed, slows down, drops flushes, or returns errors or wrong data."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar, Self

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.core.errors import NotRecovered, RequirementMissing, RigError
from raidproof.core.layer import one_of, read_files
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.client import EngineClient
from raidproof.disk.disk_fault import DiskFault, DiskFaultKind, bad_sectors, drop_flushes, failed, slow
from raidproof.fault.array import ALARMS, attach, detach, drawn_member, drop, fast, hits, place_of, provoke
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent, unreachable
from raidproof.fault.machine import CleanReboot
from raidproof.storage.array import SYNC_DEADLINE_S, Upkeep
from raidproof.storage.member import disk_path
from raidproof.storage.stack import StackSpec

REBUILD_DEADLINE_S = SYNC_DEADLINE_S
SLOW_REBUILD_KIB_S = 2000
"""Rate of the rebuild in KiB/s during which the second member fails: the rebuild must last until then."""

BLOCK = 4096
ROT = Blame(culprit=Culprit.DISKS, cause=Cause.CHANGED_CONTENT)
SECOND_FAILED = Blame(culprit=Culprit.DISKS, cause=Cause.SECOND_MEMBER_FAILED)
UNREADABLE = Blame(culprit=Culprit.DISKS, cause=Cause.UNREADABLE_SECTORS)
_PIECE = 1 << 20


@dataclass(frozen=True)
class _Member(Fault):
    """A fault of one member disk. No machine goes down."""

    serial: str
    """The serial of the member disk."""
    lasting: ClassVar[bool] = True

    def refuse(self, stack: StackSpec) -> None:
        """Check that the array has this member. Raises as `Fault.refuse`."""
        refuse_others(stack, self.serial)
        super().refuse(stack)

    def heal(self, context: FaultContext) -> None:
        """Remove all disk faults from the member."""
        context.lab.disks.clear_disk_faults([self.serial])


@dataclass(frozen=True)
class _Lost(_Member):
    """A fault that takes one member out of the array."""

    @property
    def lacked(self) -> frozenset[str]:
        """The serial of the member."""
        return frozenset({self.serial})

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: a missing member, and kernel messages about the member."""
        return FaultEffects(member_missing=True, kernel_messages=ALARMS)

    def heal(self, context: FaultContext) -> None:
        """Put a working drive in the place of the member, and wait until md has rebuilt it.

        Raises:
            DeadlineExceeded: the rebuild takes longer than `REBUILD_DEADLINE_S`.
        """
        array = context.stack.array
        begin_rebuild(context, self.serial)
        with fast(context, self.serial):
            array.wait_clean(REBUILD_DEADLINE_S)
        array.expected_deviation = array.expected_deviation.minus(self.serial)

    def _is_gone(self, context: FaultContext) -> None:
        """Expect the array without the member, also after a boot of the server, until `heal`."""
        array = context.stack.array
        array.expected_deviation = array.expected_deviation.plus(absent=frozenset({self.serial}))


@dataclass(frozen=True)
class MemberFails(_Lost):
    """Every request to one member fails. `heal` puts a new drive in its place, and md rebuilds it."""

    name: ClassVar[str] = "member-fails"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:
        """Return the fault of a random member."""
        return drawn_member(cls, rng, stack)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make every request to the member fail, and wait until md has marked the member faulty."""
        place = place_of(context, self.serial)
        begun_ns = now_ns()
        context.lab.disks.set_disk_fault(self.serial, failed())
        provoke(context, lambda: "faulty" in place.words(context), f"md to mark the failed disk {self.serial} faulty")
        self._is_gone(context)
        errors = hits(context, self.serial, DiskFaultKind.FAILED)
        if not errors:
            raise RigError(f"md marked {self.serial} faulty, but the disk engine failed no request to it")
        state, degraded = ",".join(place.words(context)), place.degraded(context)
        proof = f"{errors} requests failed, md's state of the member: {state}; degraded: {degraded}"
        return FaultEvent(self.name, self.serial, begun_ns, proof)


@dataclass(frozen=True)
class MemberVanishes(_Lost):
    """The block device of one member is removed. `heal` attaches the disk again, and md rebuilds it."""

    name: ClassVar[str] = "member-vanishes"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:
        """Return the fault of a random member."""
        return drawn_member(cls, rng, stack)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Remove the block device of the disk, and wait until md has marked the member faulty or removed it."""
        place = place_of(context, self.serial)
        begun_ns = now_ns()
        detach(context, place)
        provoke(
            context,
            lambda: "faulty" in (place.words(context) or ("faulty",)),
            f"md to mark the removed disk {self.serial} faulty",
        )
        self._is_gone(context)
        proof = f"/sys/block/{place.disk} is gone, degraded: {place.degraded(context)}"
        return FaultEvent(self.name, self.serial, begun_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Attach the disk again, unless a boot of the server has found it; then wait until md has rebuilt it.

        Raises:
            RigError: the block device of the disk does not appear.
            DeadlineExceeded: the rebuild takes longer than `REBUILD_DEADLINE_S`.
        """
        if not context.lab.server.exists(f"/sys/block/{place_of(context, self.serial).disk}"):
            drop(context, self.serial)
            attach(context, self.serial)
        super().heal(context)


@dataclass(frozen=True)
class SecondMemberFails(_Member):
    """A second member fails: ``serial`` fails while md rebuilds onto a new drive in the place of ``other``."""

    other: str
    """The serial of the member that fails first and is then rebuilt."""
    name: ClassVar[str] = "second-member-fails"

    @property
    def lacked(self) -> frozenset[str]:
        """The serials of both members."""
        return frozenset({self.serial, self.other})

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: missing members, bad blocks, losses that the second failure explains."""
        return _during_rebuild(SECOND_FAILED)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make ``other`` fail, start its rebuild, and make ``serial`` fail during the rebuild.

        Raises:
            RigError: the rebuild of ``other`` ended before ``serial`` failed.
        """
        array = context.stack.array
        first = MemberFails(self.other).inject(context)
        upkeep = array.upkeep(self.other)
        upkeep.throttle(SLOW_REBUILD_KIB_S)
        begin_rebuild(context, self.other)
        reached = upkeep.wait_for("recover")
        place = place_of(context, self.serial)
        context.lab.disks.set_disk_fault(self.serial, failed())
        provoke(context, lambda: "faulty" in place.words(context), f"md to mark the failed disk {self.serial} faulty")
        at_ns = now_ns()
        degraded = place.degraded(context)
        if degraded < 2:
            raise RigError(f"the rebuild of {self.other} had ended before {self.serial} failed")
        proof = f"{first.proof}; rebuilt {reached.done} of {reached.total} sectors; then degraded: {degraded}"
        return FaultEvent(self.name, self.serial, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Rebuild both members, if the level tolerates two missing members.

        Raises:
            NotRecovered: the level does not tolerate two missing members, so that the array has failed.
        """
        array = context.stack.array
        broken = [one for one in array.state().devices if one.failed or one.degraded > 1]
        if broken and broken[0].raid.most_lost < 2:
            states = ", ".join(f"{one.device}: {one.degraded} members missing" for one in broken)
            raise NotRecovered(f"the array has failed: {states}")
        for serial in (self.other, self.serial):
            # ``other`` is not faulty if md is still rebuilding it.
            if "faulty" in place_of(context, serial).words(context):
                begin_rebuild(context, serial)
        with fast(context, self.serial):
            array.wait_clean(REBUILD_DEADLINE_S)


@dataclass(frozen=True)
class SlowMember(_Member):
    """Every request to one member takes ``ms`` milliseconds longer."""

    ms: int = 50
    name: ClassVar[str] = "slow-member"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self:
        """Return the fault of a random member."""
        return cls(rng.choice(stack.array.members))

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: none, because a slow member excuses no failure."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Slow the member down, and wait until the disk engine has delayed a request."""
        context.lab.disks.set_disk_fault(self.serial, slow(self.ms))
        at_ns = now_ns()
        provoke(
            context, lambda: hits(context, self.serial, DiskFaultKind.SLOW) > 0, f"a delayed request to {self.serial}"
        )
        times = hits(context, self.serial, DiskFaultKind.SLOW)
        return FaultEvent(self.name, self.serial, at_ns, f"{times} requests took {self.ms} ms longer")


@dataclass(frozen=True)
class FlushesDropped(_Member):
    """One member acknowledges flushes without writing out its volatile cache."""

    count: int | None = None
    """The number of flushes to drop; None drops all."""
    name: ClassVar[str] = "flushes-dropped"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: none. The disk engine's counters and write log explain losses."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make the member drop flushes, and wait until it has dropped one."""
        context.lab.disks.set_disk_fault(self.serial, drop_flushes(self.count))
        at_ns = now_ns()
        provoke(
            context,
            lambda: hits(context, self.serial, DiskFaultKind.DROP_FLUSHES) > 0,
            f"a dropped flush of {self.serial}",
        )
        times = hits(context, self.serial, DiskFaultKind.DROP_FLUSHES)
        return FaultEvent(self.name, self.serial, at_ns, f"{times} flushes dropped so far")


@dataclass(frozen=True)
class DefectiveDrives(Fault):
    """Member disks have a defect while clients work, such as flushes that end early (`DiskFault`)."""

    serials: tuple[str, ...]
    """The serials of the member disks."""
    disk_fault: DiskFault
    lasting: ClassVar[bool] = True
    name: ClassVar[str] = "defective-drives"

    def refuse(self, stack: StackSpec) -> None:
        """Check that the array has these members. Raises as `Fault.refuse`."""
        refuse_others(stack, *self.serials)

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: none. The disk engine's counters and write log explain losses."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Set the defect. Only the work of the clients shows its effect, which `heal` verifies."""
        at_ns = now_ns()
        for serial in self.serials:
            context.lab.disks.set_disk_fault(serial, self.disk_fault)
        return FaultEvent(self.name, ", ".join(self.serials), at_ns, f"{self.disk_fault.kind.value} is set")

    def heal(self, context: FaultContext) -> None:
        """Remove the defect.

        Raises:
            RigError: the defect affected no request of any of the disks.
        """
        struck = sum(hits(context, serial, self.disk_fault.kind) for serial in self.serials)
        context.lab.disks.clear_disk_faults(self.serials)
        if not struck:
            raise RigError(f"{self.disk_fault.kind.value} affected no request to {', '.join(self.serials)}")


def refuse_others(stack: StackSpec, *serials: str) -> None:
    """Check that the array has these members.

    Raises:
        RequestError: it has not.
    """
    for serial in serials:
        one_of("member", serial, stack.array.disks)


def _during_rebuild(explanation: Blame) -> FaultEffects:
    """Return the effects of a disk fault during a rebuild, from which md may be unable to rebuild some blocks."""
    return FaultEffects(member_missing=True, unreadable_blocks=True, kernel_messages=ALARMS, explanation=explanation)


def begin_rebuild(context: FaultContext, serial: str) -> None:
    """Replace a failed member by a blank, working drive, and wait until md has taken it as a member to rebuild."""
    array = context.stack.array
    drop(context, serial)
    context.lab.disks.clear_disk_faults([serial])
    array.expected_deviation = array.expected_deviation.plus(renewed=frozenset({serial}))
    array.upkeep(serial).put_in(serial)
    wait_until(
        lambda: place_of(context, serial).words(context),
        Deadline.after(REBUILD_DEADLINE_S),
        f"{serial} to become a member of the array again",
    )


@dataclass(frozen=True)
class LatentSectorError(Fault):
    """Sectors of one member become unreadable. A check of the array reads them, and md must repair them."""

    serial: str
    offset: int
    """Offset in bytes on the disk."""
    length: int = BLOCK
    """Number of unreadable bytes."""
    name: ClassVar[str] = "latent-sector-error"

    def refuse(self, stack: StackSpec) -> None:
        """Check that the array has this member. Raises as `Fault.refuse`."""
        refuse_others(stack, self.serial)
        super().refuse(stack)

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: kernel messages about the member."""
        return FaultEffects(kernel_messages=ALARMS)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make the sectors unreadable, and let md check the whole array.

        Raises:
            RigError: the check did not read the sectors.
        """
        at_ns = now_ns()
        context.lab.disks.set_disk_fault(self.serial, bad_sectors(self.offset, self.length))
        upkeep = context.stack.array.upkeep(self.serial)
        with fast(context, self.serial):
            upkeep.begin("check")
            wait_idle(upkeep, "to end its check")
        times = hits(context, self.serial, DiskFaultKind.BAD_SECTORS)
        if not times:
            raise RigError(f"{self.serial}: md's check did not read the {self.length} bytes at byte {self.offset}")
        return FaultEvent(self.name, self.serial, at_ns, f"{times} reads failed in a check of the array")

    def heal(self, context: FaultContext) -> None:
        """Verify that the sectors are readable again, because md has rewritten them.

        Raises:
            NotRecovered: the sectors are still unreadable.
        """
        if not readable(context, self.serial, self.offset, self.length):
            raise NotRecovered(
                f"{self.serial}: {self.length} bytes at byte {self.offset} are unreadable; md's check should have "
                "rewritten them"
            )


MOST_READS = 1000
"""Number of reads of an unreadable sector during a rebuild that shows that md does not stop to repeat the read.

Linux 6.12 reads it twice.
"""


@dataclass(frozen=True)
class LatentSectorDuringRebuild(LatentSectorError):
    """Sectors of ``serial`` are unreadable while md rebuilds onto a new drive in the place of ``other``."""

    other: str = ""
    """The serial of the member that fails first and is then rebuilt."""
    name: ClassVar[str] = "latent-sector-during-rebuild"

    @property
    def lacked(self) -> frozenset[str]:
        """The serial of the member that fails first."""
        return frozenset({self.other})

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: a missing member, bad blocks, and losses that the bad sectors explain."""
        return _during_rebuild(UNREADABLE)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make ``other`` fail, make sectors of ``serial`` unreadable, and rebuild ``other``.

        After `MOST_READS` reads the sectors are readable, so that the rebuild ends in any case.

        Raises:
            NotRecovered: md read the sectors so often that it would have repeated the read without end.
            RigError: the rebuild did not read the sectors.
        """
        fails = MemberFails(self.other)
        first = fails.inject(context)
        at_ns = now_ns()
        context.lab.disks.set_disk_fault(self.serial, bad_sectors(self.offset, self.length, MOST_READS))
        fails.heal(context)
        times = hits(context, self.serial, DiskFaultKind.BAD_SECTORS)
        if not times:
            raise RigError(
                f"{self.serial}: the rebuild of {self.other} did not read the {self.length} bytes at byte "
                f"{self.offset}"
            )
        if times >= MOST_READS:
            raise NotRecovered(
                f"md read {self.length} unreadable bytes at byte {self.offset} of {self.serial} {times:,} times "
                f"during the rebuild of {self.other}: without a limit to the reads that fail, the rebuild never ends"
            )
        listed = {serial: found for serial in (self.serial, self.other) if (found := bad_blocks(context, serial))}
        proof = f"{first.proof}; {times} reads failed in the rebuild; md lists as bad: {listed or 'nothing'}"
        return FaultEvent(self.name, self.serial, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Make the sectors readable again. md keeps the blocks that it could not rebuild in its bad block list."""
        context.lab.disks.clear_disk_faults([self.serial])


@dataclass(frozen=True)
class SilentCorruption(Fault):
    """Bytes of one member change, and reads return the changed bytes without an error."""

    serial: str
    offset: int
    """Offset in bytes on the disk."""
    length: int = BLOCK
    """Number of changed bytes."""
    seed: int = 1
    """Seed that determines the new bytes."""
    name: ClassVar[str] = "silent-corruption"

    def refuse(self, stack: StackSpec) -> None:
        """Check that the array has this member. Raises as `Fault.refuse`."""
        refuse_others(stack, self.serial)

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: it changes disk content, so that lost operations are expected."""
        return FaultEffects(content_changed=True, explanation=ROT)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Change the bytes, and verify that a read from the disk returns other bytes than before.

        Raises:
            RigError: a read returns the same bytes as before.
        """
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
            raise RigError(
                f"{self.serial}: {self.length} bytes at byte {self.offset} are unchanged, although the disk engine "
                "was to corrupt them"
            )
        proof = f"{self.length} bytes at byte {self.offset}: md5 {before} before, {after} after"
        return FaultEvent(self.name, self.serial, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Do nothing: a drive does not detect or undo the change."""


@dataclass(frozen=True)
class CorruptedAtRest(CleanReboot):
    """Blocks of one member change while the server is shut down; then the server starts again.

    Of all blocks of 4 KiB that begin with ``holding``, at most ``blocks`` change, spread over the disk: the second
    half of each gets other bytes.
    """

    serial: str
    holding: bytes
    """Only blocks that begin with these bytes may change."""
    blocks: int = 64
    """The largest number of blocks to change."""
    seed: int = 1
    """Seed that determines the new bytes."""
    name: ClassVar[str] = "corrupted-at-rest"

    def refuse(self, stack: StackSpec) -> None:
        """Check that the array has this member. Raises as `Fault.refuse`."""
        refuse_others(stack, self.serial)

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: those of a reboot, and changed disk content, which explains losses."""
        return unreachable(stack, nfsd_restarted=True, content_changed=True, explanation=ROT)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Shut the server down, then change the blocks.

        Raises:
            RequirementMissing: the disk engine does not serve the disks.
            RigError: no 4 KiB block of the member begins with the bytes in the field ``holding``.
        """
        if not isinstance(context.lab.disks, EngineClient):
            raise RequirementMissing(
                f"fault {self.name}: {self.serial} is not served by the disk engine, which must change its blocks",
                remedy="use provider uml or qemu",
            )
        stopped = super().inject(context)
        found = list(blocks_with(context.lab.disks, self.serial, self.holding))
        chosen = found[:: max(1, len(found) // self.blocks)][: self.blocks]
        if not chosen:
            raise RigError(f"{self.serial}: no block of 4 KiB begins with {self.holding!r}")
        for number, offset in enumerate(chosen):
            context.lab.disks.corrupt(self.serial, offset + BLOCK // 2, BLOCK // 2, self.seed + number)
        proof = f"{stopped.proof}; {len(chosen)} of {len(found)} blocks corrupted, the first at byte {chosen[0]}"
        return FaultEvent(self.name, self.serial, stopped.at_ns, proof)


def blocks_with(disks: EngineClient, serial: str, beginning: bytes) -> Iterator[int]:
    """Yield the byte offsets of a member's 4 KiB blocks that begin with these bytes.

    The blocks are read from the medium of the disk; data that is only in the volatile cache is not found.
    """
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        path = Path(folder, serial)
        disks.image(serial, path)
        with path.open("rb") as file:
            at, size = 0, path.stat().st_size
            while at < size:
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
                except OSError:
                    return  # only a hole follows
                data = os.pread(file.fileno(), _PIECE, at)
                starts = range(0, len(data), BLOCK)
                yield from (at + start for start in starts if data.startswith(beginning, start))
                at += len(data)


def readable(context: FaultContext, serial: str, offset: int, length: int) -> bool:
    """Return whether the server can read these bytes of a member from the disk, bypassing the page cache."""
    read = ["dd", f"if={disk_path(serial)}", "of=/dev/null", f"bs={BLOCK}", f"skip={offset}", f"count={length}"]
    return context.lab.server.run([*read, "iflag=direct,skip_bytes,count_bytes", "status=none"]).ok


def bad_blocks(context: FaultContext, serial: str) -> str:
    """Return md's bad block list of a member: pairs of first sector and number of sectors."""
    path = f"{place_of(context, serial).directory}/bad_blocks"
    return ", ".join(read_files(context.lab.server, [path]).get(path, "").split("\n"))


def wait_idle(upkeep: Upkeep, what: str) -> None:
    """Wait until an md device has no background work (sync_action is ``idle``).

    ``what`` completes the message "waiting for /dev/md0 ...".

    Raises:
        DeadlineExceeded: the work takes longer than `REBUILD_DEADLINE_S`.
    """
    deadline = Deadline.after(REBUILD_DEADLINE_S)
    wait_until(lambda: upkeep.progress().action == "idle" or None, deadline, f"{upkeep.md.device} {what}", 0.2)
