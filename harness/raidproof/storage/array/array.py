"""A kind of array: its request, and the interface that controls an array of this kind on a machine."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import PAGE_SIZE, Machine, Spec, State, Value, one_of, power_of_two
from raidproof.core.registry import OneOf, Registry, register_default
from raidproof.core.topology import SoftwareSpec
from raidproof.core.units import KIB, Size, format_size
from raidproof.storage.array.level import DEFAULT, LEVELS, Level, LevelName, level_names, read_level
from raidproof.storage.array.mdadm import Md
from raidproof.storage.array.state import ArrayState, ExpectedDeviation, Identity
from raidproof.storage.array.superblock import Bitmap, Read, Superblock
from raidproof.storage.array.upkeep import Upkeep
from raidproof.storage.member import Assembly

Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")]
"""The type of a field with the serial of a disk."""
LevelKind = type[Level]
"""The class of a level. Within `ArraySpec` the name ``type`` is a field."""
DEFAULT_KIND = "md"
"""The kind of array of a request that names no kind."""

ARRAYS: Registry[type["ArraySpec"]] = Registry("raid", "raidproof.storage.array", "raidproof.arrays")
"""The requests of all kinds of array, by the name of the kind."""
# A regular expression that matches no text.
_NEVER = r"(?!)"
SYNC_DEADLINE_S = 600.0
"""Default time limit in seconds for a resync, rebuild or check."""

_FLUSH_AND_DATA = (6, 12)
"""First kernel release in which md submits flush and data of a request at the same time."""


class Separate(NamedTuple):
    """The devices of a file system that itself makes an array of them."""

    level: str
    """The requested RAID level of the data."""
    devices: tuple[str, ...]
    """The device paths, in the order of the slots."""


class Geometry(NamedTuple):
    """The stripe geometry of an array, to which a file system may be aligned."""

    stripe_unit: int
    """Consecutive bytes of the array that lie on one member: the chunk size."""
    data_disks: int
    """Stripe units of data in a stripe. The kernel reports stripe_unit * data_disks as queue/optimal_io_size."""
    separate: Separate | None = None
    """The devices of the array, if the file system itself makes the array; None if the array is one device."""


class Checking(NamedTuple):
    """How a checker of crash states assembles and stops an array. No step may depend on an earlier check."""

    assemble: tuple[Assembly, ...]
    """The members' devices and the array's in the order of their assembly; the last one carries the file system."""
    stop: tuple[tuple[str, ...], ...]
    """The commands that stop the array, in order. They also stop an array of which only a part was assembled."""
    mount_options: tuple[str, ...] = ()
    """Options without which the file system is not mounted if members are lost."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Files of the kernel, each with the text to write to it before the first check."""
    permitting: tuple[tuple[str, str], ...] = ()
    """Files of the kernel, each with the text that permits a start which the kernel has refused."""


class ArraySpec(Spec):
    """The requested array: the settings of every kind, and the interface of a kind. Disks are named by serial.

    A subclass with a default for ``type`` is a kind of array, and is registered in `ARRAYS` under that name. It adds
    its own settings as fields.
    """

    axes: ClassVar[Mapping[str, str]] = {}
    """The fields of this kind that a plan may vary, each with a description."""
    levels: ClassVar[frozenset[str] | None] = None
    """The names of the RAID levels of this kind; None for all levels of md."""
    damage: ClassVar[str] = _NEVER
    """A regular expression for the kernel's messages that an array of this kind is damaged."""
    lost: ClassVar[str] = _NEVER
    """A regular expression for the kernel's messages of damage or of level err that only report a lost member."""
    forcing: ClassVar[frozenset[str]] = frozenset()
    """Words of the commands that only the harness needs; lines for users lack them."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the names of the packages with the tools of the array. The record has their versions."""
    in_page: ClassVar[bool] = False
    """Whether `superblock` reads only the page of md's superblock 1.2, which a crash page can change."""
    only_filesystem: ClassVar[str | None] = None
    """The name of the file system that makes the array itself; None if the array carries any file system."""
    keeps_out: ClassVar[bool] = False
    """Whether an assembly of all disks leaves out a member that was removed earlier. The next start of other kinds
    may use the old content of its disk, so that a checker must start them without this disk."""
    software: ClassVar[SoftwareSpec] = SoftwareSpec()
    """The kernel and the image that a server with this kind of array needs, where the default ones do not suffice."""
    moves: ClassVar[bool] = False
    """Whether another server on the same disks brings the array online by the steps of a recovery after a cut."""
    md_files: ClassVar[bool] = False
    """Whether the devices of the array have md's files in sysfs (md/stripe_cache_size and others)."""

    level: LevelName = DEFAULT
    """RAID level as text: ``5``, ``10``, or ``1+0`` and ``0+1`` for nested arrays."""
    members: tuple[Serial, ...]
    """The member disks, in the order of their slots."""
    chunk_size: Size | None = None
    """Bytes; None for a mirror. In a nested array, the chunk size of its stripes."""
    assume_clean: bool = False
    """Whether to skip the first resync. This is right only if all members are zero."""
    type: str
    """The name of the kind. A kind overrides this field with a ``Literal`` that has a default."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register a subclass that has a default for ``type``.

        Raises:
            TypeError: an axis of the subclass is not the name of a field.
        """
        register_default(ARRAYS, cls, axes=cls.axes)

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "chunk_size" in data:
            return data
        # mdadm's default, 512 KiB; a mirror has no chunks.
        chunked = LEVELS[read_level(data.get("level", DEFAULT))].chunked
        return {**data, "chunk_size": 512 * KIB} if chunked else data

    @model_validator(mode="after")
    def _fits_level(self) -> Self:
        one_of(f"level of array kind {self.type}", self.level, self.named_levels())
        least = self.least_members
        if len(self.members) < least:
            raise RequestError(f"RAID{self.level} needs at least {least} members, not {len(self.members)}")
        if twice := sorted({serial for serial in self.disks if self.disks.count(serial) > 1}):
            raise RequestError(f"a disk can be in an array only once: {', '.join(twice)}")
        self._refuse_chunk()
        return self

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

    @classmethod
    def named_levels(cls) -> list[str]:
        """Return the names of the levels that this kind has, nested levels last."""
        return level_names(lambda kind: kind.of_md() if cls.levels is None else kind.name in cls.levels)

    def refuse_size(self, member_size: int) -> None:  # noqa: ARG002
        """Check that an array of members of ``member_size`` bytes is possible.

        Raises:
            RequestError: it is not.
        """
        return

    @property
    def kind(self) -> LevelKind:
        """The class of the level."""
        return LEVELS[self.level]

    @property
    def needs_raid6(self) -> bool:
        """Whether the kernel computes a second parity, for which it must have chosen an algorithm when it booted."""
        return self.kind.parity > 1

    @property
    def least_members(self) -> int:
        """The smallest number of members of the level."""
        return self.kind.least_members

    @property
    def layout_name(self) -> str | None:
        """The name of the layout in mdadm; None for the level's default layout."""
        return None

    @property
    def leg_count(self) -> int:
        """The number of inner arrays of a nested array; 1 if the array is not nested."""
        return 1

    @property
    def raid(self) -> Level:
        """The array's level with its number of members, its layout and its legs."""
        return self.kind.of(len(self.members), self.layout_name, self.leg_count)

    @property
    @abstractmethod
    def policy(self) -> str:
        """How the array makes copies and parity consistent after a crash, as md names it (md/consistency_policy)."""

    def caveats(self) -> tuple[str, ...]:
        """Return sentences: the differences from a deployed array that affect the meaning of results."""
        return ("the first resync of the array was skipped (assume_clean)",) if self.skips_resync else ()

    @property
    def old_data(self) -> bool:
        """Whether the disks may hold old data in blocks that were never written."""
        return True

    @property
    def uses_members_alike(self) -> bool:
        """Whether reads go to all copies in turn, and writes wait for all, as the model of the throughput assumes."""
        return True

    @property
    def skips_resync(self) -> bool:
        """Whether the array is created without a first resync."""
        return self.assume_clean

    @property
    def disks(self) -> tuple[str, ...]:
        """The serials of all disks of the array."""
        return self.members

    def duties(self) -> dict[str, str]:
        """Return the duty of each disk of the array, by serial: ``MEMBER-1``."""
        return {serial: f"MEMBER-{number}" for number, serial in enumerate(self.members, 1)}

    @property
    def geometry(self) -> Geometry | None:
        """Stripe unit and data disks, or None for a mirror, which has no stripes."""
        return None if self.chunk_size is None else Geometry(self.chunk_size, self.raid.data_disks)

    @property
    def stripe_size(self) -> int | None:
        """The bytes of different data that the members can transfer at the same time; None for a mirror."""
        return None if self.chunk_size is None else self.chunk_size * self.raid.width

    @property
    @abstractmethod
    def device_paths(self) -> tuple[str, ...]:
        """The paths of the array's devices: ``/dev/NAME`` with the kernel's name. The last carries the file system."""

    @property
    def device(self) -> str:
        """The path of the device that carries the file system."""
        return self.device_paths[-1]

    @abstractmethod
    def create_commands(self) -> list[list[str]]:
        """Return the commands that create and start the array, in order."""

    def changed_in_place(self, before: Self) -> list[list[str]] | None:
        """Return the commands that change the existing array ``before`` to this one; None if only a new array can."""
        return [] if self == before else None

    @abstractmethod
    def checking(self, *, starts_dirty: bool = False, without: Sequence[str] = (), log: str | None = None) -> Checking:
        """Return how a checker of crash states assembles and stops the array.

        ``starts_dirty``: start an array that is both dirty and degraded, even if the kernel has refused that.
        ``without``: serials of members that are lost, and blank; the array starts without them.
        ``log``: the serial of the disk with the log of the file system, which an array that only the file system makes
        brings online, too.
        """

    def refuse_loss(self, serial: str) -> None:
        """Check that the array has this member, and redundancy to do without it.

        Raises:
            RequestError: it has not.
        """
        one_of("lost member", serial, self.members)
        if not self.kind.redundant:
            raise RequestError(f"RAID{self.level} has no redundancy: no array remains without {serial}")

    @property
    def encrypts(self) -> bool:
        """Whether the requests to the members have other content than those to the array."""
        return False

    @property
    def unreadable(self) -> str | None:
        """The reason why `superblock` cannot describe the members' content; None if it can."""
        return None

    def superblock(self, read: Read) -> Superblock | None:  # noqa: ARG002
        """Return the metadata of one member disk, whose bytes ``read`` returns, in the form of md's superblock.

        None: the disk has none, or the metadata of this kind of array has another form. The offsets in the result
        count from the begin of the disk.
        """
        return None

    @abstractmethod
    def array(self, machine: Machine) -> "Array":
        """Return the object that controls the array on a machine; do not create or assemble anything."""


AnyArray = Annotated[ArraySpec, OneOf(ARRAYS, default=DEFAULT_KIND)]
"""The type of a field with a request for any kind of array; without ``type``, an array of md through mdadm."""


def capacity(spec: ArraySpec, member_size: int) -> int:
    """Return the bytes of an array whose smallest member has ``member_size`` bytes. Metadata is not subtracted."""
    return spec.raid.capacity(member_size)


def holders_of_old_data(spec: ArraySpec) -> tuple[str, ...]:
    """Return the serials of the members that may hold `sparse_image.OLD_DATA` in blocks that were never written.

    The old data is the same in each block of each disk, so that copies and parity agree on the first
    `Level.members_alike` members. If the array is resynced first, no member may hold old data: the resync would copy
    the old data, and these writes would be in the write log.
    """
    if not spec.old_data or (spec.kind.redundant and not spec.skips_resync):
        return ()
    return spec.members[: spec.raid.members_alike]


def asked_of(md: Md, spec: ArraySpec) -> dict[str, Value]:
    """Return the requested values of an md device by name, to compare with those of `found_of`."""
    geometry = spec.geometry if md.number == 0 else None
    return {
        "level": md.level,
        "raid_disks": len(md.members),
        "chunk_size": md.chunk_size,
        "layout": md.layout,
        "consistency_policy": md.consistency_policy,
        "bitmap": "internal" if md.consistency_policy == "bitmap" else "none",
        "bitmap_chunk": md.bitmap_chunk,
        "inputs": tuple(sorted(md.inputs)),
        "write_mostly": tuple(sorted(md.write_mostly)),
        "write_behind": md.write_behind or 0,
        "failfast": tuple(sorted(md.inputs)) if md.failfast else (),
        "stripe_width": geometry.stripe_unit * geometry.data_disks if geometry else None,
    }


def waits_for_flush(release: str) -> bool:
    """Return whether md of this kernel release writes the data of a request only after the request's flush has ended.

    Since Linux 6.12, md submits the flushes of the members and the data at the same time (commit b75197e86e6d,
    "md: Remove flush handling").

    Raises:
        RigError: the string is not a kernel release.
    """
    number = re.match(r"(\d+)\.(\d+)", release)
    if number is None:
        raise RigError(f"/proc/sys/kernel/osrelease contains no kernel release such as 6.12.1: {release!r}")
    return (int(number[1]), int(number[2])) < _FLUSH_AND_DATA


class Scrub(State):
    """The result of a check of an array's copies or parity. Md devices are named by path: ``/dev/md0``.

    On RAID4, 5 and 6, every mismatch is a stripe whose parity is wrong. The copies of a RAID1 or RAID10 may differ
    without a fault, in places that no file uses: the page changed while md wrote the copies.
    """

    mismatch_cnt: dict[str, int]
    """512-byte sectors that differ, by md device. md counts in whole pages or stripes."""
    unchecked: dict[str, str]
    """The reason by md device, for each md device that md could not check."""
    resynced: dict[str, int] = Field(default_factory=dict)
    """512-byte sectors that the resync before the check corrected, by md device; RAID4, 5 and 6 only.

    md counts them during the resync (handle_parity_checks5 in drivers/md/raid5.c). An md device is missing if its
    last work before the check was not a resync.
    """
    repaired: dict[str, int] = Field(default_factory=dict)
    """512-byte sectors that still differ after a repair, by md device. md devices without differences are missing."""

    @property
    def mismatches(self) -> int:
        """512-byte sectors that differ, summed over all md devices."""
        return sum(self.mismatch_cnt.values())


class Array(ABC):
    """The array of one machine: created, assembled, checked, stopped and erased."""

    removes_offline: ClassVar[bool] = False
    """Whether the array must be offline while `take_out` and `take_back` change its members."""

    def __init__(self, spec: ArraySpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine
        self.device = spec.device
        self.expected_deviation = ExpectedDeviation()
        """The deviations from the requested array that are allowed now. An injected fault sets them."""
        self.log: str | None = None
        """The serial of the disk with the log of the file system, which matters to an array that only the file system
        makes: its disks are brought online together. The stack sets it."""

    def _require_kernel(self) -> None:
        """Reboot the machine if the array needs RAID6 and its kernel runs without; no array may be active."""
        if self.spec.needs_raid6:
            self.machine.require_raid6()

    @abstractmethod
    def create(self) -> None:
        """Create and start the array, and verify that the effective state is as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """

    @abstractmethod
    def activate(self) -> ArrayState:
        """Assemble the existing array from its members, without force.

        Raises:
            CommandFailed: the array does not start.
            NotEffective: an effective value differs from the requested one, or a member is not in sync although no
                expected deviation allows it.
        """

    @abstractmethod
    def deactivate(self) -> None:
        """Stop the array."""

    @abstractmethod
    def destroy(self) -> None:
        """Stop the array, and erase its metadata from its members."""

    @abstractmethod
    def state(self) -> ArrayState:
        """Read the effective state of the array.

        Raises:
            RigError: the array is not online.
        """

    @abstractmethod
    def require_effective(self) -> ArrayState:
        """Verify that the effective state of the array is as requested, or deviates as expected, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one, and no expected deviation allows it.
        """

    @abstractmethod
    def identities(self, *, online: bool = False) -> dict[str, Identity]:
        """Read the metadata of each disk of the array, by serial. Disks without metadata are left out.

        With ``online``, the result also has the metadata on inner arrays, by path.
        """

    def bitmaps(self) -> dict[str, Bitmap]:
        """Read the write-intent bitmap on each disk of the array, by serial. The array may be offline."""
        return {}

    @abstractmethod
    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> ArrayState:
        """Wait until the array is idle, has all members, and is in sync; return its state.

        Raises:
            DeadlineExceeded: the rebuild or resync takes longer than ``deadline_s`` seconds.
        """

    @abstractmethod
    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Check the copies or parity of the whole array, and wait for the end. A pending resync runs first.

        If the check finds differences, a repair and a second check follow.

        Raises:
            DeadlineExceeded: resync, check and repair together take longer than ``deadline_s`` seconds.
            RigError: the check did not run.
        """

    @property
    def mount_options(self) -> tuple[str, ...]:
        """Options without which the file system is not mounted while members are missing."""
        return ()

    def take_out(self, serial: str) -> None:
        """Take the member with this serial away, so that the array works without it.

        The kernel may detect only at the next write that the member is gone.

        Raises:
            RequestError: the array has no such member, or cannot do without it.
            RequirementMissing: members of this kind of array cannot be taken away.
        """
        raise RequirementMissing(
            f"an array of kind {self.spec.type} has no commands here that remove a member ({serial})",
            remedy="request another kind of array for this fault",
        )

    def take_back(self, serial: str) -> None:
        """Make the disk that `take_out` has taken away a member again. Its rebuild may still run afterwards."""
        raise NotImplementedError(f"an array of kind {self.spec.type} has no commands that add a member ({serial})")

    def upkeep(self, serial: str | None = None) -> Upkeep:
        """Return the object that maintains the redundant device with this member; None: the one with the file system.

        Raises:
            RequestError: no device has this member, or the device has no redundancy.
            RequirementMissing: arrays of this kind cannot be maintained.
        """
        raise RequirementMissing(
            f"an array of kind {self.spec.type} has no commands here that replace a member ({serial or 'any'}) or "
            "throttle background work",
            remedy="request another kind of array for this fault",
        )
