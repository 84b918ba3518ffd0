"""The mapping of an array's bytes to its members, and the search for rows whose copies or parity differ.

A row is the page of 4 KiB at one offset on every member.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.storage.array.level import Level, Part, level_of
from raidproof.storage.array.raid import PAGE
from raidproof.storage.array.superblock import Feature, Superblock, freshest

ROW = PAGE
"""Bytes of each member in one row."""
ReadMember = Callable[[int, int, int], bytes]
"""A function that returns the bytes of a member: called with (number of the member, offset, length) in bytes."""
Region = tuple[int, int, int]
"""A region of a member that was written: (number of the member, offset, length) in bytes."""
_BLANK = bytes(ROW)


@dataclass(frozen=True)
class Chunk:
    """The stripe and chunk that contain a byte of a member, and the byte's offset in the array."""

    stripe: int
    """Number of the stripe."""
    part: Part
    number: int | None = None
    """Number of the chunk in the array; None if the byte is not data."""
    offset: int | None = None
    """Offset of the byte in the array; None if the byte is not data."""


@dataclass(frozen=True)
class Striping:
    """The mapping of an array's bytes to its members, for an array that is not being reshaped."""

    level: int
    """md's number of the level in the superblock."""
    layout: int
    """The kernel's number of the layout."""
    chunk_size: int
    """Bytes of a chunk. A mirror is treated as one chunk, as long as its members."""
    members: int
    """Number of members."""
    size: int
    """Bytes of each member that hold data."""

    @classmethod
    def of(cls, superblock: Superblock) -> "Striping":
        """Return the mapping of the array that a superblock describes.

        Raises:
            RequestError: the level or layout is not supported, the chunk size is missing, or a reshape runs.
        """
        kind, chunk = level_of(superblock.level), superblock.chunk_size
        size = superblock.size or superblock.data_size
        if superblock.features & (superblock.features.RESHAPE | superblock.features.NEW_OFFSET):
            raise RequestError(
                f"array {superblock.uuid} is being reshaped, which is not supported: two mappings to its members "
                "apply at the same time"
            )
        kind(superblock.raid_disks, superblock.layout).require_mapped()
        if not kind.chunked:
            chunk = size
        elif chunk:
            size -= size % chunk
        else:
            raise RequestError(f"the superblock of array {superblock.uuid}, a RAID{kind.name}, has no chunk size")
        return cls(superblock.level, superblock.layout, chunk, superblock.raid_disks, size)

    @cached_property
    def raid(self) -> Level:
        """The array's level with its number of members and its layout."""
        return level_of(self.level)(self.members, self.layout)

    @property
    def capacity(self) -> int:
        """The size of the array in bytes."""
        return self.raid.capacity(self.size // self.chunk_size) * self.chunk_size

    def places(self, offset: int) -> tuple[tuple[int, int], ...]:
        """Return for each copy of a byte of the array: (slot of the member, offset in the data of the member)."""
        chunk, inside = divmod(offset, self.chunk_size)
        return tuple((role, stripe * self.chunk_size + inside) for role, stripe in self.raid.places(chunk))

    def factors(self, stripe: int) -> tuple[tuple[int, ...], ...]:
        """Return for each parity of a stripe the factor of each slot: the sum of factor times page must be zero.

        Sums and products are in GF(2^8). The factors are read off the level's own `parities`, slot by slot.
        """
        row = self.raid.row(stripe)
        units = [[int(slot == one) for slot in range(self.members)] for one in range(self.members)]
        columns = [self.raid.parities(row, unit) for unit in units]
        return tuple(
            tuple(1 if slot == parity else column[parity] for slot, column in enumerate(columns))
            for parity in self.raid.parities(row, [0] * self.members)
        )

    def chunk(self, role: int, offset: int) -> Chunk:
        """Return the chunk that contains the byte at an offset in the data of the member in slot ``role``."""
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
    """A row whose copies or parity differ."""

    row: int
    """Number of the row."""
    array_offset: int
    """Offset in the array of the first data byte of the row; with copies, of the chunk whose copies differ."""

    def __str__(self) -> str:
        return f"row {self.row} (array byte {self.array_offset})"


@dataclass(frozen=True)
class Assembled:
    """An array as md would assemble it from its members in one crash state."""

    superblock: Superblock
    """The superblock with the most events."""
    striping: Striping
    members: Mapping[int, int]
    """The number of the member in each slot that md would fill."""
    data_offsets: Mapping[int, int]
    """Offset of the data on the member in each slot, in bytes."""
    bitmap_offsets: Mapping[int, int | None]
    """Offset of the bitmap on the member in each slot, in bytes; None without a bitmap."""
    incomplete: str | None = None
    """The reason why copies or parity cannot be compared; None if they can."""

    @classmethod
    def of(cls, superblocks: Mapping[int, Superblock | None]) -> "Assembled | None":
        """Return the array that md would assemble from members with these superblocks, by number of the member.

        Return None if no member has a valid superblock.

        Raises:
            RequestError: the level or layout is not supported, or a reshape runs.
        """
        best = freshest(superblocks)
        if best is None:
            return None
        # md accepts a member as current that is at most one event behind (mdadm, Assemble.c).
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
        """Return the numbers of the rows that regions overlap, in ascending order."""
        roles = {number: role for role, number in self.members.items()}
        rows: set[int] = set()
        for number, offset, length in regions:
            if (role := roles.get(number)) is not None and length > 0:
                begin = max(offset - self.data_offsets[role], 0)
                end = min(offset + length - self.data_offsets[role], self.striping.size)
                rows.update(range(begin // ROW, -(-end // ROW)))
        return sorted(rows)

    def array_offset(self, row: int) -> int:
        """Return the offset in the array of the first data byte of a row; 0 if the row has no data."""
        found = [self.striping.chunk(role, row * ROW).offset for role in range(self.striping.members)]
        return min((one for one in found if one is not None), default=0)

    def synced_at(self, difference: Difference) -> int:
        """Return the offset of a differing row as resync and bitmap count: in a member, or for RAID10 in the array."""
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
    """Return the differences of copies or parity in the given rows; an empty list if ``array`` is incomplete.

    The copies of a RAID1 or RAID10 may differ without a fault: the page changed while md wrote the copies. A later
    write of the page makes them equal.
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
        # The second copy of a chunk may lie in the next stripe.
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
