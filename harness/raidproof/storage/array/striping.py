"""The bytes of an array on its members: the place of each byte, and the rows whose copies or parity differ."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.storage.array.level import Level, Part, level_of
from raidproof.storage.array.raid import PAGE
from raidproof.storage.array.superblock import Feature, Superblock, freshest

ROW = PAGE
ReadMember = Callable[[int, int, int], bytes]
"""Reads (member, offset, length) of a crash state."""
Region = tuple[int, int, int]
"""Member, offset and length of written data."""
_BLANK = bytes(ROW)


@dataclass(frozen=True)
class Chunk:
    """The content of one place of a member."""

    stripe: int
    part: Part
    number: int | None = None
    """Number of the chunk in the array's data; None for parity."""
    offset: int | None = None
    """Offset of the byte in the array; None for parity."""


@dataclass(frozen=True)
class Striping:
    """The mapping of an array, without a reshape, to its members."""

    level: int
    layout: int
    chunk_size: int
    """In bytes; a mirror has no chunks: its one chunk is as long as its members."""
    members: int
    size: int
    """Bytes of each member that hold data."""

    @classmethod
    def of(cls, superblock: Superblock) -> "Striping":
        """Return the mapping that a superblock describes.

        Raises:
            RequestError: its level or layout is not supported, or a reshape runs.
        """
        kind, chunk = level_of(superblock.level), superblock.chunk_size
        size = superblock.size or superblock.data_size
        if superblock.features & (superblock.features.RESHAPE | superblock.features.NEW_OFFSET):
            raise RequestError("the array is being reshaped: it lies on its members in two ways at once")
        kind(superblock.raid_disks, superblock.layout).require_mapped()
        if not kind.chunked:
            chunk = size
        elif chunk:
            size -= size % chunk
        else:
            raise RequestError(f"RAID{kind.name} without a chunk size")
        return cls(superblock.level, superblock.layout, chunk, superblock.raid_disks, size)

    @cached_property
    def raid(self) -> Level:
        """The level with these members and this layout."""
        return level_of(self.level)(self.members, self.layout)

    @property
    def capacity(self) -> int:
        """Bytes of the array."""
        return self.raid.capacity(self.size // self.chunk_size) * self.chunk_size

    def places(self, offset: int) -> tuple[tuple[int, int], ...]:
        """Return (role, offset on the member) of each copy of a byte of the array."""
        chunk, inside = divmod(offset, self.chunk_size)
        return tuple((role, stripe * self.chunk_size + inside) for role, stripe in self.raid.places(chunk))

    def chunk(self, role: int, offset: int) -> Chunk:
        """Return the chunk at an offset of a member's data."""
        stripe, inside = divmod(offset, self.chunk_size)
        if offset >= self.size:
            return Chunk(stripe, Part.UNUSED)
        part, number = self.raid.content(role, stripe)
        if number is None:
            return Chunk(stripe, part)
        if (number + 1) * self.chunk_size > self.capacity:
            return Chunk(stripe, Part.UNUSED)
        return Chunk(stripe, part, number, number * self.chunk_size + inside)


class Difference(NamedTuple):
    """One row whose members do not agree."""

    row: int
    array_offset: int
    """Offset in the array of the first byte of data in the row; of a RAID10, of the chunk whose copies differ."""

    def __str__(self) -> str:
        return f"row {self.row} (array byte {self.array_offset})"


@dataclass(frozen=True)
class Assembled:
    """An array as md would assemble it in one crash state."""

    superblock: Superblock
    """The superblock with the most events."""
    striping: Striping
    members: Mapping[int, int]
    """The number of the member in each role."""
    data_offsets: Mapping[int, int]
    """Offset of the data on the member in each role."""
    bitmap_offsets: Mapping[int, int | None]
    """Offset of the bitmap on the member in each role."""
    incomplete: str | None = None
    """The reason if there is nothing to compare; else None."""

    @classmethod
    def of(cls, superblocks: Mapping[int, Superblock | None]) -> "Assembled | None":
        """Return the array that the superblocks of members (by number) describe, or None if there is none.

        Raises:
            RequestError: its level or layout is not supported.
        """
        best = freshest(superblocks)
        if best is None:
            return None
        # A member that missed at most one update is accepted as current (mdadm, Assemble.c).
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
        """Return the rows that regions overlap, in order."""
        roles = {number: role for role, number in self.members.items()}
        rows: set[int] = set()
        for number, offset, length in regions:
            if (role := roles.get(number)) is not None and length > 0:
                begin = max(offset - self.data_offsets[role], 0)
                end = min(offset + length - self.data_offsets[role], self.striping.size)
                rows.update(range(begin // ROW, -(-end // ROW)))
        return sorted(rows)

    def array_offset(self, row: int) -> int:
        """Return the offset in the array of the first byte of data in a row."""
        found = [self.striping.chunk(role, row * ROW).offset for role in range(self.striping.members)]
        return min((one for one in found if one is not None), default=0)

    def synced_at(self, difference: Difference) -> int:
        """Return the offset of a row in the range that md resyncs: in a member, for a RAID10 in the array."""
        return difference.array_offset if self.striping.raid.synced_as_array else difference.row * ROW


def _incomplete(best: Superblock, taken: Sequence[Superblock]) -> str | None:
    kind = level_of(best.level)
    if not kind.redundant:
        return f"RAID{kind.name} has no redundancy"
    if any(one.features & Feature.RECOVERY_OFFSET for one in taken):
        return "a member is being rebuilt"
    if len(taken) < best.raid_disks and (kind.parity or len(taken) < 2):
        return f"{best.raid_disks - len(taken)} of {best.raid_disks} members are missing"
    return None


def differences(array: Assembled, read: ReadMember, rows: Iterable[int]) -> list[Difference]:
    """Return those of some rows whose copies or parity do not agree; none if there is nothing to compare.

    The copies of a RAID1 or RAID10 may differ if a page changed while they were written, until the page is written
    again.
    """
    if array.incomplete is not None:
        return []
    found = _different_copies if array.striping.raid.copies > 1 else _different_parity
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
    row, values = striping.raid.row(number * ROW // striping.chunk_size), [int.from_bytes(page) for page in pages]
    if any(values[role] != parity for role, parity in striping.raid.parities(row, values).items()):
        yield Difference(number, array.array_offset(number))
