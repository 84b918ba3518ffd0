"""The request for an array: its members, level, layout and bitmap, and the md devices that follow from them."""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.layer import PAGE_SIZE, Spec, one_of, power_of_two
from raidproof.core.units import KIB, Size, format_size
from raidproof.storage.array.level import DEFAULT, LEVELS, Level, listed, read_level
from raidproof.storage.array.superblock import LARGEST_CHUNK, LEAST_CHUNK, least_chunk

Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")]
"""The type of a field with the serial of a disk."""
LevelName = Annotated[str, BeforeValidator(read_level)]
"""The type of a field with the name of a RAID level in `LEVELS`."""


class Geometry(NamedTuple):
    """The stripe geometry of an array, to which a file system may be aligned."""

    stripe_unit: int
    """Consecutive bytes of the array that lie on one member: the chunk size."""
    data_disks: int
    """Stripe units of data in a stripe. The kernel reports stripe_unit * data_disks as queue/optimal_io_size."""


class Md(NamedTuple):
    """A requested md device. A plain array is one md device; a nested array has one per leg and one over the legs."""

    number: int
    """The minor number: 0 is /dev/md0, which carries the file system."""
    level: str
    members: tuple[str, ...]
    """Device paths of the members, in the order of their slots."""
    spares: tuple[str, ...] = ()
    """Device paths."""
    journal: str | None = None
    """Device path of the journal device (md(4)); None without one."""
    chunk_size: int | None = None
    """Bytes; None for a mirror."""
    layout: str | None = None
    """Name of the layout in mdadm; None for a level without layouts."""
    consistency_policy: str = "none"
    """How md keeps copies and parity consistent, in the words of the sysfs file md/consistency_policy."""
    bitmap_chunk: int | None = None
    """Bytes that one bit of the bitmap covers; None leaves the choice to mdadm."""

    @property
    def name(self) -> str:
        """The kernel's name of the md device: ``md0``."""
        return f"md{self.number}"

    @property
    def device(self) -> str:
        """The path of the md device: ``/dev/md0``."""
        return f"/dev/{self.name}"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The device paths of members, spares and journal."""
        return (*self.members, *self.spares, *((self.journal,) if self.journal else ()))


def disk_path(serial: str) -> str:
    """Return the device path of the disk with this serial. The path stays the same if the kernel's name changes."""
    return f"/dev/disk/by-id/raidproof-{serial}"


class ArraySpec(Spec):
    """The requested array. Disks are named by serial."""

    level: LevelName = DEFAULT
    """RAID level as text: ``5``, ``10``, or ``1+0`` and ``0+1`` for nested arrays."""
    members: tuple[Serial, ...]
    """The member disks, in the order of their slots."""
    spares: tuple[Serial, ...] = ()
    """The spare disks."""
    journal: Serial | None = None
    """The disk with md's journal of a RAID4, 5 or 6 (md(4)); None without a journal."""
    chunk_size: Size | None = None
    """Bytes; None for a mirror. In a nested array, the chunk size of its stripes."""
    layout: str | None = None
    """Name of the layout in mdadm; None requests mdadm's default."""
    legs: int | None = None
    """Number of inner arrays of a nested array.

    They are the mirrors of a 1+0, by default of two members each, or the stripes of a 0+1, by default two stripes.
    """
    bitmap: Literal["none", "internal"] | None = None
    """Whether the array, or each mirror of a nested array, has a write-intent bitmap; None: as `policy` requires."""
    bitmap_chunk: Size | None = None
    """Bytes that one bit of the bitmap covers: of each member, or for RAID10 of the array.

    None leaves the choice to mdadm: 64 MiB, or more on large members.
    """
    consistency_policy: Literal["resync", "bitmap", "journal", "ppl"] | None = None
    """How md keeps copies and parity consistent after a crash (md(4)); None requests the default, see `policy`."""
    assume_clean: bool = False
    """Whether to skip the first resync (mdadm --assume-clean). This is right only if all members are zero."""

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
            raise RequestError(
                f"RAID{self.level} has no redundancy, so that md could not use a spare: {', '.join(self.spares)}"
            )
        if self.spares and self.kind.parts:
            raise RequestError(
                f"a spare of RAID{self.level} could replace members of one inner array only: {', '.join(self.spares)}",
                remedy="use RAID10, whose spares replace any member",
            )

    def _refuse_legs(self) -> None:
        if not self.kind.parts:
            if self.legs is not None:
                nested = listed(lambda kind: kind.parts is not None)
                raise RequestError(f"RAID{self.level} has no legs: only {nested} have")
            return
        if self.leg_count < 2 or len(self.members) % self.leg_count or len(self.members) // self.leg_count < 2:
            raise RequestError(
                f"RAID{self.level}: {len(self.members)} members do not make {self.leg_count} legs: at least two legs "
                "of equal size with two or more members each are needed"
            )

    def _refuse_chunk(self) -> None:
        chunk = self.chunk_size
        if not self.kind.chunked:
            if chunk is not None:
                raise RequestError(
                    f"RAID{self.level} does not divide its data into chunks: it has no chunk size, requested "
                    f"{format_size(chunk)}"
                )
            return
        if chunk is None:
            raise RequestError(f"RAID{self.level} needs a chunk size, for example 512KiB")
        if chunk < PAGE_SIZE or chunk % PAGE_SIZE:
            raise RequestError(f"chunk size {format_size(chunk)} is not a multiple of the page size, 4KiB")
        if not self.kind.any_chunk and not power_of_two(chunk):
            raise RequestError(f"chunk size {format_size(chunk)} is not a power of two, which RAID{self.level} needs")

    def _refuse_layout(self, layout: str) -> None:
        if not (known := self.kind.layouts(len(self.members))):
            others = listed(lambda kind: kind.default_layout is not None)
            raise RequestError(f"layout {layout}: RAID{self.level} has no layout to choose, only RAID{others} have")
        one_of(f"layout of RAID{self.level} with {len(self.members)} members", layout, known)

    def _refuse_policy(self) -> None:
        policy, logs = self.consistency_policy, self.kind.logs
        if not self.kind.redundant and (policy or self.bitmap == "internal"):
            requested = f"consistency policy {policy}" if policy else "bitmap internal"
            raise RequestError(f"{requested}: RAID{self.level} has no redundancy that md could keep consistent")
        if policy == "ppl" and "ppl" not in logs:
            others = listed(lambda kind: "ppl" in kind.logs)
            raise RequestError(
                f"consistency policy ppl: a partial parity log exists for RAID{others} only, not for RAID{self.level}"
            )
        if (policy == "journal" or self.journal) and "journal" not in logs:
            others = listed(lambda kind: "journal" in kind.logs)
            raise RequestError(f"RAID{self.level} has no journal: a journal device is for RAID{others} only")
        if policy == "journal" and not self.journal:
            raise RequestError("consistency policy journal needs a journal device: request journal = a disk's serial")
        if self.journal and policy not in {None, "journal"}:
            raise RequestError(f"consistency policy {policy} makes no use of a journal device, {self.journal}")
        contradiction = "none" if policy == "bitmap" else "internal" if policy or self.journal else None
        if self.bitmap is not None and self.bitmap == contradiction:
            raise RequestError(f"consistency policy {policy or 'journal'} contradicts bitmap {self.bitmap}")

    def _refuse_bitmap_chunk(self, chunk: int) -> None:
        if self.policy != "bitmap":
            raise RequestError(
                f"bitmap chunk {format_size(chunk)}: the array has no bitmap (consistency policy {self.policy})"
            )
        if not power_of_two(chunk) or not LEAST_CHUNK <= chunk <= LARGEST_CHUNK:
            bounds = f"{format_size(LEAST_CHUNK)} to {format_size(LARGEST_CHUNK)}"
            raise RequestError(f"bitmap chunk {format_size(chunk)} is not a power of two from {bounds}")

    def refuse_size(self, member_size: int) -> None:
        """Check that the bitmap fits into the space that mdadm reserves on members of ``member_size`` bytes.

        Raises:
            RequestError: the bitmap chunk is so small that the bitmap would not fit.
        """
        if self.bitmap_chunk is None:
            return
        synced, member = self.raid.synced(member_size)
        if self.bitmap_chunk < (least := least_chunk(synced, member)):
            raise RequestError(
                f"bitmap chunk {format_size(self.bitmap_chunk)} is too small: on members of {format_size(member)} "
                f"mdadm has room for chunks of {format_size(least)} or more"
            )

    @property
    def kind(self) -> type[Level]:
        """The class of the level."""
        return LEVELS[self.level]

    @property
    def raid(self) -> Level:
        """The array's level with its number of members, its layout and its legs."""
        return self.kind.of(len(self.members), self.layout, self.leg_count)

    @property
    def leg_count(self) -> int:
        """The number of inner arrays of a nested array; 1 if the array is not nested."""
        return self.kind.usual_legs(len(self.members)) if self.legs is None else self.legs

    @property
    def policy(self) -> str:
        """The consistency policy to request, with the default filled in, as the kernel names it.

        The default is ``bitmap``, also for small arrays: mdadm gives a bitmap to every redundant array of more than
        100 GB, and deployed arrays are larger.
        """
        if not self.kind.redundant:
            return "none"
        if self.journal:
            return "journal"
        return self.consistency_policy or ("resync" if self.bitmap == "none" else "bitmap")

    @property
    def disks(self) -> tuple[str, ...]:
        """The serials of members, spares and journal."""
        return (*self.members, *self.spares, *((self.journal,) if self.journal else ()))

    @property
    def geometry(self) -> Geometry | None:
        """Stripe unit and data disks, or None for a mirror, which has no stripes."""
        return None if self.chunk_size is None else Geometry(self.chunk_size, self.raid.data_disks)

    @property
    def stripe_size(self) -> int | None:
        """The bytes of different data that the members can transfer at the same time; None for a mirror."""
        return None if self.chunk_size is None else self.chunk_size * self.raid.width

    @property
    def devices(self) -> tuple[Md, ...]:
        """The md devices of the array in the order of their creation: the legs first, md0 over the legs last."""
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
        """Return the requested md device for one leg of a nested array, or for the md device over the legs."""
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
    """Return the bytes of an array whose smallest member has ``member_size`` bytes. Metadata is not subtracted."""
    return spec.raid.capacity(member_size)


def holders_of_old_data(spec: ArraySpec) -> tuple[str, ...]:
    """Return the serials of the members that may hold `sparse_image.OLD_DATA` in blocks that were never written.

    The old data is the same in each block of each disk, so that copies and parity agree on the first
    `Level.members_alike` members. If the array is resynced first, no member may hold old data: the resync would copy
    the old data, and these writes would be in the write log.
    """
    if spec.kind.redundant and not spec.assume_clean:
        return ()
    return spec.members[: spec.raid.members_alike]
