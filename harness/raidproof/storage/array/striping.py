"""RAID arithmetic: location of each byte, expected copies and parity, members that a request accesses."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, reduce
from math import ceil
from operator import xor
from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.storage.array.spec import PARITY_LEVELS, ArraySpec, Level, default_layout
from raidproof.storage.array.superblock import Feature, Superblock, freshest

_LEFT_ASYMMETRIC, _RIGHT_ASYMMETRIC, _LEFT_SYMMETRIC, _RIGHT_SYMMETRIC, _PARITY_FIRST, _PARITY_LAST = range(6)
_LEFT = frozenset({_LEFT_ASYMMETRIC, _LEFT_SYMMETRIC})
_ZERO_RESTART, _N_RESTART, _N_CONTINUE = 8, 9, 10
DDF_LAYOUTS = frozenset({_ZERO_RESTART, _N_RESTART, _N_CONTINUE})
"""Layouts of RAID6 in which the factors of Q also count the slots of P and Q."""
_LAST_IS_Q = 16
"""Added to a layout of RAID5: that of a RAID6 whose last member holds only Q."""
_LEVELS = frozenset({0, 1, 4, 5, 6, 10})

ROW = 4096
ReadMember = Callable[[int, int, int], bytes]
"""Reads (member, offset, length) of a crash state."""
Region = tuple[int, int, int]
"""Member, offset and length of written data."""
_BLANK = bytes(ROW)
_HIGH_BITS = int.from_bytes(b"\x80" * ROW)
_LOW_BITS = int.from_bytes(b"\x7f" * ROW)


class Part(StrEnum):
    """The kind of a chunk of a member in its stripe."""

    DATA = "data"
    P = "parity"
    Q = "Q"
    UNUSED = "unused"
    """Beyond the last whole stripe."""


@dataclass(frozen=True)
class Row:
    """Roles of the members in one stripe; ``data`` in the order of the array."""

    data: tuple[int, ...]
    p: int | None = None
    q: int | None = None


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
        level, layout, chunk = superblock.level, superblock.layout, superblock.chunk_size
        size = superblock.size or superblock.data_size
        if level not in _LEVELS:
            raise RequestError(f"md level {level}: where its bytes lie is not known here")
        if superblock.features & (superblock.features.RESHAPE | superblock.features.NEW_OFFSET):
            raise RequestError("the array is being reshaped: it lies on its members in two ways at once")
        if level == 10 and (layout >> 8 != 1 or not layout & 0xFF):
            raise RequestError(f"RAID10 layout {layout:#x}: only near copies are known here")
        if level != 1:
            if not chunk:
                raise RequestError(f"RAID{level} without a chunk size")
            size -= size % chunk
        made = cls(level, layout, chunk or size, superblock.raid_disks, size)
        if level in {5, 6}:
            made.row(0)
        return made

    @property
    def copies(self) -> int:
        """Number of members that hold each byte of data."""
        return {1: self.members, 10: self.layout & 0xFF}.get(self.level, 1)

    @property
    def capacity(self) -> int:
        """Bytes of the array."""
        match self.level:
            case 1:
                return self.size
            case 10:
                return self.size // self.chunk_size * self.members // self.copies * self.chunk_size
            case _:
                return self.size // self.chunk_size * len(self.row(0).data) * self.chunk_size

    def row(self, stripe: int) -> Row:
        """Return the roles in a stripe of RAID0, 4, 5 or 6.

        Raises:
            RequestError: there is no such layout.
        """
        if self.level == 0:
            return Row(tuple(range(self.members)))
        # A layout rotates over all members, or over all but the one that holds only Q.
        return _row(self.level, self.layout, self.members, stripe % (self.members * (self.members - 1)))

    def places(self, offset: int) -> tuple[tuple[int, int], ...]:
        """Return (role, offset on the member) of each copy of a byte of the array."""
        chunk, inside = divmod(offset, self.chunk_size)
        if self.level == 1:
            return tuple((role, offset) for role in range(self.members))
        if self.level == 10:
            slots = range(chunk * self.copies, (chunk + 1) * self.copies)
            return tuple((slot % self.members, slot // self.members * self.chunk_size + inside) for slot in slots)
        width = len(self.row(0).data)
        stripe, place = divmod(chunk, width)
        return ((self.row(stripe).data[place], stripe * self.chunk_size + inside),)

    def chunk(self, role: int, offset: int) -> Chunk:
        """Return the chunk at an offset of a member's data."""
        stripe, inside = divmod(offset, self.chunk_size)
        if offset >= self.size:
            return Chunk(stripe, Part.UNUSED)
        if self.level == 1:
            return Chunk(0, Part.DATA, 0, offset)
        if self.level == 10:
            number = (stripe * self.members + role) // self.copies
            if (number + 1) * self.chunk_size > self.capacity:
                return Chunk(stripe, Part.UNUSED)
            return Chunk(stripe, Part.DATA, number, number * self.chunk_size + inside)
        row = self.row(stripe)
        if role in row.data:
            number = stripe * len(row.data) + row.data.index(role)
            return Chunk(stripe, Part.DATA, number, number * self.chunk_size + inside)
        return Chunk(stripe, Part.P if role == row.p else Part.Q)


@lru_cache(maxsize=4096)
def _row(level: int, layout: int, members: int, turn: int) -> Row:
    if level == 4:
        return Row(tuple(range(members - 1)), members - 1)
    if level == 5:
        return _with_p(layout, members, turn)
    if layout >= _LAST_IS_Q:
        return _with_p(layout - _LAST_IS_Q, members - 1, turn, last_is_q=True)
    return _with_p_and_q(layout, members, turn % members)


def _with_p(layout: int, members: int, turn: int, *, last_is_q: bool = False) -> Row:
    q = members if last_is_q else None
    if layout in {_PARITY_FIRST, _PARITY_LAST}:
        p = 0 if layout == _PARITY_FIRST else members - 1
        return Row(tuple(role for role in range(members) if role != p), p, q)
    if layout not in {*_LEFT, _RIGHT_ASYMMETRIC, _RIGHT_SYMMETRIC}:
        raise RequestError(f"RAID5 layout {layout}: not known here")
    p = members - 1 - turn % members if layout in _LEFT else turn % members
    if layout in {_LEFT_SYMMETRIC, _RIGHT_SYMMETRIC}:
        return Row(tuple((p + 1 + place) % members for place in range(members - 1)), p, q)
    return Row(tuple(role for role in range(members) if role != p), p, q)


def _with_p_and_q(layout: int, members: int, turn: int) -> Row:
    if layout in {_PARITY_FIRST, _PARITY_LAST}:
        p = 0 if layout == _PARITY_FIRST else members - 2
        q = p + 1
    elif layout == _N_CONTINUE:
        p = members - 1 - turn
        q = (p - 1) % members
        return Row(tuple((p + 1 + place) % members for place in range(members - 2)), p, q)
    elif layout in {*_LEFT, _RIGHT_ASYMMETRIC, _RIGHT_SYMMETRIC, _ZERO_RESTART, _N_RESTART}:
        turn = (turn + 1) % members if layout == _N_RESTART else turn
        p = members - 1 - turn if layout in {*_LEFT, _N_RESTART} else turn
        q = (p + 1) % members
        if layout in {_LEFT_SYMMETRIC, _RIGHT_SYMMETRIC}:
            return Row(tuple((p + 2 + place) % members for place in range(members - 2)), p, q)
    else:
        raise RequestError(f"RAID6 layout {layout}: not known here")
    return Row(tuple(role for role in range(members) if role not in {p, q}), p, q)


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

    The copies of a RAID1 or RAID10 may differ if a page changed while they were written, until the page is written
    again.
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
    """Return Q of a row: the sum of g^slot times the data of each data member."""
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


@dataclass(frozen=True)
class MemberRequests:
    """The member requests that one array request causes (Patterson, Gibson, Katz, SIGMOD 1988)."""

    commands: float
    """Member requests in total."""
    width: int
    """Members that work on it at the same time."""
    size: int
    """Bytes of one member request."""
    modifies: bool = False
    """Whether old data or parity must be read before a write."""

    def traffic(self, request: int) -> float:
        """Return the bytes transferred at the members per byte of the application."""
        return self.commands * self.size / request


def copies_of(spec: ArraySpec) -> int:
    """Return the number of members that hold each byte, without parity."""
    match spec.level:
        case Level.RAID1:
            return len(spec.members)
        case Level.RAID10:
            return int((spec.layout or default_layout(Level.RAID10) or "n2")[1:])
        case Level.STRIPED_MIRRORS:
            return len(spec.members) // spec.leg_count
        case Level.MIRRORED_STRIPES:
            return spec.leg_count
        case _:
            return 1


def parity_of(level: Level) -> int:
    """Return the number of parity units in a stripe."""
    return 2 if level is Level.RAID6 else 1 if level in PARITY_LEVELS else 0


def data_width(spec: ArraySpec) -> int:
    """Return how many different stripe units can be read or written at once, counting each byte once."""
    members = len(spec.members)
    return members - parity_of(spec.level) if parity_of(spec.level) else max(1, members // copies_of(spec))


def stripe_size(spec: ArraySpec) -> int | None:
    """Return the bytes of data in a whole stripe; None for a mirror."""
    return None if spec.chunk_size is None else spec.chunk_size * data_width(spec)


def member_reads(spec: ArraySpec, request: int) -> MemberRequests:
    """Return the cost of a read of ``request`` bytes: each chunk is read once, from one of its copies."""
    chunk = spec.chunk_size or request
    readers = len(spec.members) if spec.level is Level.RAID10 else data_width(spec)
    width = min(ceil(request / chunk), readers)
    return MemberRequests(commands=width, width=width, size=ceil(request / width))


def member_writes(spec: ArraySpec, request: int) -> MemberRequests:
    """Return the cost of a write of ``request`` bytes that begins at a chunk (a large one: at a stripe).

    A mirror writes each copy. Whole stripes are written with their parity, n/(n-1) for RAID5. For a part of k chunks
    md either reads the old data and parity (k + p reads), or the rest of the stripe (d - k), whichever is fewer, and
    then writes k + p. So a small write costs 4 requests on RAID5, 6 on RAID6, 2 on a pair.
    """
    protection, width = parity_of(spec.level), data_width(spec)
    chunk = spec.chunk_size or request
    if not protection:
        parts = min(ceil(request / chunk), width)
        return MemberRequests(
            commands=parts * copies_of(spec), width=parts * copies_of(spec), size=ceil(request / parts)
        )
    whole, rest = divmod(request, chunk * width)
    members = width + protection
    if not rest:
        return MemberRequests(commands=members, width=members, size=whole * chunk)
    touched = ceil(rest / chunk)
    reads = min(touched + protection, width - touched)
    partial = touched + protection + reads
    unit = min(rest, chunk)
    if not whole:
        return MemberRequests(commands=partial, width=touched + protection, size=unit, modifies=reads > 0)
    # Whole stripes and a part: use one average size, so that the total bytes are right.
    total = whole * chunk * members + partial * unit
    commands = members + partial
    return MemberRequests(commands=commands, width=members, size=ceil(total / commands), modifies=reads > 0)
