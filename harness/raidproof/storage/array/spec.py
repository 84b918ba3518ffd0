"""The request for an array: layout, redundancy, geometry, and which disks may hold old data."""

from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.layer import PAGE_SIZE, Spec, one_of, power_of_two
from raidproof.core.units import KIB, Size, format_size
from raidproof.storage.array.superblock import LARGEST_CHUNK, LEAST_CHUNK, least_chunk

# Numbers are those of the kernel's md/<array>/layout file.
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
Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")]


class Level(StrEnum):
    """How an array spreads data over its members."""

    RAID0 = "0"
    RAID1 = "1"
    RAID4 = "4"
    RAID5 = "5"
    RAID6 = "6"
    RAID10 = "10"
    STRIPED_MIRRORS = "1+0"
    MIRRORED_STRIPES = "0+1"


PARITY_LEVELS = frozenset({Level.RAID4, Level.RAID5, Level.RAID6})
NESTED_LEVELS = frozenset({Level.STRIPED_MIRRORS, Level.MIRRORED_STRIPES})

_LEAST_MEMBERS = {
    Level.RAID0: 2,
    Level.RAID1: 2,
    Level.RAID4: 2,
    Level.RAID5: 2,
    Level.RAID6: 4,
    Level.RAID10: 2,
    Level.STRIPED_MIRRORS: 4,
    Level.MIRRORED_STRIPES: 4,
}


class Geometry(NamedTuple):
    """The values to which a filesystem may be aligned."""

    stripe_unit: int
    """Bytes that lie on one member before the next one is used."""
    data_disks: int
    """Stripe units of data in one whole stripe, as the kernel reports it in queue/optimal_io_size."""


def layouts(level: Level, members: int) -> dict[str, int]:
    """Return all layouts of a level, by name, with the kernel's number of each."""
    if level is Level.RAID5:
        return _RAID5_LAYOUTS
    if level is Level.RAID6:
        return _RAID6_LAYOUTS
    if level is Level.RAID10:
        copies = range(2, members + 1)
        near = {f"n{count}": 1 << 8 | count for count in copies}
        far = {f"f{count}": count << 8 | 1 for count in copies}
        offset = {f"o{count}": 1 << 16 | count << 8 | 1 for count in copies}
        return {**near, **far, **offset}
    return {}


def data_disks(level: Level, members: int, layout: str | None = None) -> int:
    """Return how many stripe units of data one stripe has, as the kernel counts.

    A far or offset RAID10 stripes its first copy over all members; so does a near one if its number of members is not
    a multiple of its copies.
    """
    match level:
        case Level.RAID0:
            return members
        case Level.RAID1:
            return 1
        case Level.RAID4 | Level.RAID5:
            return members - 1
        case Level.RAID6:
            # The -6 layouts are RAID5 layouts whose last member holds Q alone.
            return members - 2
        case Level.RAID10:
            kind, copies = (layout or "n2")[0], int((layout or "n2")[1:])
            return members // copies if kind == "n" and members % copies == 0 else members
        case _:
            raise ValueError(f"{level} is made of arrays: ask its parts")


def _read_level(value: Any) -> Any:
    word = str(value).lower().removeprefix("raid").strip("- ")
    try:
        return Level(word)
    except ValueError:
        one_of("level", word, [str(level) for level in Level])
        raise


class Md(NamedTuple):
    """One md device of an array: a plain array has one; a nested array has one per leg and one over the legs."""

    number: int
    level: Level
    members: tuple[str, ...]
    """Device paths."""
    spares: tuple[str, ...] = ()
    journal: str | None = None
    chunk_size: int | None = None
    layout: str | None = None
    consistency_policy: str = "none"
    bitmap_chunk: int | None = None

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"md{self.number}"

    @property
    def device(self) -> str:
        """The path of the device."""
        return f"/dev/{self.name}"

    @property
    def inputs(self) -> tuple[str, ...]:
        """All devices that make up the md device."""
        return (*self.members, *self.spares, *((self.journal,) if self.journal else ()))


def disk_path(serial: str) -> str:
    """Return the path of a member disk, which does not depend on the kernel's name for it."""
    return f"/dev/disk/by-id/raidproof-{serial}"


class ArraySpec(Spec):
    """A requested array. Members, spares and journal are named by the serial of the disk.

    ``chunk_size`` is in bytes; ``legs`` is the number of mirrors that a 1+0 is striped over (default: two members
    each), or the number of stripes that a 0+1 mirrors (default: two). In a nested array the chunk size applies to the
    stripes, the bitmap to the mirrors. ``bitmap_chunk`` is how many bytes one bit of the bitmap covers: of each
    member, of a RAID10 of the array. The default is mdadm's: 64 MiB, or more on large members.
    """

    level: Annotated[Level, BeforeValidator(_read_level)] = Level.RAID5
    members: tuple[Serial, ...]
    spares: tuple[Serial, ...] = ()
    journal: Serial | None = None
    chunk_size: Size | None = None
    layout: str | None = None
    legs: int | None = None
    bitmap: Literal["none", "internal"] | None = None
    bitmap_chunk: Size | None = None
    consistency_policy: Literal["resync", "bitmap", "journal", "ppl"] | None = None
    assume_clean: bool = False
    """Assume that the members agree already, which is true if all are zero, and skip the first resync."""

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "chunk_size" in data:
            return data
        level = _read_level(data.get("level", Level.RAID5))
        # mdadm's default, 512 KiB; a mirror has no chunks.
        return data if level is Level.RAID1 else {**data, "chunk_size": 512 * KIB}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self._refuse_members()
        self._refuse_legs()
        self._refuse_chunk()
        if self.layout is not None:
            self._refuse_layout(self.layout)
        self._refuse_policy()
        if self.bitmap_chunk is not None:
            self._refuse_bitmap_chunk(self.bitmap_chunk)
        return self

    def _refuse_members(self) -> None:
        least = _LEAST_MEMBERS[self.level]
        if len(self.members) < least:
            raise RequestError(f"RAID{self.level} needs at least {least} members, not {len(self.members)}")
        if twice := sorted({serial for serial in self.disks if self.disks.count(serial) > 1}):
            raise RequestError(f"a disk can be in an array only once: {', '.join(twice)}")
        if self.spares and self.level is Level.RAID0:
            raise RequestError("RAID0 has no redundancy, so a spare could never be used")
        if self.spares and self.level in NESTED_LEVELS:
            raise RequestError(f"a spare of RAID{self.level} would belong to one leg only; RAID10 shares its spares")

    def _refuse_legs(self) -> None:
        if self.level not in NESTED_LEVELS:
            if self.legs is not None:
                raise RequestError(f"RAID{self.level} has no legs: only 1+0 and 0+1 do")
            return
        if self.leg_count < 2 or len(self.members) % self.leg_count or len(self.members) // self.leg_count < 2:
            raise RequestError(
                f"{len(self.members)} members do not make {self.leg_count} legs of equal size with two or more each"
            )

    def _refuse_chunk(self) -> None:
        chunk = self.chunk_size
        if self.level is Level.RAID1:
            if chunk is not None:
                raise RequestError("RAID1 keeps whole copies: it has no chunk size")
            return
        if chunk is None:
            raise RequestError(f"RAID{self.level} needs a chunk size")
        if chunk < PAGE_SIZE or chunk % PAGE_SIZE:
            raise RequestError(f"chunk size {format_size(chunk)} is not a multiple of the page size, 4KiB")
        striped = self.level is Level.RAID0 or self.level in NESTED_LEVELS
        if not striped and not power_of_two(chunk):
            raise RequestError(f"chunk size {format_size(chunk)}: RAID{self.level} needs a power of two")

    def _refuse_layout(self, layout: str) -> None:
        if not (known := layouts(self.level, len(self.members))):
            raise RequestError(f"RAID{self.level} has no layout to choose: RAID5, 6 and 10 do")
        one_of(f"layout of RAID{self.level} with {len(self.members)} members", layout, known)

    def _refuse_policy(self) -> None:
        policy, level = self.consistency_policy, self.level
        if level is Level.RAID0 and (policy or self.bitmap == "internal"):
            raise RequestError("RAID0 has no redundancy to keep consistent: no bitmap, no policy")
        if policy == "ppl" and level is not Level.RAID5:
            raise RequestError("a partial parity log (ppl) exists for RAID5 only")
        if (policy == "journal" or self.journal) and level not in PARITY_LEVELS:
            raise RequestError("a journal device is for RAID4, 5 and 6 only")
        if policy == "journal" and not self.journal:
            raise RequestError("consistency policy journal needs a journal device")
        if self.journal and policy not in {None, "journal"}:
            raise RequestError(f"consistency policy {policy} makes no use of a journal device")
        contradiction = "none" if policy == "bitmap" else "internal" if policy or self.journal else None
        if self.bitmap is not None and self.bitmap == contradiction:
            raise RequestError(f"consistency policy {policy or 'journal'} contradicts bitmap {self.bitmap}")

    def _refuse_bitmap_chunk(self, chunk: int) -> None:
        if self.policy != "bitmap":
            raise RequestError(f"bitmap chunk {format_size(chunk)}: there is no bitmap, the policy is {self.policy}")
        if not power_of_two(chunk) or not LEAST_CHUNK <= chunk <= LARGEST_CHUNK:
            bounds = f"{format_size(LEAST_CHUNK)} to {format_size(LARGEST_CHUNK)}"
            raise RequestError(f"bitmap chunk {format_size(chunk)} is not a power of two from {bounds}")

    def refuse_size(self, member_size: int) -> None:
        """Check that the bitmap has room on members of this size (bytes).

        Raises:
            RequestError: its chunk is too small.
        """
        if self.bitmap_chunk is None:
            return
        whole_array = self.level in {Level.RAID10, Level.MIRRORED_STRIPES}
        synced = capacity(self, member_size) if whole_array else member_size
        member = synced if self.level is Level.MIRRORED_STRIPES else member_size
        if self.bitmap_chunk < (least := least_chunk(synced, member)):
            raise RequestError(
                f"bitmap chunk {format_size(self.bitmap_chunk)}: on members of {format_size(member)} mdadm has room "
                f"for chunks of {format_size(least)} or more"
            )

    @property
    def leg_count(self) -> int:
        """Number of arrays of which a nested array consists."""
        if self.legs is not None:
            return self.legs
        return len(self.members) // 2 if self.level is Level.STRIPED_MIRRORS else 2

    @property
    def policy(self) -> str:
        """The effective consistency policy, as the kernel names it.

        The default is a bitmap: mdadm gives one to every redundant array of more than 100 GB, and deployed arrays are
        larger.
        """
        if self.level is Level.RAID0:
            return "none"
        if self.journal:
            return "journal"
        return self.consistency_policy or ("resync" if self.bitmap == "none" else "bitmap")

    @property
    def disks(self) -> tuple[str, ...]:
        """The serials of all disks of the array."""
        return (*self.members, *self.spares, *((self.journal,) if self.journal else ()))

    @property
    def geometry(self) -> Geometry | None:
        """Stripe unit and data disks, or None for a mirror, which has no stripes."""
        if self.level is Level.RAID1 or self.chunk_size is None:
            return None
        if self.level is Level.STRIPED_MIRRORS:
            return Geometry(self.chunk_size, self.leg_count)
        if self.level is Level.MIRRORED_STRIPES:
            return Geometry(self.chunk_size, len(self.members) // self.leg_count)
        return Geometry(self.chunk_size, data_disks(self.level, len(self.members), self.layout))

    @property
    def devices(self) -> tuple[Md, ...]:
        """The md devices of this array, in the order of creation: legs first, md0 on top of them last."""
        members = tuple(map(disk_path, self.members))
        if self.level not in NESTED_LEVELS:
            top = Md(
                number=0,
                level=self.level,
                members=members,
                spares=tuple(map(disk_path, self.spares)),
                journal=disk_path(self.journal) if self.journal else None,
                chunk_size=self.chunk_size,
                layout=self.layout or default_layout(self.level),
                consistency_policy=self.policy,
                bitmap_chunk=self.bitmap_chunk,
            )
            return (top,)
        mirrors_inside = self.level is Level.STRIPED_MIRRORS
        mirror = (Level.RAID1, None, self.policy, self.bitmap_chunk)
        stripe = (Level.RAID0, self.chunk_size, "none", None)
        inner, outer = (mirror, stripe) if mirrors_inside else (stripe, mirror)
        size = len(members) // self.leg_count
        legs = tuple(
            Md(
                number=number + 1,
                level=inner[0],
                members=members[number * size : (number + 1) * size],
                chunk_size=inner[1],
                consistency_policy=inner[2],
                bitmap_chunk=inner[3],
            )
            for number in range(self.leg_count)
        )
        over = tuple(leg.device for leg in legs)
        top = Md(
            number=0,
            level=outer[0],
            members=over,
            chunk_size=outer[1],
            consistency_policy=outer[2],
            bitmap_chunk=outer[3],
        )
        return (*legs, top)


def default_layout(level: Level) -> str | None:
    """Return mdadm's default layout, which is requested by name so that it is verified like any other."""
    return {Level.RAID5: "left-symmetric", Level.RAID6: "left-symmetric", Level.RAID10: "n2"}.get(level)


def capacity(spec: ArraySpec, member_size: int) -> int:
    """Return the bytes that an array offers if its smallest member has ``member_size`` bytes, without metadata."""
    members = len(spec.members)
    match spec.level:
        case Level.RAID0:
            return members * member_size
        case Level.RAID1:
            return member_size
        case Level.RAID10:
            return members * member_size // int((spec.layout or "n2")[1:])
        case Level.STRIPED_MIRRORS:
            return spec.leg_count * member_size
        case Level.MIRRORED_STRIPES:
            return members // spec.leg_count * member_size
        case _:
            return data_disks(spec.level, members) * member_size


def holders_of_old_data(spec: ArraySpec) -> tuple[str, ...]:
    """Return the serials of the members that may hold `sparse_image.OLD_DATA` where nothing was written.

    The old data is the same at each place of each disk. So copies agree whatever the layout, and the parity of RAID4
    and 5, the XOR of the data, is zero over an even number of members: of an odd number the last stays blank. RAID6
    has a second syndrome with another factor for each member, and the place of this syndrome changes from stripe to
    stripe: all its members stay blank. So do the members of an array that is resynced first, because the resync would
    copy the old data to places that are logged; and those of a RAID10 with copies in two rows, because a crash state
    has old data row by row.
    """
    if spec.level is Level.RAID0:
        return spec.members
    if spec.level is Level.RAID6 or not spec.assume_clean or _straddles(spec):
        return ()
    even = len(spec.members) // 2 * 2 if spec.level in PARITY_LEVELS else len(spec.members)
    return spec.members[:even]


def _straddles(spec: ArraySpec) -> bool:
    """Return whether near copies lie in two rows."""
    if spec.level is not Level.RAID10:
        return False
    layout = spec.layout or "n2"
    return layout.startswith("n") and len(spec.members) % int(layout[1:]) != 0
