"""The interface of a RAID level, which registers itself, and the arithmetic that levels have in common.

Patterson, Gibson, Katz, "A case for redundant arrays of inexpensive disks", SIGMOD 1988.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Any, ClassVar, Self

from raidproof.core.errors import RequestError
from raidproof.core.layer import one_of
from raidproof.core.registry import Registry

LEVELS: Registry[type["Level"]] = Registry("level", "raidproof.storage.array", "raidproof.levels")
"""The levels by the names that mdadm and plans use; nested ones are ``1+0`` and ``0+1``."""
DEFAULT = "5"


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
class MemberRequests:
    """The member requests that one array request causes."""

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


@dataclass(frozen=True)
class Level:
    """A level with a number of members. A subclass with its own ``name`` registers itself.

    The arithmetic here is that of copies: every byte is on `copies` members, and chunks follow each other over the
    members. A level with parity overrides it.
    """

    name: ClassVar[str]
    number: ClassVar[int | None] = None
    """md's number of the level in a superblock; None if an array of this level consists of several md devices."""
    kernel_name: ClassVar[str | None] = None
    """The content of md's file ``level``."""
    least_members: ClassVar[int] = 2
    parity: ClassVar[int] = 0
    """Parity chunks of a stripe. With parity, a small write is a read-modify-write, through md's stripe cache."""
    redundant: ClassVar[bool] = True
    """Whether there are copies or parity to resync, to check and to rebuild from, with or without a bitmap."""
    logs: ClassVar[frozenset[str]] = frozenset()
    """The consistency policies, beside resync and bitmap, that log each write: ``ppl``, ``journal``."""
    chunked: ClassVar[bool] = True
    any_chunk: ClassVar[bool] = False
    """Whether the chunk size need not be a power of two."""
    parts: ClassVar[tuple[str, str] | None] = None
    """The level of the legs and the level of the array over the legs, if this level is nested."""
    synced_as_array: ClassVar[bool] = False
    """Whether the positions of resync and bitmap are offsets in the array, not offsets in each member."""
    default_layout: ClassVar[str | None] = None
    """mdadm's default, which is requested by name so that it is verified like any other; None without layouts."""

    members: int
    layout: int = 0
    """The kernel's number of the layout (md/layout)."""
    legs: int = 1
    """The number of arrays of which a nested array consists."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Register the level."""
        super().__init_subclass__(**more)
        if "name" in vars(cls):
            LEVELS.add(cls.name, cls)

    @classmethod
    def layouts(cls, members: int) -> Mapping[str, int]:  # noqa: ARG003
        """Return all layouts by name, with the kernel's number of each."""
        return {}

    @classmethod
    def usual_legs(cls, members: int) -> int:  # noqa: ARG003
        """Return the number of legs if none is requested."""
        return 1

    @classmethod
    def of(cls, members: int, layout: str | None, legs: int = 1) -> Self:
        """Return the level with these members and a layout by name; None is the default."""
        return cls(members, cls.layouts(members).get(layout or cls.default_layout or "", 0), legs)

    @property
    def copies(self) -> int:
        """The number of members that hold each byte of data, parity not counted."""
        return 1

    @property
    def width(self) -> int:
        """The number of different chunks of data that can be read or written at once."""
        return max(1, (self.members - self.parity) // self.copies)

    @property
    def data_disks(self) -> int:
        """The number of data chunks in one stripe, as the kernel reports it in queue/optimal_io_size."""
        return self.width

    @property
    def most_lost(self) -> int:
        """The number of members that the array can lack without loss of data, if they are not copies of each other."""
        return self.parity or self.members - ceil(self.members / self.copies)

    @property
    def written(self) -> float:
        """Bytes written to the members per byte of data, in whole stripes."""
        return self.copies * (self.width + self.parity) / self.width

    @property
    def members_alike(self) -> int:
        """The number of members whose old content may be the same byte pattern, so that copies and parity agree.

        The other members have to be blank.
        """
        return self.members

    def capacity(self, member_size: int) -> int:
        """Return the bytes of the array if its smallest member has ``member_size`` bytes, without metadata."""
        return (self.members - self.parity) * member_size // self.copies

    def synced(self, member_size: int) -> tuple[int, int]:
        """Return the bytes that a bitmap covers, and the size of a device that stores it."""
        return (self.capacity(member_size) if self.synced_as_array else member_size), member_size

    @property
    def readers(self) -> int:
        """The number of members among which the chunks of one read are divided."""
        return self.width

    def stream_readers(self, streams: int) -> int:
        """Return the number of members whose media rates add up for sequential reads.

        Parity and other copies pass under the heads too. Each stream is read from one copy.
        """
        return min(self.members, self.width * min(streams, self.copies))

    def reads(self, request: int, chunk_size: int | None) -> MemberRequests:
        """Return the cost of a read of ``request`` bytes: each chunk is read once, from one of its copies."""
        width = min(ceil(request / (chunk_size or request)), self.readers)
        return MemberRequests(commands=width, width=width, size=ceil(request / width))

    def writes(self, request: int, chunk_size: int | None) -> MemberRequests:
        """Return the cost of a write of ``request`` bytes that begins at a chunk (a large one: at a stripe).

        Each copy is written.
        """
        parts = min(ceil(request / (chunk_size or request)), self.width)
        written = parts * self.copies
        return MemberRequests(commands=written, width=written, size=ceil(request / parts))

    def require_mapped(self) -> None:
        """Check that `places` and `content` know this layout.

        Raises:
            RequestError: they do not.
        """

    def row(self, stripe: int) -> Row:  # noqa: ARG002
        """Return the roles of the members in a stripe, which differ only with parity.

        Raises:
            RequestError: there is no such layout.
        """
        return Row(tuple(range(self.members)))

    def places(self, chunk: int) -> tuple[tuple[int, int], ...]:
        """Return (role, number of the chunk on that member) of each copy of a chunk of the array."""
        slots = range(chunk * self.copies, (chunk + 1) * self.copies)
        return tuple((slot % self.members, slot // self.members) for slot in slots)

    def content(self, role: int, stripe: int) -> tuple[Part, int | None]:
        """Return the content of a chunk of a member: its kind, and of data the number of the chunk of the array."""
        return Part.DATA, (stripe * self.members + role) // self.copies

    def parities(self, row: Row, values: Sequence[int]) -> dict[int, int]:  # noqa: ARG002
        """Return the parity that the data of a row requires, by role.

        ``values`` are the pages of the members as integers.
        """
        return {}


def read_level(value: Any) -> str:
    """Return the name of a level that is written as people do: 5, ``raid5``, ``RAID-5``.

    Raises:
        RequestError: there is no such level.
    """
    return one_of("level", str(value).lower().removeprefix("raid").strip("- "), LEVELS)


def level_of(number: int) -> type[Level]:
    """Return the level with this number in md's superblock.

    Raises:
        RequestError: it is not known.
    """
    if found := next((kind for _, kind in LEVELS.items() if kind.number == number), None):
        return found
    raise RequestError(f"md level {number}: where its bytes lie is not known here")


def level_names(asks: Callable[[type[Level]], bool] = lambda _: True) -> list[str]:
    """Return the names of the levels for which a question is true, nested ones last."""
    return sorted(
        (name for name, kind in LEVELS.items() if asks(kind)), key=lambda name: ("+" in name, len(name), name)
    )


def listed(asks: Callable[[type[Level]], bool], word: str = "and") -> str:
    """Return the levels for which a question is true as text: ``4, 5 and 6``."""
    *names, last = level_names(asks)
    return f"{', '.join(names)} {word} {last}" if names else last
