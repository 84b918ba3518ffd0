"""Faults of the free space in the exported file system: no bytes left, or no inodes."""

from dataclasses import dataclass
from errno import ENOSPC
from itertools import count
from pathlib import PurePosixPath
from typing import ClassVar, NamedTuple

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, whole_number
from raidproof.core.units import KIB, MIB, format_size
from raidproof.core.waiting import Deadline, now_ns, pause, wait_until
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.storage.stack import StackSpec

FILLER = ".raidproof-filler"
HELD_S = 2.0
"""Seconds; long enough for a client to need space that is not free."""
LEAST = 16 * KIB
"""Bytes; XFS refuses less to a new directory or file, because it reserves for the worst case of its trees."""
MARGIN = MIB
"""Bytes beyond the space left whose allocation must fail: the file system keeps some for its trees."""
MOST_INODES = 20_000
FILL_DEADLINE_S = 120.0


class Room(NamedTuple):
    """Free space, including the part reserved for root."""

    bytes: int
    inodes: int


@dataclass(frozen=True)
class FilesystemFull(Fault):
    """A file on the server takes all free space but ``left`` bytes, for ``held_s`` seconds.

    Ledger workers need space to begin: if this fault is a condition of a crash test, ``left`` must be greater than 0.
    """

    left: int = 0
    held_s: float = HELD_S
    name: ClassVar[str] = "filesystem-full"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(errors=frozenset({ENOSPC}))

    def inject(self, context: FaultContext) -> FaultEvent:
        """Allocate the free space in pieces, until less than the smallest piece is free.

        Raises:
            RequestError: no more is free than is to be left.
            RigError: more is left than requested.
        """
        server, filler, at_ns = context.lab.server, filler_of(context), now_ns()
        before = room_of(server, filler.parent)
        if before.bytes <= self.left:
            raise RequestError(f"{format_size(self.left)} cannot be left of {format_size(before.bytes)}")
        wanted = before.bytes - self.left
        taken, piece = 0, wanted
        # More may be allocated than was reported free: XFS keeps a reserve, and does not always count alike.
        most = wanted if self.left else 2 * wanted
        while piece >= LEAST and taken < most:
            allocate = ["fallocate", "--offset", str(taken), "--length", str(piece), str(filler)]
            if server.run(allocate, deadline_s=FILL_DEADLINE_S).ok:
                taken += piece
            else:
                piece //= 2
        more = self.left + MARGIN
        refused = server.run(["fallocate", "--offset", str(taken), "--length", str(more), str(filler)])
        if refused.ok or "No space left" not in refused.stderr:
            raise RigError(f"{server.name}: {format_size(more)} are still free: {refused.stderr.strip()}")
        pause(self.held_s)
        proof = (
            f"{taken:,} of {before.bytes:,} free bytes taken, for {self.held_s:g} s; for {more:,} more: No space left"
        )
        return FaultEvent(self.name, server.name, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Remove the file."""
        context.lab.server.succeed(["rm", str(filler_of(context))])


@dataclass(frozen=True)
class InodesExhausted(Fault):
    """Files on the server take all inodes, for ``held_s`` seconds; the file system must have few inodes."""

    held_s: float = HELD_S
    name: ClassVar[str] = "inodes-exhausted"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(errors=frozenset({ENOSPC}))

    def inject(self, context: FaultContext) -> FaultEvent:
        """Create empty files until no inode is free.

        Raises:
            RequestError: there are too many inodes, as on XFS, which allocates them on demand.
            DeadlineExceeded: some inodes are left.
        """
        server, filler, at_ns = context.lab.server, filler_of(context), now_ns()
        before = room_of(server, filler.parent).inodes
        if before > MOST_INODES:
            raise RequestError(
                f"{before:,} free inodes are too many to take",
                remedy="use a file system with fewer inodes: Ext4Spec(inodes=...)",
            )
        server.succeed(["mkdir", str(filler)])
        numbers = count()

        def taken() -> bool:
            # One name too many, so that the last creation fails. Clients may free an inode meanwhile.
            names = [str(filler / str(next(numbers))) for _ in range(room_of(server, filler.parent).inodes + 1)]
            refused = server.run(["xargs", "touch"], stdin="\n".join([*names, ""]), deadline_s=FILL_DEADLINE_S)
            return "No space left" in refused.stderr and not room_of(server, filler.parent).inodes

        wait_until(taken, Deadline.after(FILL_DEADLINE_S), f"{server.name} to have no inode left")
        pause(self.held_s)
        proof = f"{before:,} free inodes taken, for {self.held_s:g} s; for more: No space left"
        return FaultEvent(self.name, server.name, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Remove the files."""
        context.lab.server.succeed(["rm", "--recursive", str(filler_of(context))], deadline_s=FILL_DEADLINE_S)


def filler_of(context: FaultContext) -> PurePosixPath:
    """Return the path on the server of the file or folder that takes the space."""
    return PurePosixPath(context.stack.filesystem.directory) / FILLER


def room_of(machine: Machine, directory: PurePosixPath) -> Room:
    """Return the free space of the file system at a directory."""
    blocks, size, inodes = machine.succeed(["stat", "--file-system", "--format=%f %S %d", str(directory)]).split()
    return Room(
        whole_number(blocks, "free blocks") * whole_number(size, "block size"), whole_number(inodes, "free inodes")
    )
