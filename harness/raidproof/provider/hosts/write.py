"""Writes to disks that the gate has permitted, and to no others: every function here demands its permission."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine
from raidproof.core.units import MIB
from raidproof.guest import disk_writer as writer
from raidproof.provider.hosts.gate import Permission
from raidproof.provider.hosts.mark import BLOCK, Mark, encode

ENDS = 8 * MIB
"""Bytes that are zeroed at either end: every superblock of md, of a log and of a journal lies within."""
DISCARD_DEADLINE_S = 600.0
WRITE_DEADLINE_S = 300.0


def writer_command(permissions: Iterable[Permission], marks: Iterable[Mark], ends: int) -> list[str]:
    """Write marks, and zeros next to them; the program is the standard input.

    For each disk it gets the path, the device number and the size that were judged, the mark that must be on it, and
    the one that is to be.
    """
    words = [
        (one.path, one.number, str(one.identity.size), encode(one.mark).hex() if one.mark else "-", encode(new).hex())
        for one, new in zip(permissions, marks, strict=True)
    ]
    return ["python3", "-I", "-", str(ends), *(word for disk in words for word in disk)]


def wipe_command(permissions: Iterable[Permission]) -> list[str]:
    """Erase every signature; without --force it refuses a disk that is in use."""
    return ["wipefs", "--all", *(one.path for one in permissions)]


def discard_command(permission: Permission) -> list[str]:
    """Let a disk forget all between its marks; without --force it refuses a disk that is in use."""
    length = permission.identity.size // BLOCK * BLOCK - 2 * BLOCK
    return ["blkdiscard", "--offset", str(BLOCK), "--length", str(length), permission.path]


def write_marks(machine: Machine, permissions: Sequence[Permission], marks: Sequence[Mark]) -> None:
    """Mark disks as ours, and change nothing else on them.

    Raises:
        RigError: one of them is no longer what was judged, or is in use. Those before it are marked.
    """
    _write(machine, writer_command(permissions, marks, 0))


def blank(machine: Machine, permissions: Sequence[Permission]) -> tuple[str, ...]:
    """Make what we and our stacks have written disappear; the marks stay. Return the paths that could be discarded.

    Raises:
        RigError: a disk is no longer what was judged, or is in use.
    """
    marks = [one.mark for one in permissions if one.mark is not None]
    if len(marks) != len(permissions):
        raise RigError(f"{machine.name}: a disk without a mark would be blanked")
    # The marks first: if this is cut short, the disks are still known as ours.
    _write(machine, writer_command(permissions, marks, 0))
    machine.succeed(wipe_command(permissions))
    discarded = [
        one.path for one in permissions if machine.run(discard_command(one), deadline_s=DISCARD_DEADLINE_S).ok
    ]
    _write(machine, writer_command(permissions, marks, ENDS))
    return tuple(discarded)


def _write(machine: Machine, argv: list[str]) -> None:
    source = Path(writer.__file__).read_text()
    ended = machine.run(argv, stdin=source, deadline_s=WRITE_DEADLINE_S)
    if not ended.ok:
        raise RigError(f"{machine.name}: a disk is not as it was when it was judged: {ended.stderr.strip()[-500:]}")
