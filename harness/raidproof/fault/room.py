"""Faults in which the exported file system has no free space or no free inodes."""

from dataclasses import dataclass
from errno import ENOSPC
from itertools import count
from pathlib import PurePosixPath
from random import Random
from typing import ClassVar, NamedTuple, Self

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, whole_number
from raidproof.core.units import KIB, MIB, format_size
from raidproof.core.waiting import Deadline, now_ns, pause, wait_until
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.storage.stack import StackSpec

FILLER = ".raidproof-filler"
"""The name of the file or directory in the exported file system that takes the free space or the inodes."""
HELD_S = 2.0
"""Seconds that the file system stays full: long enough for a client to need space."""
LEAST = 16 * KIB
"""Size in bytes of the smallest piece by which `FilesystemFull` allocates space.

With less free space, XFS creates no file: it reserves blocks for the worst-case growth of its B+trees.
"""
MARGIN = MIB
"""Bytes: an allocation of ``left`` + `MARGIN` bytes must fail. A file system reserves some space for metadata."""
MOST_INODES = 20_000
"""Largest number of free inodes for which `InodesExhausted` creates files."""
FILL_DEADLINE_S = 120.0


class Room(NamedTuple):
    """The free space and free inodes of a file system, including those reserved for root."""

    bytes: int
    inodes: int


class _NoSpace(Fault):
    """A fault after which the exported file system has no free space or no free inodes."""

    may_last: ClassVar[bool] = True

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: clients may get ENOSPC."""
        return FaultEffects(errors=frozenset({ENOSPC}))


@dataclass(frozen=True)
class FilesystemFull(_NoSpace):
    """For ``held_s`` seconds, a file on the server takes the free space of the exported file system.

    ``left`` is the number of bytes that stay free. The workers of the ledger need space when they start: as a fault in
    ``during=``, ``left`` must be greater than 0.
    """

    left: int = 0
    held_s: float = HELD_S
    name: ClassVar[str] = "filesystem-full"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self:  # noqa: ARG003
        """Return the fault for a random time."""
        return cls(held_s=rng.choice([0.5, HELD_S]))

    def inject(self, context: FaultContext) -> FaultEvent:
        """Allocate the free space in pieces, until less than `LEAST` bytes are free.

        Raises:
            RequestError: the file system has no more than ``left`` free bytes.
            RigError: after the allocation, more than ``left`` + `MARGIN` bytes are free.
        """
        server, filler, at_ns = context.lab.server, filler_of(context), now_ns()
        before = room_of(server, filler.parent)
        if before.bytes <= self.left:
            raise RequestError(
                f"{server.name}: fault {self.name}: left is {format_size(self.left)}, but {filler.parent} has only "
                f"{format_size(before.bytes)} free"
            )
        wanted = before.bytes - self.left
        taken, piece = 0, wanted
        # The file system may grant more than it reported as free: XFS has a reserve that statfs(2) does not count.
        most = wanted if self.left else 2 * wanted
        while piece >= LEAST and taken < most:
            allocate = ["fallocate", "--offset", str(taken), "--length", str(piece), str(filler)]
            if server.run(allocate, deadline_s=FILL_DEADLINE_S).ok:
                taken += piece
            else:
                piece //= 2
        # The file must still be there after a power cut.
        server.succeed(["sync", str(filler)], deadline_s=FILL_DEADLINE_S)
        more = self.left + MARGIN
        refused = server.run(["fallocate", "--offset", str(taken), "--length", str(more), str(filler)])
        if refused.ok or "No space left" not in refused.stderr:
            raise RigError(
                f"{server.name}: {filler.parent} is not full: an allocation of {format_size(more)} should fail with "
                f"'No space left', fallocate printed: {refused.stderr.strip() or 'nothing'}"
            )
        pause(self.held_s)
        proof = (
            f"{taken:,} of {before.bytes:,} free bytes taken for {self.held_s:g} s; "
            f"allocation of {more:,} more bytes: No space left"
        )
        return FaultEvent(self.name, server.name, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Remove the file that takes the space; a power cut may have lost it if disks lie."""
        context.lab.server.succeed(["rm", "--force", str(filler_of(context))])


@dataclass(frozen=True)
class InodesExhausted(_NoSpace):
    """For ``held_s`` seconds, empty files on the server take all free inodes of the exported file system.

    The file system must have few inodes, such as an ext4 that was created with a small number.
    """

    held_s: float = HELD_S
    name: ClassVar[str] = "inodes-exhausted"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Create empty files until no inode is free.

        Raises:
            RequestError: more than `MOST_INODES` inodes are free, as on XFS, which allocates inodes on demand.
            DeadlineExceeded: some inodes are still free after `FILL_DEADLINE_S` seconds.
        """
        server, filler, at_ns = context.lab.server, filler_of(context), now_ns()
        before = room_of(server, filler.parent).inodes
        if before > MOST_INODES:
            raise RequestError(
                f"{server.name}: fault {self.name}: {filler.parent} has {before:,} free inodes, at most "
                f"{MOST_INODES:,} are supported",
                remedy="use a file system with fewer inodes: Ext4Spec(inodes=...)",
            )
        server.succeed(["mkdir", str(filler)])
        numbers = count()

        def taken() -> bool:
            # One file more than inodes are free: its creation must fail. Clients may free inodes meanwhile.
            names = [str(filler / str(next(numbers))) for _ in range(room_of(server, filler.parent).inodes + 1)]
            refused = server.run(["xargs", "touch"], stdin="\n".join([*names, ""]), deadline_s=FILL_DEADLINE_S)
            return "No space left" in refused.stderr and not room_of(server, filler.parent).inodes

        wait_until(taken, Deadline.after(FILL_DEADLINE_S), f"{server.name} to have no free inode")
        pause(self.held_s)
        proof = f"{before:,} free inodes taken for {self.held_s:g} s; creation of one more file: No space left"
        return FaultEvent(self.name, server.name, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Remove the directory of empty files."""
        context.lab.server.succeed(
            ["rm", "--recursive", "--force", str(filler_of(context))], deadline_s=FILL_DEADLINE_S
        )


def filler_of(context: FaultContext) -> PurePosixPath:
    """Return the path on the server of the file or directory that takes the free space or the inodes."""
    return PurePosixPath(context.stack.filesystem.directory) / FILLER


def room_of(machine: Machine, directory: PurePosixPath) -> Room:
    """Return the free space and free inodes of the file system that contains a directory of the machine."""
    blocks, size, inodes = machine.succeed(["stat", "--file-system", "--format=%f %S %d", str(directory)]).split()
    return Room(
        whole_number(blocks, "free blocks") * whole_number(size, "block size"), whole_number(inodes, "free inodes")
    )
