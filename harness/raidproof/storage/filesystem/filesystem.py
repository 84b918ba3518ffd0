"""A filesystem: its request, the interface of a kind of file system, and the filesystem of a machine."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RequirementMissing
from raidproof.core.layer import PAGE_SIZE, Machine, Spec, Value, power_of_two, require_effective
from raidproof.core.registry import OneOf, Registry
from raidproof.core.units import Size, format_size
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem.state import (
    FilesystemCheck,
    FilesystemState,
    Found,
    Mounted,
    WriteBackState,
    centiseconds,
    findmnt_command,
    parse_findmnt,
)

DIRECTORY = "/srv/raidproof"
"""Mount point on the server of the filesystem that it exports."""
MKFS_DEADLINE_S = 300.0

FILESYSTEMS: Registry[type["FilesystemSpec"]] = Registry(
    "filesystem", "raidproof.storage.filesystem", "raidproof.filesystems"
)
"""The kinds of file systems by the ``type`` of their specs."""
_NEVER = r"(?!)"
CHECK_DEADLINE_S = 600.0
MOUNT_DEADLINE_S = 120.0
"""Seconds; long enough to replay a full log on slow disks."""
EXPIRE = "/proc/sys/vm/dirty_expire_centisecs"
WAKE = "/proc/sys/vm/dirty_writeback_centisecs"
FREE = "free space"
UNKNOWN = "owner unknown"
OWNER_DEADLINE_S = 120.0
"""Time limit in seconds of one command that looks for an owner."""


class Owner(NamedTuple):
    """The owner of a block."""

    what: str
    """``data``, or another part of a file; or a kind of metadata of the file system."""
    inode: int | None = None
    path: str | None = None
    """Relative to the file system's root."""
    file_offset: int | None = None
    """Offset in the file of the byte in question."""

    def __str__(self) -> str:
        if self.inode is None:
            return self.what
        name = f"{self.path}" if self.path else f"inode {self.inode}"
        if self.what != "data":
            return f"{self.what} of {name}"
        if self.file_offset is None:
            return name if name.startswith("directory") else f"file {name}"
        begin = self.file_offset // PAGE_SIZE * PAGE_SIZE
        return f"file {name}, bytes {begin}-{begin + PAGE_SIZE - 1}"


class Alignment(NamedTuple):
    """The alignment of a filesystem to stripes: bytes on one member (su), and data members (sw)."""

    su: int
    sw: int


def _split(value: Any) -> Any:
    return tuple(value.split(",")) if isinstance(value, str) else value


class FilesystemSpec(Spec):
    """The settings that every filesystem has, and the interface of a kind of file system.

    A subclass with a default for ``type`` is a kind, registered under that name in `FILESYSTEMS`. It adds its own
    fields. Commands run on the server; ``device`` is the block device of the filesystem.

    ``su`` (bytes) and ``sw`` (stripe units in a whole stripe) are taken from the array if ``aligned`` and not given.
    """

    page_size_reason: ClassVar[str] = "the kernel mounts no blocks beyond the page size, 4KiB"
    least_block_size: ClassVar[int] = 1024
    own_options: ClassVar[frozenset[str]] = frozenset()
    """Mount options that follow from fields, and are refused in ``mount_options``."""
    axes: ClassVar[Mapping[str, str]] = {}
    """Fields of this kind that a plan may vary, each with its description."""
    operations: ClassVar[frozenset[str]] = frozenset()
    """Optional operations of the ledger that the file system supports: ``clone``."""
    refused_features: ClassVar[str] = _NEVER
    """A regular expression for the kernel's message about an unknown feature of such a filesystem."""
    damage: ClassVar[str] = _NEVER
    """A regular expression for the kernel's messages about damage in such a filesystem, or its shutdown."""
    commit_files: ClassVar[tuple[str, ...]] = ()
    """Files of the server's kernel that `commit_s` needs, each a number in hundredths of a second."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the names of the packages with its tools; their versions are recorded."""

    block_size: Size = PAGE_SIZE
    su: Size | None = None
    sw: int | None = None
    aligned: bool = True
    log: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")] | None = None
    """The serial of the disk with an external log (XFS) or journal (ext4)."""
    log_size: Size | None = None
    """Bytes of the log or journal."""
    discard: bool = False
    """Discard the whole device before mkfs writes: slow, and unnecessary for fresh disks of the disk engine."""
    mount_options: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[a-z0-9_]+(=[^,\s]+)?$")], ...], BeforeValidator(_split)
    ] = ()
    """As a list, or as mount(8) writes them: ``"sync,noatime"``."""
    type: str
    """The name of the kind, as in mount(8): a kind declares a ``Literal`` with a default."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register a kind.

        Raises:
            TypeError: an axis has no field.
        """
        if strange := sorted(cls.axes.keys() - cls.model_fields.keys()):
            raise TypeError(f"{cls.__name__} has axes without fields: {', '.join(strange)}")
        name = cls.model_fields["type"].default
        if isinstance(name, str):
            FILESYSTEMS.add(name, cls)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        block = self.block_size
        if block > PAGE_SIZE:
            raise RequestError(f"block size {format_size(block)}: {self.page_size_reason}")
        if block < self.least_block_size or not power_of_two(block):
            raise RequestError(f"block size {format_size(block)} is not 1KiB, 2KiB or 4KiB")
        self._refuse_stripe()
        if self.log_size is not None and (self.log_size % block or self.log_size < block):
            raise RequestError(
                f"log_size {format_size(self.log_size)} is not a multiple of the block size, {format_size(block)}"
            )
        for option in self.mount_options:
            if option.partition("=")[0] in self.own_options:
                raise RequestError(f"mount option {option}: it follows from a field of the request, so ask there")
        return self

    def _refuse_stripe(self) -> None:
        if (self.su is None) != (self.sw is None):
            raise RequestError("su and sw go together: give both or neither")
        if self.su is None or self.sw is None:
            return
        if not self.aligned:
            raise RequestError("su and sw were given, yet no alignment was asked for")
        if self.sw < 1:
            raise RequestError(f"sw {self.sw}: a stripe has at least one unit")
        self._refuse_unit(self.su)

    def _refuse_unit(self, unit: int) -> None:
        if unit < 1 or unit % self.block_size:
            raise RequestError(
                f"su {format_size(unit)} is not a multiple of the block size, {format_size(self.block_size)}"
            )

    def alignment(self, geometry: Geometry | None) -> Alignment | None:
        """Return the alignment on an array of this geometry; None is no alignment.

        Raises:
            RequestError: the array's stripe unit is not a multiple of the block size.
        """
        if self.su is not None and self.sw is not None:
            return Alignment(self.su, self.sw)
        if geometry is None or not self.aligned:
            return None
        self._refuse_unit(geometry.stripe_unit)
        return Alignment(geometry.stripe_unit, geometry.data_disks)

    @abstractmethod
    def least_size(self, geometry: Geometry | None) -> int:
        """Return the bytes below which such a filesystem cannot be made on an array of this geometry."""

    @abstractmethod
    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:
        """Return the command that makes the filesystem, over any old content, aligned to the array if requested."""

    def create_commands(self, machine: Machine, device: str, geometry: Geometry | None) -> Iterable[list[str]]:  # noqa: ARG002
        """Return all commands that make the filesystem on this machine, in order; each must end with status 0.

        A command runs before the next one is generated.
        """
        return [self.mkfs_command(device, geometry)]

    def all_mount_options(self) -> tuple[str, ...]:
        """Return the mount options, including those that follow from fields."""
        return self.mount_options

    @abstractmethod
    def check_command(self, device: str) -> list[str]:
        """Return the command that looks for damage and changes nothing; the filesystem is not mounted."""

    @abstractmethod
    def parse_check(self, ended: Completed) -> FilesystemCheck:
        """Parse the verdict of the check.

        Raises:
            RigError: there is no verdict.
        """

    @abstractmethod
    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:
        """Read the state of the mounted filesystem; `raidproof.storage.filesystem.state.state_of` builds it.

        Raises:
            RigError: a tool's output was cut off.
        """

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        """Return the required effective values of such a filesystem, under the names of `found`.

        None is not requested.
        """
        alignment = self.alignment(geometry)
        return {
            "type": self.type,
            "block_size": self.block_size,
            "su": alignment.su if alignment else 0,
            "sw": alignment.sw if alignment else 0,
            "mount_options": tuple(sorted(self.mount_options)),
            "log": "external" if self.log else "internal",
            "log_size": self.log_size,
        }

    def found(self, state: FilesystemState) -> dict[str, Value]:
        """Return the effective values, under the names of the request."""
        return {
            **state.model_dump(),
            "log": state.log if state.log in {"internal", "none"} else "external",
            "mount_options": tuple(sorted(set(self.mount_options) & set(state.options))),
        }

    @staticmethod
    @abstractmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:
        """Return the seconds between commits of the log, each of which flushes the disks' caches.

        ``options`` are the mount options in effect, ``files`` the seconds in each of ``commit_files``.

        Raises:
            RigError: the interval cannot be determined.
        """

    def owner(self, machine: Machine, device: str, directory: str, offset: int) -> Owner:  # noqa: ARG002
        """Return the owner of a byte of the device, from the file system's own tools.

        The filesystem is mounted at ``directory``, or not at all if it cannot be.
        """
        return Owner(UNKNOWN)


AnyFilesystem = Annotated[FilesystemSpec, OneOf(FILESYSTEMS, default="xfs")]
"""A field that holds a request for a file system of any kind; without ``type`` it is XFS."""


def mount_command(spec: FilesystemSpec, device: str, directory: str = DIRECTORY) -> list[str]:
    """Return the command that mounts the filesystem, which creates the directory and replays a dirty log."""
    options = spec.all_mount_options()
    chosen = ["--options", ",".join(options)] if options else []
    return ["mount", "--mkdir", "--types", spec.type, *chosen, device, directory]


def mkfs_command(spec: FilesystemSpec, device: str, geometry: Geometry | None) -> list[str]:
    """Return the command that makes the filesystem, aligned to the array's geometry if requested."""
    return spec.mkfs_command(device, geometry)


def check_command(spec: FilesystemSpec, device: str) -> list[str]:
    """Return the command that looks for damage and changes nothing."""
    return spec.check_command(device)


def parse_check(spec: FilesystemSpec, ended: Completed) -> FilesystemCheck:
    """Parse the verdict of the filesystem's own checker.

    Raises:
        RigError: there is no verdict.
    """
    return spec.parse_check(ended)


def unknown_features(spec: FilesystemSpec, kernel_log: str) -> str | None:
    """Return the kernel's message about a filesystem with unknown features, or None if there is none."""
    refused = re.findall(rf"^.*(?:{spec.refused_features}).*$", kernel_log, re.MULTILINE)
    return refused[-1] if refused else None


def read_write_back(machine: Machine, found: Found) -> WriteBackState:
    """Read the write-back intervals of a machine and of the file system that is mounted there.

    Raises:
        RigError: a file or an option is missing.
    """
    kind = FILESYSTEMS[found.type]
    files = [EXPIRE, WAKE, *kind.commit_files]
    expire, wake, *own = centiseconds("\n".join(machine.read_files(files).values()), files)
    return WriteBackState(expire_s=expire, wake_s=wake, commit_s=kind.commit_s(found.options, own))


class Filesystem:
    """The filesystem on one device of one machine."""

    def __init__(
        self,
        spec: FilesystemSpec,
        machine: Machine,
        device: str,
        geometry: Geometry | None = None,
        directory: str = DIRECTORY,
    ) -> None:
        self.spec = spec
        self.machine = machine
        self.device = device
        self.geometry = geometry
        self.directory = directory

    def create(self) -> None:
        """Make the filesystem; do not mount it."""
        for command in self.spec.create_commands(self.machine, self.device, self.geometry):
            self.machine.succeed(command, deadline_s=MKFS_DEADLINE_S)

    def activate(self) -> FilesystemState:
        """Mount the filesystem, replaying its log, and verify that it is as requested.

        Raises:
            NotEffective: it is not as requested.
            RequirementMissing: it has features that this kernel does not support.
        """
        command = mount_command(self.spec, self.device, self.directory)
        mounted = self.machine.run(command, deadline_s=MOUNT_DEADLINE_S)
        if not mounted.ok:
            if said := unknown_features(self.spec, self.machine.succeed(["dmesg", "--notime"])):
                raise RequirementMissing(
                    f"{self.machine.name}: its kernel does not know all that its own mkfs made: {said}",
                    remedy="choose a newer kernel or an older image",
                )
            raise CommandFailed(mounted)
        return self.require_effective()

    def deactivate(self) -> None:
        """Unmount the filesystem."""
        self.machine.succeed(["umount", self.directory], deadline_s=MOUNT_DEADLINE_S)

    def destroy(self) -> None:
        """Erase the filesystem's signatures from its device; it must not be mounted."""
        self.machine.succeed(["wipefs", "--all", self.device])

    def state(self) -> FilesystemState:
        """Read the state of the mounted filesystem.

        Raises:
            NotEffective: it is a file system of another kind.
            RigError: nothing is mounted.
        """
        mounted = parse_findmnt(self.machine.run(findmnt_command(self.directory)).stdout)
        if mounted.type != self.spec.type:
            raise NotEffective(f"{self.directory}: file system: asked {self.spec.type}, found {mounted.type}")
        return self.spec.state(self.machine, self.device, mounted)

    def require_effective(self) -> FilesystemState:
        """Return the state, if it is as requested.

        Raises:
            NotEffective: it is not.
        """
        state, spec = self.state(), self.spec
        require_effective(f"{spec.type} on {self.device}", spec.asked(self.geometry), spec.found(state))
        return state

    def check(self) -> FilesystemCheck:
        """Run the filesystem's own checker; the filesystem must not be mounted.

        Raises:
            RigError: the checker gave no verdict.
        """
        command = check_command(self.spec, self.device)
        return parse_check(self.spec, self.machine.run(command, deadline_s=CHECK_DEADLINE_S))
