"""Faults of what member disks hold: sectors that cannot be read, and others that read as what nobody wrote."""

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
from raidproof.disk.flaw import FlawKind, bad_sectors
from raidproof.fault.disk import REBUILD_DEADLINE_S, MemberFails
from raidproof.fault.fault import FaultContext, FaultEvent, NobodyGoesDown
from raidproof.fault.member import ALARMS, fast, place_of, struck
from raidproof.fault.power import CleanReboot
from raidproof.storage.array.spec import disk_path
from raidproof.storage.array.upkeep import Upkeep

BLOCK = 4096
ROT = Blame(culprit=Culprit.DISKS, cause=Cause.CHANGED_CONTENT)
_PIECE = 1 << 20


@dataclass(frozen=True)
class LatentSectorError(NobodyGoesDown):
    """Sectors of one member that nobody had read cannot be read; a check of the array finds them."""

    serial: str
    offset: int
    """In bytes, from the beginning of the disk."""
    length: int = BLOCK
    name: ClassVar[str] = "latent-sector-error"
    alarms: ClassVar[tuple[str, ...]] = ALARMS

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let sectors go bad, and let md read everything."""
        at_ns = now_ns()
        context.lab.disks.set_flaw(self.serial, bad_sectors(self.offset, self.length))
        upkeep = Upkeep.with_member(context.stack.array, self.serial)
        with fast(context, self.serial):
            upkeep.begin("check")
            wait_idle(upkeep, "to end its check")
        times = struck(context, self.serial, FlawKind.BAD_SECTORS)
        if not times:
            raise RigError(f"{self.serial}: the check has not read the {self.length} bytes at {self.offset}")
        return FaultEvent(self.name, self.serial, at_ns, f"{times} reads failed in a check of the array")

    def heal(self, context: FaultContext) -> None:
        """Make sure that md has written the sectors anew, so that they can be read.

        Raises:
            NotRecovered: they cannot.
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
    explains: ClassVar[Blame] = Blame(culprit=Culprit.DISKS, cause=Cause.UNREADABLE_SECTORS)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let a member fail, then sectors of another one, and rebuild the first."""
        fails = MemberFails(self.other)
        first = fails.inject(context)
        at_ns = now_ns()
        context.lab.disks.set_flaw(self.serial, bad_sectors(self.offset, self.length))
        fails.heal(context)
        times = struck(context, self.serial, FlawKind.BAD_SECTORS)
        if not times:
            raise RigError(f"{self.serial}: the rebuild has not read the {self.length} bytes at {self.offset}")
        known = {serial: listed for serial in (self.serial, self.other) if (listed := bad_blocks(context, serial))}
        proof = f"{first.proof}; {times} reads failed in the rebuild; md lists as bad: {known or 'nothing'}"
        return FaultEvent(self.name, self.serial, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Let the drive read again what it could not; what md gave up stays on its list."""
        context.lab.disks.clear_flaws([self.serial])


@dataclass(frozen=True)
class SilentCorruption(NobodyGoesDown):
    """Bytes of one member are not what was written, and no read of them fails. Healed by whoever finds them."""

    serial: str
    offset: int
    """In bytes, from the beginning of the disk."""
    length: int = BLOCK
    seed: int = 1
    name: ClassVar[str] = "silent-corruption"
    explains: ClassVar[Blame] = ROT

    def inject(self, context: FaultContext) -> FaultEvent:
        """Change them, and see that the drive gives back others."""
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
            raise RigError(f"{self.serial}: {self.length} bytes at {self.offset} are as they were")
        return FaultEvent(
            self.name, self.serial, at_ns, f"{self.length} bytes at {self.offset}: md5 {before}, now {after}"
        )

    def heal(self, context: FaultContext) -> None:
        """Do nothing: a drive cannot know."""


@dataclass(frozen=True)
class CorruptedAtRest(CleanReboot):
    """The server is stopped; meanwhile blocks of one member rot that hold something; then it is started again.

    ``holding`` is what the blocks begin with whose second half is changed: data that somebody wrote.
    """

    serial: str
    holding: bytes
    blocks: int = 64
    seed: int = 1
    name: ClassVar[str] = "corrupted-at-rest"
    explains: ClassVar[Blame] = ROT

    def inject(self, context: FaultContext) -> FaultEvent:
        """Stop the server, then change some blocks.

        Raises:
            RequirementMissing: the disks are not the engine's.
            RigError: no block of the member holds such a thing.
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
    """Whether the server can read these bytes of a member from the drive itself."""
    read = ["dd", f"if={disk_path(serial)}", "of=/dev/null", f"bs={BLOCK}", f"skip={offset}", f"count={length}"]
    return context.lab.server.run([*read, "iflag=direct,skip_bytes,count_bytes", "status=none"]).ok


def bad_blocks(context: FaultContext, serial: str) -> str:
    """Return what md has given up of a member: first sector and sectors, a pair each."""
    path = f"{place_of(context, serial).directory}/bad_blocks"
    return ", ".join(read_files(context.lab.server, [path]).get(path, "").split("\n"))


def wait_idle(upkeep: Upkeep, what: str) -> None:
    """Wait until md does nothing in the background.

    Raises:
        DeadlineExceeded: it took too long.
    """
    done = Deadline.after(REBUILD_DEADLINE_S)
    wait_until(lambda: upkeep.progress().action == "idle" or None, done, f"{upkeep.md.device} {what}", 0.2)
