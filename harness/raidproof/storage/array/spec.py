"""The request for an array: layout, redundancy, geometry, and which disks may hold old data."""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.layer import PAGE_SIZE, Spec, one_of, power_of_two
from raidproof.core.units import KIB, Size, format_size
from raidproof.storage.array.level import DEFAULT, LEVELS, Level, listed, read_level
from raidproof.storage.array.superblock import LARGEST_CHUNK, LEAST_CHUNK, least_chunk

Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")]
LevelName = Annotated[str, BeforeValidator(read_level)]


class Geometry(NamedTuple):
    """The values to which a filesystem may be aligned."""

    stripe_unit: int
    """Bytes that lie on one member before the next one is used."""
    data_disks: int
    """Stripe units of data in one whole stripe, as the kernel reports it in queue/optimal_io_size."""


class Md(NamedTuple):
    """One md device of an array: a plain array has one; a nested array has one per leg and one over the legs."""

    number: int
    level: str
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

    level: LevelName = DEFAULT
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
        # mdadm's default, 512 KiB; a mirror has no chunks.
        chunked = LEVELS[read_level(data.get("level", DEFAULT))].chunked
        return {**data, "chunk_size": 512 * KIB} if chunked else data

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
        least = self.kind.least_members
        if len(self.members) < least:
            raise RequestError(f"RAID{self.level} needs at least {least} members, not {len(self.members)}")
        if twice := sorted({serial for serial in self.disks if self.disks.count(serial) > 1}):
            raise RequestError(f"a disk can be in an array only once: {', '.join(twice)}")
        if self.spares and not self.kind.redundant:
            raise RequestError(f"RAID{self.level} has no redundancy, so a spare could never be used")
        if self.spares and self.kind.parts:
            raise RequestError(
                f"a spare of RAID{self.level} could replace members of one inner array only",
                remedy="use RAID10, whose spares replace any member",
            )

    def _refuse_legs(self) -> None:
        if not self.kind.parts:
            if self.legs is not None:
                nested = listed(lambda kind: kind.parts is not None)
                raise RequestError(f"RAID{self.level} has no legs: only {nested} do")
            return
        if self.leg_count < 2 or len(self.members) % self.leg_count or len(self.members) // self.leg_count < 2:
            raise RequestError(
                f"{len(self.members)} members do not make {self.leg_count} legs of equal size with two or more each"
            )

    def _refuse_chunk(self) -> None:
        chunk = self.chunk_size
        if not self.kind.chunked:
            if chunk is not None:
                raise RequestError(f"RAID{self.level} keeps whole copies: it has no chunk size")
            return
        if chunk is None:
            raise RequestError(f"RAID{self.level} needs a chunk size")
        if chunk < PAGE_SIZE or chunk % PAGE_SIZE:
            raise RequestError(f"chunk size {format_size(chunk)} is not a multiple of the page size, 4KiB")
        if not self.kind.any_chunk and not power_of_two(chunk):
            raise RequestError(f"chunk size {format_size(chunk)}: RAID{self.level} needs a power of two")

    def _refuse_layout(self, layout: str) -> None:
        if not (known := self.kind.layouts(len(self.members))):
            others = listed(lambda kind: kind.default_layout is not None)
            raise RequestError(f"RAID{self.level} has no layout to choose: RAID{others} do")
        one_of(f"layout of RAID{self.level} with {len(self.members)} members", layout, known)

    def _refuse_policy(self) -> None:
        policy, logs = self.consistency_policy, self.kind.logs
        if not self.kind.redundant and (policy or self.bitmap == "internal"):
            raise RequestError(f"RAID{self.level} has no redundancy to keep consistent: no bitmap, no policy")
        if policy == "ppl" and "ppl" not in logs:
            others = listed(lambda kind: "ppl" in kind.logs)
            raise RequestError(f"a partial parity log (ppl) exists for RAID{others} only")
        if (policy == "journal" or self.journal) and "journal" not in logs:
            others = listed(lambda kind: "journal" in kind.logs)
            raise RequestError(f"a journal device is for RAID{others} only")
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
        synced, member = self.raid.synced(member_size)
        if self.bitmap_chunk < (least := least_chunk(synced, member)):
            raise RequestError(
                f"bitmap chunk {format_size(self.bitmap_chunk)}: on members of {format_size(member)} mdadm has room "
                f"for chunks of {format_size(least)} or more"
            )

    @property
    def kind(self) -> type[Level]:
        """The level."""
        return LEVELS[self.level]

    @property
    def raid(self) -> Level:
        """The level with these members and this layout."""
        return self.kind.of(len(self.members), self.layout, self.leg_count)

    @property
    def leg_count(self) -> int:
        """Number of arrays of which a nested array consists."""
        return self.kind.usual_legs(len(self.members)) if self.legs is None else self.legs

    @property
    def policy(self) -> str:
        """The effective consistency policy, as the kernel names it.

        The default is a bitmap: mdadm gives one to every redundant array of more than 100 GB, and deployed arrays are
        larger.
        """
        if not self.kind.redundant:
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
        return None if self.chunk_size is None else Geometry(self.chunk_size, self.raid.data_disks)

    @property
    def stripe_size(self) -> int | None:
        """The bytes of data that can be read or written at once, counting each byte once; None for a mirror."""
        return None if self.chunk_size is None else self.chunk_size * self.raid.width

    @property
    def devices(self) -> tuple[Md, ...]:
        """The md devices of this array, in the order of creation: legs first, md0 on top of them last."""
        members = tuple(map(disk_path, self.members))
        if self.kind.parts is None:
            top = Md(
                number=0,
                level=self.level,
                members=members,
                spares=tuple(map(disk_path, self.spares)),
                journal=disk_path(self.journal) if self.journal else None,
                chunk_size=self.chunk_size,
                layout=self.layout or self.kind.default_layout,
                consistency_policy=self.policy,
                bitmap_chunk=self.bitmap_chunk,
            )
            return (top,)
        inner, outer = self.kind.parts
        size = len(members) // self.leg_count
        legs = tuple(
            self._part(number + 1, inner, members[number * size : (number + 1) * size])
            for number in range(self.leg_count)
        )
        return (*legs, self._part(0, outer, tuple(leg.device for leg in legs)))

    def _part(self, number: int, level: str, members: tuple[str, ...]) -> Md:
        """Return an md device of a nested array."""
        kind = LEVELS[level]
        return Md(
            number=number,
            level=level,
            members=members,
            chunk_size=self.chunk_size if kind.chunked else None,
            consistency_policy=self.policy if kind.redundant else "none",
            bitmap_chunk=self.bitmap_chunk if kind.redundant else None,
        )


def capacity(spec: ArraySpec, member_size: int) -> int:
    """Return the bytes that an array offers if its smallest member has ``member_size`` bytes, without metadata."""
    return spec.raid.capacity(member_size)


def holders_of_old_data(spec: ArraySpec) -> tuple[str, ...]:
    """Return the serials of the members that may hold `sparse_image.OLD_DATA` where nothing was written.

    The old data is the same at each place of each disk, so that copies and parity agree on the members that the level
    says. All members of an array that is resynced first stay blank, because the resync would copy the old data to
    places that are logged.
    """
    if spec.kind.redundant and not spec.assume_clean:
        return ()
    return spec.members[: spec.raid.members_alike]
