"""The RAID levels of md, 0, 1, 4, 5, 6 and 10, and the nested levels 1+0 and 0+1."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from math import ceil
from operator import xor
from typing import ClassVar

from raidproof.core.errors import RequestError
from raidproof.storage.array.level import LEVELS, Level, MemberRequests, Part, Row

PAGE = 4096
"""Bytes of a page, the unit in which md computes parity."""
_HIGH_BITS = int.from_bytes(b"\x80" * PAGE)
_LOW_BITS = int.from_bytes(b"\x7f" * PAGE)

# Layouts by name in mdadm, with the kernel's numbers: ALGORITHM_* in drivers/md/raid5.h.
_RAID5_LAYOUTS = {
    "left-asymmetric": 0,
    "right-asymmetric": 1,
    "left-symmetric": 2,
    "right-symmetric": 3,
    "parity-first": 4,
    "parity-last": 5,
}
_RAID6_LAYOUTS = {
    **_RAID5_LAYOUTS,
    "ddf-zero-restart": 8,
    "ddf-N-restart": 9,
    "ddf-N-continue": 10,
    "left-asymmetric-6": 16,
    "right-asymmetric-6": 17,
    "left-symmetric-6": 18,
    "right-symmetric-6": 19,
    "parity-first-6": 20,
}
_LEFT_ASYMMETRIC, _RIGHT_ASYMMETRIC, _LEFT_SYMMETRIC, _RIGHT_SYMMETRIC, _PARITY_FIRST, _PARITY_LAST = range(6)
_LEFT = frozenset({_LEFT_ASYMMETRIC, _LEFT_SYMMETRIC})
_ZERO_RESTART, _N_RESTART, _N_CONTINUE = 8, 9, 10
_DDF_LAYOUTS = frozenset({_ZERO_RESTART, _N_RESTART, _N_CONTINUE})
"""Layouts of RAID6 in which the exponents of Q's factors also count the slots of P and Q."""
_LAST_IS_Q = 16
"""A RAID6 whose last member holds only Q, and whose other members have a RAID5 layout: that layout's number + 16."""


class Raid0(Level):
    """RAID0: stripes without redundancy."""

    name = "0"
    number = 0
    kernel_name = "raid0"
    redundant = False
    any_chunk = True


class Raid1(Level):
    """RAID1: a copy on each member, without chunks."""

    name = "1"
    number = 1
    kernel_name = "raid1"
    chunked = False
    member_flags = frozenset({"write-mostly", "failfast"})
    spellings = frozenset({"mirror"})

    @property
    def copies(self) -> int:
        """The number of members."""
        return self.members


class Raid10(Level):
    """RAID10: stripes of copies.

    The layouts of md(4) are near, far and offset; n2, f2 and o2 are those with two copies.
    """

    name = "10"
    number = 10
    kernel_name = "raid10"
    synced_as_array = True
    member_flags = frozenset({"failfast"})
    default_layout = "n2"

    @classmethod
    def layouts(cls, members: int) -> Mapping[str, int]:
        """Return the near, far and offset layouts with 2 to ``members`` copies."""
        copies = range(2, members + 1)
        near = {f"n{count}": 1 << 8 | count for count in copies}
        far = {f"f{count}": count << 8 | 1 for count in copies}
        offset = {f"o{count}": 1 << 16 | count << 8 | 1 for count in copies}
        return {**near, **far, **offset}

    @property
    def _near(self) -> bool:
        return self.layout >> 8 == 1

    @property
    def copies(self) -> int:
        """The number of copies of a chunk: near copies times far or offset copies. mdadm sets one of the two to 1."""
        return (self.layout & 0xFF) * (self.layout >> 8 & 0xFF)

    @property
    def data_disks(self) -> int:
        """The number of data chunks in one stripe, as the kernel counts for queue/optimal_io_size.

        With near copies whose number divides the number of members, the kernel counts each chunk once. With all other
        layouts, it counts all members.
        """
        return self.width if self._near and self.members % self.copies == 0 else self.members

    @property
    def members_alike(self) -> int:
        """The number of members; 0 if near copies of a chunk may lie at different offsets of the members.

        A crash state has old data at equal offsets of all members, so that copies at different offsets could differ.
        """
        return 0 if self._near and self.members % self.copies else self.members

    @property
    def readers(self) -> int:
        """The number of members: md reads different chunks from all of them."""
        return self.members

    def stream_readers(self, streams: int) -> int:
        """Return the number of members for far copies, which md reads like a RAID0 over all members."""
        far = not self._near and not self.layout >> 16
        return self.members if far else super().stream_readers(streams)

    def require_mapped(self) -> None:
        """Check that the layout has near copies only.

        Raises:
            RequestError: the layout has far or offset copies.
        """
        if not self._near or not self.layout & 0xFF:
            raise RequestError(
                f"RAID10 layout {self.layout:#x} is not supported: only layouts with near copies are (0x102 is n2)"
            )


class _Parity(Level):
    """A level whose stripes have parity: RAID4, 5 or 6."""

    def writes(self, request: int, chunk_size: int | None) -> MemberRequests:
        """Return the member requests of a write of ``request`` bytes that begins at a stripe boundary.

        md writes whole stripes with their parity, without reads. For k of the d data chunks of a stripe with p parity
        chunks, md reads either the old data and parity (k + p reads) or the other data (d - k reads), whichever is
        fewer, and then writes k + p chunks. A small write thus causes 4 requests on RAID5, and 6 on RAID6.
        """
        chunk = chunk_size or request
        whole, rest = divmod(request, chunk * self.width)
        if not rest:
            return MemberRequests(commands=self.members, width=self.members, size=whole * chunk)
        touched = ceil(rest / chunk)
        reads = min(touched + self.parity, self.width - touched)
        partial = touched + self.parity + reads
        unit = min(rest, chunk)
        if not whole:
            return MemberRequests(commands=partial, width=touched + self.parity, size=unit, modifies=reads > 0)
        # For whole stripes and a part of one, use the average size of a request, so that the total bytes are right.
        total = whole * chunk * self.members + partial * unit
        commands = self.members + partial
        return MemberRequests(commands=commands, width=self.members, size=ceil(total / commands), modifies=reads > 0)

    @property
    def members_alike(self) -> int:
        """The largest even number of members: the XOR of an even number of equal chunks is zero: parity is right."""
        return self.members // 2 * 2

    def require_mapped(self) -> None:
        """Check that the layout is supported.

        Raises:
            RequestError: the layout has an unknown number.
        """
        self.row(0)

    def row(self, stripe: int) -> Row:
        """Return the slots of data and parity in a stripe."""
        # The slots repeat after as many stripes as members rotate: all members, or all but one that holds only Q.
        return _row(self, stripe % (self.members * (self.members - 1)))

    def turned(self, turn: int) -> Row:
        """Return the slots of data and parity after a number of rotations of the layout."""
        return _with_p(self.layout, self.members, turn)

    def places(self, chunk: int) -> tuple[tuple[int, int], ...]:
        """Return for the only copy of a chunk of the array: (slot of the member, number of the chunk on it)."""
        stripe, place = divmod(chunk, self.width)
        return ((self.row(stripe).data[place], stripe),)

    def content(self, role: int, stripe: int) -> tuple[Part, int | None]:
        """Return what a member's chunk in a stripe holds: its part, and for data the chunk's number in the array."""
        row = self.row(stripe)
        if role in row.data:
            return Part.DATA, stripe * len(row.data) + row.data.index(role)
        return (Part.P if role == row.p else Part.Q), None

    def parities(self, row: Row, values: Sequence[int]) -> dict[int, int]:
        """Compute P, the XOR of the data; return it by its slot."""
        return {} if row.p is None else {row.p: reduce(xor, (values[role] for role in row.data))}


class Raid4(_Parity):
    """RAID4: parity on the last member."""

    name = "4"
    number = 4
    kernel_name = "raid4"
    parity = 1
    logs = frozenset({"journal"})

    def turned(self, turn: int) -> Row:  # noqa: ARG002
        """Return the slots of data and parity, which are the same in each stripe."""
        return Row(tuple(range(self.members - 1)), self.members - 1)


class Raid5(_Parity):
    """RAID5: parity that rotates over the members."""

    name = "5"
    number = 5
    kernel_name = "raid5"
    parity = 1
    logs = frozenset({"journal", "ppl"})
    default_layout = "left-symmetric"

    @classmethod
    def layouts(cls, members: int) -> Mapping[str, int]:  # noqa: ARG003
        """Return the kernel's numbers of RAID5's layouts by name."""
        return _RAID5_LAYOUTS


class Raid6(_Parity):
    """RAID6: two parities, P and Q, that rotate over the members.

    In the layouts whose name ends in ``-6``, the last member holds only Q, and P rotates over the other members.
    """

    name = "6"
    number = 6
    kernel_name = "raid6"
    least_members = 4
    parity = 2
    logs = frozenset({"journal"})
    default_layout = "left-symmetric"

    @classmethod
    def layouts(cls, members: int) -> Mapping[str, int]:  # noqa: ARG003
        """Return the kernel's numbers of RAID6's layouts by name."""
        return _RAID6_LAYOUTS

    @property
    def members_alike(self) -> int:
        """0, because Q has another factor for each member, and the slot of Q changes from stripe to stripe."""
        return 0

    def turned(self, turn: int) -> Row:
        """Return the slots of data, P and Q after a number of rotations of the layout."""
        if self.layout >= _LAST_IS_Q:
            return _with_p(self.layout - _LAST_IS_Q, self.members - 1, turn, last_is_q=True)
        return _with_p_and_q(self.layout, self.members, turn % self.members)

    def parities(self, row: Row, values: Sequence[int]) -> dict[int, int]:
        """Compute P, and Q, the sum of 2^slot times the data in GF(2^8); return both by slot.

        Source: H. Peter Anvin, "The mathematics of RAID-6".
        """
        if self.layout in _DDF_LAYOUTS:
            slots: list[int | None] = [role if role in row.data else None for role in range(self.members)]
        else:
            begin = ((row.q or 0) + 1) % self.members
            turned = [(begin + step) % self.members for step in range(self.members)]
            slots = [role for role in turned if role in row.data]
        q = 0
        for role in reversed(slots):  # Horner's rule
            q = _doubled(q) ^ (values[role] if role is not None else 0)
        return super().parities(row, values) | ({} if row.q is None else {row.q: q})


class _Nested(Level):
    """A nested level: inner arrays, the legs, and an md device over them. One of the two levels has copies."""

    least_members = 4
    any_chunk = True
    parts: ClassVar[tuple[str, str]]

    @property
    def _leg(self) -> Level:
        return LEVELS[self.parts[0]](self.members // self.legs)

    @property
    def _over(self) -> Level:
        return LEVELS[self.parts[1]](self.legs)

    @property
    def copies(self) -> int:
        """The number of copies in a leg times the number of copies of a leg."""
        return self._leg.copies * self._over.copies

    def synced(self, member_size: int) -> tuple[int, int]:
        """Return the bytes that the bitmap of a mirror covers, and the bytes of each device that stores the bitmap."""
        leg = self._leg
        return leg.synced(member_size) if leg.redundant else self._over.synced(leg.capacity(member_size))


class StripedMirrors(_Nested):
    """RAID1+0: a RAID0 over RAID1 legs."""

    name = "1+0"
    parts = ("1", "0")

    @classmethod
    def usual_legs(cls, members: int) -> int:
        """Return the default number of legs: one for each pair of members."""
        return members // 2


class MirroredStripes(_Nested):
    """RAID0+1: a RAID1 over RAID0 legs."""

    name = "0+1"
    parts = ("0", "1")

    @classmethod
    def usual_legs(cls, members: int) -> int:  # noqa: ARG003
        """Return the default number of legs, 2."""
        return 2


@lru_cache(maxsize=4096)
def _row(level: _Parity, turn: int) -> Row:
    return level.turned(turn)


def _with_p(layout: int, members: int, turn: int, *, last_is_q: bool = False) -> Row:
    q = members if last_is_q else None
    if layout in {_PARITY_FIRST, _PARITY_LAST}:
        p = 0 if layout == _PARITY_FIRST else members - 1
        return Row(tuple(role for role in range(members) if role != p), p, q)
    if layout not in {*_LEFT, _RIGHT_ASYMMETRIC, _RIGHT_SYMMETRIC}:
        raise RequestError(f"RAID5 layout {layout} is not supported; valid: {sorted(_RAID5_LAYOUTS.values())}")
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
        raise RequestError(f"RAID6 layout {layout} is not supported; valid: {sorted(_RAID6_LAYOUTS.values())}")
    return Row(tuple(role for role in range(members) if role not in {p, q}), p, q)


@lru_cache(maxsize=256)
def product_table(factor: int) -> bytes:
    """Return the products of ``factor`` and each byte in GF(2^8), the field of Q, as a table for `bytes.translate`."""
    products = [0] * 256
    for value in range(256):
        double, rest = value, factor
        while rest:
            products[value] ^= double if rest & 1 else 0
            double, rest = (double << 1) ^ (0x11D if double & 0x80 else 0), rest >> 1
    return bytes(products)


def _doubled(value: int) -> int:
    """Multiply each byte of a page by 2 in GF(2^8)."""
    return ((value & _LOW_BITS) << 1) ^ (((value & _HIGH_BITS) >> 7) * 0x1D)
