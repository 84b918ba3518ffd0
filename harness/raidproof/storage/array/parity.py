"""Whether an array's redundancy agrees with its data in one crash state: copies equal, parity right.

A *row* is what stands at one 4 KiB page of every member's data: the stripe in which md's RAID4, 5 and 6 work
(drivers/md/raid5.h). Q is computed over GF(2^8) with the polynomial 0x11d, as in lib/raid6; in which order the
members count is told by ``raid6_d0`` and ``raid6_idx_to_slot`` in drivers/md/raid5.c.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import NamedTuple

from raidproof.storage.array.striping import DDF_LAYOUTS, Row, Striping
from raidproof.storage.array.superblock import Feature, Superblock, freshest

ROW = 4096
ReadMember = Callable[[int, int, int], bytes]
"""Reads (member, offset, length) of a crash state."""
Region = tuple[int, int, int]
"""Member, offset and length of what was written."""

_BLANK = bytes(ROW)
_HIGH_BITS = int.from_bytes(b"\x80" * ROW)
_LOW_BITS = int.from_bytes(b"\x7f" * ROW)


class Difference(NamedTuple):
    """One row whose members do not agree."""

    row: int
    array_offset: int
    """The first byte of the array whose data stands there; in a RAID10 of the chunk whose copies differ."""

    def __str__(self) -> str:
        return f"row {self.row} (array byte {self.array_offset})"


@dataclass(frozen=True)
class Assembled:
    """An array as md would see it in one crash state."""

    superblock: Superblock
    """The freshest one."""
    striping: Striping
    members: Mapping[int, int]
    """The number of the member that has each role."""
    data_offsets: Mapping[int, int]
    """Where on the member with each role the data begins."""
    bitmap_offsets: Mapping[int, int | None]
    """Where the member with each role has its bitmap."""
    incomplete: str | None = None
    """Why there is nothing to compare, if so."""

    @classmethod
    def of(cls, superblocks: Mapping[int, Superblock | None]) -> "Assembled | None":
        """Return the array that the superblocks of members (by number) describe, or None if there is none.

        Raises:
            RequestError: its level or layout is not known here.
        """
        best = freshest(superblocks)
        if best is None:
            return None
        # A member that has missed no more than one update is taken in as if it had seen it (mdadm, Assemble.c).
        taken = {
            one.role: (number, one)
            for number, one in superblocks.items()
            if one and one.whole and one.uuid == best.uuid and one.events + 1 >= best.events
            if one.role < best.raid_disks and one.role in best.active
        }
        return cls(
            best,
            Striping.of(best),
            {role: number for role, (number, _) in taken.items()},
            {role: one.data_offset for role, (_, one) in taken.items()},
            {role: one.bitmap_offset for role, (_, one) in taken.items()},
            _incomplete(best, [one for _, one in taken.values()]),
        )

    def rows_of(self, regions: Iterable[Region]) -> list[int]:
        """Return the rows that regions touch, in order."""
        roles = {number: role for role, number in self.members.items()}
        rows: set[int] = set()
        for number, offset, length in regions:
            if (role := roles.get(number)) is not None and length > 0:
                begin = max(offset - self.data_offsets[role], 0)
                end = min(offset + length - self.data_offsets[role], self.striping.size)
                rows.update(range(begin // ROW, -(-end // ROW)))
        return sorted(rows)

    def array_offset(self, row: int) -> int:
        """Return the first byte of the array whose data stands in a row."""
        found = [self.striping.chunk(role, row * ROW).offset for role in range(self.striping.members)]
        return min((one for one in found if one is not None), default=0)

    def synced_at(self, difference: Difference) -> int:
        """Return where a row lies in what md resyncs: bytes of a member, of the array if it is a RAID10."""
        return difference.array_offset if self.striping.level == 10 else difference.row * ROW


def _incomplete(best: Superblock, taken: Sequence[Superblock]) -> str | None:
    if best.level == 0:
        return "RAID0 has no redundancy"
    rebuilt = any(one.features & Feature.RECOVERY_OFFSET for one in taken)
    copied = best.level in {1, 10}
    if rebuilt:
        return "a member is being rebuilt"
    if len(taken) < best.raid_disks and not (copied and len(taken) > 1):
        return f"{best.raid_disks - len(taken)} of {best.raid_disks} members are missing"
    return None


def differences(array: Assembled, read: ReadMember, rows: Iterable[int]) -> list[Difference]:
    """Return those of some rows whose copies or parity do not agree; none if there is nothing to compare.

    A RAID1 or RAID10 may differ where a page changed while its copies were written, until it is written again.
    """
    if array.incomplete is not None:
        return []
    found = _different_copies if array.striping.copies > 1 else _different_parity
    return [one for row in rows for one in found(array, read, row)]


def _page(array: Assembled, read: ReadMember, role: int, offset: int) -> bytes:
    return read(array.members[role], array.data_offsets[role] + offset, ROW)


def _different_copies(array: Assembled, read: ReadMember, number: int) -> Iterator[Difference]:
    striping = array.striping
    chunks = (striping.chunk(role, number * ROW) for role in range(striping.members))
    for offset in sorted({chunk.offset for chunk in chunks if chunk.offset is not None}):
        # The second copy of a chunk may lie one stripe further.
        places = [(role, at) for role, at in striping.places(offset) if role in array.members]
        if len({_page(array, read, role, at) for role, at in places}) > 1:
            yield Difference(number, offset)


def _different_parity(array: Assembled, read: ReadMember, number: int) -> Iterator[Difference]:
    striping = array.striping
    pages = [_page(array, read, role, number * ROW) for role in range(striping.members)]
    if all(page == _BLANK for page in pages):
        return
    row, values = striping.row(number * ROW // striping.chunk_size), [int.from_bytes(page) for page in pages]
    p = reduce(xor, (values[role] for role in row.data))
    wrong_p = row.p is not None and p != values[row.p]
    if wrong_p or (row.q is not None and syndrome(striping, row, values) != values[row.q]):
        yield Difference(number, array.array_offset(number))


def syndrome(striping: Striping, row: Row, values: Sequence[int]) -> int:
    """Return Q of a row: the sum of g^slot times what each member of data holds."""
    if striping.layout in DDF_LAYOUTS:
        slots: list[int | None] = [role if role in row.data else None for role in range(striping.members)]
    else:
        begin = ((row.q or 0) + 1) % striping.members
        turned = [(begin + step) % striping.members for step in range(striping.members)]
        slots = [role for role in turned if role in row.data]
    total = 0
    for role in reversed(slots):  # Horner's rule
        total = _doubled(total) ^ (values[role] if role is not None else 0)
    return total


def _doubled(value: int) -> int:
    """Multiply each byte by 2 in GF(2^8)."""
    return ((value & _LOW_BITS) << 1) ^ (((value & _HIGH_BITS) >> 7) * 0x1D)
