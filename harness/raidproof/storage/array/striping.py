"""Where each byte of an md array lies on its members, in both directions.

The formulas are the kernel's: ``raid5_compute_sector`` in drivers/md/raid5.c for levels 4, 5 and 6,
``__raid10_find_phys`` in drivers/md/raid10.c for near copies, ``map_sector`` in drivers/md/raid0.c for members of one
size. Members are numbered by their role in the array; offsets on them count from the beginning of their data.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from raidproof.core.errors import RequestError
from raidproof.storage.array.superblock import Superblock

_LEFT_ASYMMETRIC, _RIGHT_ASYMMETRIC, _LEFT_SYMMETRIC, _RIGHT_SYMMETRIC, _PARITY_FIRST, _PARITY_LAST = range(6)
_LEFT = frozenset({_LEFT_ASYMMETRIC, _LEFT_SYMMETRIC})
_ZERO_RESTART, _N_RESTART, _N_CONTINUE = 8, 9, 10
DDF_LAYOUTS = frozenset({_ZERO_RESTART, _N_RESTART, _N_CONTINUE})
"""Layouts of RAID6 in which Q counts the places of P and Q too."""
_LAST_IS_Q = 16
"""Added to a layout of RAID5: that of a RAID6 whose last member holds nothing but Q."""
_LEVELS = frozenset({0, 1, 4, 5, 6, 10})


class Part(StrEnum):
    """What a chunk of a member is in its stripe."""

    DATA = "data"
    P = "parity"
    Q = "Q"
    UNUSED = "unused"
    """Beyond the last whole stripe."""


@dataclass(frozen=True)
class Row:
    """Who holds what in one stripe, by role; ``data`` in the order of the array."""

    data: tuple[int, ...]
    p: int | None = None
    q: int | None = None


@dataclass(frozen=True)
class Chunk:
    """What stands at one place of a member."""

    stripe: int
    part: Part
    number: int | None = None
    """Which chunk of the array's data it is (a copy of); None for parity."""
    offset: int | None = None
    """The byte of the array that stands there; None for parity."""


@dataclass(frozen=True)
class Striping:
    """How an array without a reshape lies on its members."""

    level: int
    layout: int
    chunk_size: int
    """In bytes; a mirror has none, and is one chunk as long as its members."""
    members: int
    size: int
    """What of each member holds data, in bytes."""

    @classmethod
    def of(cls, superblock: Superblock) -> "Striping":
        """Return what a superblock describes.

        Raises:
            RequestError: its level or layout is none that is known here, or a reshape is going on.
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
        """How many members hold each byte of data."""
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
        """Return who holds what in a stripe of RAID0, 4, 5 or 6.

        Raises:
            RequestError: there is no such layout.
        """
        if self.level == 0:
            return Row(tuple(range(self.members)))
        # A layout turns with the members, or with all but the one that holds nothing but Q.
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
        """Return what stands at an offset of a member's data."""
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
