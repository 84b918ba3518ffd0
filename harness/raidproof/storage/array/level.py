"""The interface of a RAID level, and the arithmetic that levels have in common.

Source: Patterson, Gibson, Katz, "A case for redundant arrays of inexpensive disks", SIGMOD 1988.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator

from raidproof.core.errors import RequestError, nearest
from raidproof.core.registry import Registry

LEVELS: Registry[type["Level"]] = Registry("level", "raidproof.storage.array", "raidproof.levels")
"""All RAID levels by name, as mdadm and plans write it: ``5``, ``10``; nested levels are ``1+0`` and ``0+1``."""
DEFAULT = "5"


class Part(StrEnum):
    """What md stores in a chunk of a member: data, or one of the two parities P and Q of md(4)."""

    DATA = "data"
    P = "parity"
    Q = "Q"
    UNUSED = "unused"
    """No part: the bytes lie behind the last whole stripe, and md stores nothing in them."""


@dataclass(frozen=True)
class Row:
    """The member slots that hold the data and the parity of one stripe."""

    data: tuple[int, ...]
    """Slots of the data chunks, in the order of the chunks in the array."""
    p: int | None = None
    """Slot of the parity P; None without parity."""
    q: int | None = None
    """Slot of the second parity Q; None except for RAID6."""


@dataclass(frozen=True)
class MemberRequests:
    """The requests to members that one request to the array causes."""

    commands: float
    """Number of requests to members."""
    width: int
    """Number of members that serve the request at the same time."""
    size: int
    """Bytes of one request to a member."""
    modifies: bool = False
    """Whether md must read old data or parity before it writes."""

    def traffic(self, request: int) -> float:
        """Return the bytes that all members transfer per byte of a request to the array; ``request`` is its size."""
        return self.commands * self.size / request


@dataclass(frozen=True)
class Level:
    """A RAID level with a number of members and a layout. A subclass that sets ``name`` is registered in `LEVELS`.

    The methods here compute a level with copies: `copies` members hold each byte, and the chunks lie on the members in
    turn. Levels with parity override these methods.
    """

    name: ClassVar[str]
    number: ClassVar[int | None] = None
    """md's number of the level in a superblock; None for a nested level, which consists of several md devices."""
    kernel_name: ClassVar[str | None] = None
    """The content of the sysfs file md/level; None for a nested level."""
    least_members: ClassVar[int] = 2
    parity: ClassVar[int] = 0
    """Number of parity chunks of a stripe. With parity, a small write is a read-modify-write."""
    redundant: ClassVar[bool] = True
    """Whether the level has copies or parity, from which md can resync, check and rebuild."""
    logs: ClassVar[frozenset[str]] = frozenset()
    """The supported consistency policies that log each write: ``ppl``, ``journal``."""
    member_flags: ClassVar[frozenset[str]] = frozenset()
    """The flags of members that take effect in md: ``write-mostly``, ``failfast`` (mdadm(8))."""
    chunked: ClassVar[bool] = True
    """Whether the level divides its data into chunks; a mirror does not."""
    any_chunk: ClassVar[bool] = False
    """Whether the chunk size need not be a power of two."""
    spellings: ClassVar[frozenset[str]] = frozenset()
    """Further names of the level, which `read_level` accepts."""
    parts: ClassVar[tuple[str, str] | None] = None
    """For a nested level, the level of its legs and the level of the md device over the legs; else None."""
    synced_as_array: ClassVar[bool] = False
    """Whether the positions of resync and bitmap are offsets in the array, not offsets in each member."""
    default_layout: ClassVar[str | None] = None
    """The name of mdadm's default layout, which is always requested explicitly; None for a level without layouts."""

    members: int
    """Number of members, in a nested array of all legs together."""
    layout: int = 0
    """The kernel's number of the layout (sysfs file md/layout)."""
    legs: int = 1
    """Number of inner arrays of a nested array."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Register a subclass that sets ``name``."""
        super().__init_subclass__(**more)
        if "name" in vars(cls):
            LEVELS.add(cls.name, cls)

    @classmethod
    def of_md(cls) -> bool:
        """Return whether md has the level: as one device, or as several devices of a nested level."""
        return cls.number is not None or cls.parts is not None

    @classmethod
    def layouts(cls, members: int) -> Mapping[str, int]:  # noqa: ARG003
        """Return the layouts for this number of members: the kernel's number of each by its name in mdadm."""
        return {}

    @classmethod
    def usual_legs(cls, members: int) -> int:  # noqa: ARG003
        """Return the number of legs of a nested array for which no number is requested; 1 if not nested."""
        return 1

    @classmethod
    def of(cls, members: int, layout: str | None, legs: int = 1) -> Self:
        """Return the level with this number of members and the layout of this name; None is the default layout."""
        return cls(members, cls.layouts(members).get(layout or cls.default_layout or "", 0), legs)

    @property
    def copies(self) -> int:
        """The number of members that hold a copy of each byte of data; parity does not count."""
        return 1

    @property
    def width(self) -> int:
        """The number of different data chunks that the members can transfer at the same time."""
        return max(1, (self.members - self.parity) // self.copies)

    @property
    def data_disks(self) -> int:
        """The number of data chunks in one stripe. The kernel reports their total size as queue/optimal_io_size."""
        return self.width

    @property
    def most_lost(self) -> int:
        """The largest number of members that may be missing without loss of data.

        With copies, this holds only if the missing members do not hold all copies of a chunk.
        """
        return self.parity or self.members - ceil(self.members / self.copies)

    @property
    def written(self) -> float:
        """The bytes that md writes to the members per byte of data, if it writes whole stripes."""
        return self.copies * (self.width + self.parity) / self.width

    @property
    def members_alike(self) -> int:
        """The number of members that may have the same old data in each block while copies and parity are right.

        All further members contain zeros. See `holders_of_old_data`.
        """
        return self.members

    def capacity(self, member_size: int) -> int:
        """Return the bytes of an array whose smallest member has ``member_size`` bytes. Metadata is not subtracted."""
        return (self.members - self.parity) * member_size // self.copies

    def synced(self, member_size: int) -> tuple[int, int]:
        """Return the bytes that a bitmap covers, and the bytes of each device that stores the bitmap."""
        return (self.capacity(member_size) if self.synced_as_array else member_size), member_size

    @property
    def readers(self) -> int:
        """The number of members over which md distributes the chunks of one read."""
        return self.width

    def stream_readers(self, streams: int) -> int:
        """Return the number of members whose media rates add up for this number of concurrent sequential reads.

        md reads each stream from one copy. A drive also spends time on parity and other copies,
        because they pass under its heads.
        """
        return min(self.members, self.width * min(streams, self.copies))

    def reads(self, request: int, chunk_size: int | None) -> MemberRequests:
        """Return the member requests of a read of ``request`` bytes. md reads each chunk from one of its copies."""
        width = min(ceil(request / (chunk_size or request)), self.readers)
        return MemberRequests(commands=width, width=width, size=ceil(request / width))

    def writes(self, request: int, chunk_size: int | None) -> MemberRequests:
        """Return the member requests of a write of ``request`` bytes. md writes each copy.

        The write is assumed to begin at a chunk boundary, or if it is longer than a stripe, at a stripe boundary.
        """
        parts = min(ceil(request / (chunk_size or request)), self.width)
        written = parts * self.copies
        return MemberRequests(commands=written, width=written, size=ceil(request / parts))

    def require_mapped(self) -> None:
        """Check that `places` and `content` support this layout.

        Raises:
            RequestError: the layout is not supported.
        """

    def row(self, stripe: int) -> Row:  # noqa: ARG002
        """Return the slots of data and parity in a stripe, by number of the stripe. Without parity all hold data.

        Raises:
            RequestError: the layout is not supported.
        """
        return Row(tuple(range(self.members)))

    def places(self, chunk: int) -> tuple[tuple[int, int], ...]:
        """Return for each copy of a chunk of the array: (slot of the member, number of the chunk on the member)."""
        slots = range(chunk * self.copies, (chunk + 1) * self.copies)
        return tuple((slot % self.members, slot // self.members) for slot in slots)

    def content(self, role: int, stripe: int) -> tuple[Part, int | None]:
        """Return the kind of content of a member's chunk in a stripe (data, P, Q), and a data chunk's number."""
        return Part.DATA, (stripe * self.members + role) // self.copies

    def parities(self, row: Row, values: Sequence[int]) -> dict[int, int]:  # noqa: ARG002
        """Compute P and Q from the data of a stripe; return them by the slot of the parity's member.

        ``values`` has the pages of all members at one offset in the stripe, by slot, each page as one integer.
        """
        return {}


def read_level(value: Any) -> str:
    """Return the name of a level from its usual spellings: 5, ``raid5``, ``RAID-5``, ``mirror``.

    Raises:
        RequestError: no level has this name; the message has the levels of md, then those that only other kinds of
            array have.
    """
    word = str(value).lower().removeprefix("raid").strip("- ")
    named = next((name for name, kind in LEVELS.items() if word in kind.spellings), word)
    if named not in LEVELS:
        of_md = level_names(lambda kind: kind.of_md())
        others = [name for name in level_names() if name not in of_md]
        raise RequestError(
            f"unknown RAID level {str(value)!r}; {nearest(named, of_md)}"
            + (f"; not of md: {', '.join(others)}" if others else "")
        )
    return named


LevelName = Annotated[str, BeforeValidator(read_level)]
"""The type of a field with the name of a RAID level in `LEVELS`."""


def level_of(number: int) -> type[Level]:
    """Return the class of the level with this number in md's superblock.

    Raises:
        RequestError: no registered level has this number.
    """
    if found := next((kind for _, kind in LEVELS.items() if kind.number == number), None):
        return found
    numbers = sorted(kind.number for _, kind in LEVELS.items() if kind.number is not None)
    raise RequestError(f"md level {number} is not supported; valid: {', '.join(map(str, numbers))}")


def level_names(condition: Callable[[type[Level]], bool] = lambda _: True) -> list[str]:
    """Return the names of the levels that meet a condition, nested levels last."""
    return sorted(
        (name for name, kind in LEVELS.items() if condition(kind)), key=lambda name: ("+" in name, len(name), name)
    )


def listed(condition: Callable[[type[Level]], bool], word: str = "and") -> str:
    """Return the names of md's levels that meet a condition (at least one must) as text: ``4, 5 and 6``."""
    *names, last = level_names(lambda kind: kind.of_md() and condition(kind))
    return f"{', '.join(names)} {word} {last}" if names else last
