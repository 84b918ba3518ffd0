"""The interface of a kind of file system: its request, its commands, and the file system on a machine."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RequirementMissing
from raidproof.core.layer import PAGE_SIZE, Machine, Spec, Value, power_of_two, require_effective
from raidproof.core.registry import OneOf, Registry, register_default
from raidproof.core.units import KIB, Size, format_size
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem.placement import FILES_DEADLINE_S, Extent, Placement, files_command, parse_files
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
"""The mount point on the server of the exported file system."""
MKFS_DEADLINE_S = 300.0
NO_PROGRAM = 127
"""Exit status of a shell that does not find the program (sh(1))."""

FILESYSTEMS: Registry[type["FilesystemSpec"]] = Registry(
    "filesystem", "raidproof.storage.filesystem", "raidproof.filesystems"
)
"""The requests of all kinds of file system, by the name of the kind: ``xfs``."""
# A regular expression that matches no text.
_NEVER = r"(?!)"
CHECK_DEADLINE_S = 600.0
MOUNT_DEADLINE_S = 120.0
"""Time limit in seconds of a mount: long enough to replay a full log on slow disks."""
EXPIRE = "/proc/sys/vm/dirty_expire_centisecs"
WAKE = "/proc/sys/vm/dirty_writeback_centisecs"
BARRIERLESS = frozenset({"nobarrier", "barrier=0"})
"""Mount options with which a file system does not flush the disks' caches (ext4(5), btrfs(5))."""
FREE = "free space"
UNKNOWN = "owner unknown"
OWNER_DEADLINE_S = 120.0
"""Time limit in seconds of one command that searches for the owner of a byte."""


class Owner(NamedTuple):
    """The owner of a byte of the device: a file, or metadata of the file system."""

    what: str
    """``data`` or another part of a file, or a kind of metadata."""
    inode: int | None = None
    """Inode number of the file; None for metadata without an inode."""
    path: str | None = None
    """Path from the file system's root, as ``/a/b``, or ``directory /a`` for a directory; None if unknown."""
    file_offset: int | None = None
    """Offset of the byte in the file; None if unknown."""

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
    """The alignment of a file system to the stripes of an array, named as in mkfs.xfs(8)."""

    su: int
    """Stripe unit in bytes."""
    sw: int
    """Stripe width in stripe units."""


def _split(value: Any) -> Any:
    return tuple(value.split(",")) if isinstance(value, str) else value


class FilesystemSpec(Spec):
    """The requested file system: the settings of every kind, and the interface of a kind.

    A subclass with a default for ``type`` is a kind of file system, and is registered in `FILESYSTEMS` under that
    name. It adds its own settings as fields. The parameter ``device`` of the methods is the path of the file system's
    block device. All commands run on the server.
    """

    page_size_reason: ClassVar[str] = "the kernel mounts no file system with blocks larger than the page size, 4KiB"
    """The last part of the message that refuses a block size above the page size."""
    least_block_size: ClassVar[int] = 1024
    own_options: ClassVar[frozenset[str]] = frozenset()
    """Mount options that follow from fields. They are refused in ``mount_options``."""
    axes: ClassVar[Mapping[str, str]] = {}
    """The fields of this kind that a plan may vary, each with a description."""
    features: ClassVar[Mapping[str, str]] = {}
    """The fields, None or a truth value, that request a feature of the superblock; with the word by which the tool of
    the file system lists the feature. The effective features are compared with the requested ones."""
    operations: ClassVar[frozenset[str]] = frozenset()
    """The optional operations of the ledger that the file system supports: ``clone``."""
    refused_features: ClassVar[str] = _NEVER
    """A regular expression for the kernel's message that a file system of this kind has an unknown feature."""
    damage: ClassVar[str] = _NEVER
    """A regular expression for the kernel's messages that a file system of this kind is damaged or shut down."""
    forcing: ClassVar[frozenset[str]] = frozenset()
    """Words of the mkfs command by which it overwrites old content without a question; lines for users lack them."""
    commit_files: ClassVar[tuple[str, ...]] = ()
    """Paths of the kernel's files that `commit_s` needs, each of which contains a number in 1/100 s."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the names of the packages with the file system's tools. The record has their versions."""
    tears_writes: ClassVar[bool] = False
    """Whether a power cut may leave a part of a write that was in progress, although no disk tears a request."""
    in_place: ClassVar[bool] = True
    """Whether an overwrite goes to the same place on the device, as the model of random and of synchronous writes
    assumes."""
    needs_log: ClassVar[bool] = True
    """Whether the file system is unusable without its external log."""
    unsupported: ClassVar[frozenset[str]] = frozenset()
    """Common fields without a meaning for this kind. A value other than the kind's default is refused."""

    structures: ClassVar[Mapping[bytes, str]] = {}
    """The structures of the file system by the pattern with which their bytes begin (magic numbers)."""
    barriers: ClassVar[frozenset[str]] = frozenset()
    """The structures that the file system writes with PREFLUSH: all earlier writes must become durable first."""

    block_size: Size = PAGE_SIZE
    """Block size in bytes."""
    su: Size | None = None
    """Stripe unit in bytes; None takes the array's stripe unit if ``aligned``."""
    sw: int | None = None
    """Stripe width in stripe units; None takes the array's if ``aligned``."""
    aligned: bool = True
    """Whether the file system is aligned to the stripes of the array."""
    log: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")] | None = None
    """The serial of the disk with the external log (XFS) or journal (ext4); None for an internal one."""
    log_size: Size | None = None
    """Size of the log or journal in bytes; None leaves the choice to mkfs."""
    discard: bool = False
    """Whether mkfs discards the whole device first. This is slow, and unnecessary on new disks of the disk engine."""
    mount_options: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[a-z0-9_]+(=[^,\s]+)?$")], ...], BeforeValidator(_split)
    ] = ()
    """Additional mount options, as a list or as in mount(8): ``"sync,noatime"``."""
    type: str
    """The name of the kind, as in mount(8). A kind overrides this field with a ``Literal`` that has a default."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register a subclass that has a default for ``type``.

        Raises:
            TypeError: an axis of the subclass is not the name of a field.
        """
        register_default(FILESYSTEMS, cls, axes=cls.axes)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        block = self.block_size
        if block > PAGE_SIZE:
            raise RequestError(f"block size {format_size(block)}: {self.page_size_reason}")
        if block < self.least_block_size or not power_of_two(block):
            valid = [size for size in (KIB, 2 * KIB, 4 * KIB) if size >= self.least_block_size]
            words = ", ".join(map(format_size, valid[:-1]))
            last = format_size(valid[-1])
            raise RequestError(f"block size {format_size(block)} is not {f'{words} or {last}' if words else last}")
        self._refuse_lacking()
        self._refuse_stripe()
        if self.log_size is not None and (self.log_size % block or self.log_size < block):
            raise RequestError(
                f"log_size {format_size(self.log_size)} is not a multiple of the block size, {format_size(block)}"
            )
        for option in self.mount_options:
            if option.partition("=")[0] in self.own_options:
                raise RequestError(
                    f"mount option {option} is refused: a field of the file system's request sets this option, so "
                    "request it there"
                )
        return self

    def _refuse_lacking(self) -> None:
        for name in sorted(self.unsupported):
            value, usual = getattr(self, name), type(self).model_fields[name].default
            if value != usual:
                raise RequestError(f"{name} = {value}: {self.type} has no such setting")

    def _refuse_stripe(self) -> None:
        if (self.su is None) != (self.sw is None):
            raise RequestError("su and sw go together: request both or neither")
        if self.su is None or self.sw is None:
            return
        if not self.aligned:
            raise RequestError("su and sw request an alignment, but aligned = false requests no alignment")
        if self.sw < 1:
            raise RequestError(f"sw {self.sw} is less than 1: a stripe has at least one unit")
        self._refuse_unit(self.su)

    def _refuse_unit(self, unit: int) -> None:
        if unit < 1 or unit % self.block_size:
            raise RequestError(
                f"su {format_size(unit)} is not a multiple of the block size, {format_size(self.block_size)}"
            )

    def structure_of(self, data: bytes) -> str | None:
        """Return the name of the structure that the data of a write request begins with; None without one."""
        found = (name for pattern, name in self.structures.items() if re.match(pattern, data, re.DOTALL))
        return next(found, None)

    def alignment(self, geometry: Geometry | None) -> Alignment | None:
        """Return the alignment of the file system on an array of this geometry; None without an alignment.

        Raises:
            RequestError: the array's stripe unit is not a multiple of the file system's block size.
        """
        if self.su is not None and self.sw is not None:
            return Alignment(self.su, self.sw)
        if geometry is None or not self.aligned:
            return None
        self._refuse_unit(geometry.stripe_unit)
        return Alignment(geometry.stripe_unit, geometry.data_disks)

    def refuse_devices(self, geometry: Geometry | None) -> None:  # noqa: ARG002
        """Check that the file system can have the device or the devices of an array of this geometry.

        Raises:
            RequestError: it cannot.
        """
        return

    @abstractmethod
    def least_size(self, geometry: Geometry | None) -> int:
        """Return the smallest size in bytes that mkfs accepts on an array of this geometry."""

    @abstractmethod
    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:
        """Return the command that creates the file system, with the requested alignment, over any old content."""

    def journal_command(self) -> list[str] | None:
        """Return the command that creates an external journal, to run before mkfs; None if there is none."""
        return None

    def create_commands(self, machine: Machine, device: str, geometry: Geometry | None) -> Iterable[list[str]]:  # noqa: ARG002
        """Generate the commands that create the file system on this machine, in order. Each must end with status 0.

        Each command runs before the next command is generated.
        """
        return [self.mkfs_command(device, geometry)]

    def all_mount_options(self) -> tuple[str, ...]:
        """Return all mount options: the requested ones, and those that follow from other fields."""
        return self.mount_options

    def erase_command(self, device: str) -> list[str]:
        """Return the command that erases the unmounted file system: by default, its signatures."""
        return ["wipefs", "--all", device]

    @abstractmethod
    def check_command(self, device: str) -> list[str]:
        """Return the command that checks the unmounted file system without changing it."""

    @abstractmethod
    def parse_check(self, ended: Completed) -> FilesystemCheck:
        """Parse the output and exit status of the check command.

        Raises:
            RigError: the command did not complete its check.
        """

    def check(self, machine: Machine, device: str) -> FilesystemCheck:
        """Check the unmounted file system without changing it.

        Raises:
            RigError: the command did not complete its check.
        """
        return self.parse_check(machine.run(self.check_command(device), deadline_s=CHECK_DEADLINE_S))

    @abstractmethod
    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:
        """Read the effective state of the mounted file system. Implementations build the result by `state_of`.

        ``mounted`` is the file system's entry in the mount table.

        Raises:
            RigError: the output of a tool is truncated or malformed.
        """

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        """Return the requested values of the file system by name, to compare with those of `found`.

        A value that is None is not requested, and not compared.
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
            **self.asked_features(),
        }

    def asked_features(self) -> dict[str, bool]:
        """Return the requested features: whether each is to be enabled, by field."""
        asked = {name: getattr(self, name) for name in self.features}
        return {name: wanted for name, wanted in asked.items() if wanted is not None}

    def found(self, state: FilesystemState) -> dict[str, Value]:
        """Return the effective values of the file system by name, to compare with those of `asked`."""
        return {
            **state.model_dump(),
            "log": state.log if state.log in {"internal", "none"} else "external",
            "mount_options": tuple(sorted(set(self.mount_options) & set(state.options))),
            **{name: word in state.features for name, word in self.features.items()},
        }

    @staticmethod
    @abstractmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:
        """Return the seconds between two commits of the log or journal. Each commit flushes the disks' caches.

        ``options`` are the effective mount options; ``files`` are the values of ``commit_files`` in seconds.

        Raises:
            RigError: the interval cannot be determined.
        """

    def log_place(self, machine: Machine, device: str) -> Extent | None:  # noqa: ARG002
        """Return the place of the log on the device, as the file system's tools report it; None if it is unknown."""
        return None

    def log_writes(self, state: FilesystemState | None, geometry: Geometry | None) -> tuple[int, ...]:  # noqa: ARG002
        """Return the bytes of each write to the log, in order, that makes one small write durable.

        ``state`` is the effective state; without it the result follows from the request.
        """
        return (self.block_size,)

    def file_extents(self, machine: Machine, device: str, listed: Sequence[Extent]) -> tuple[Extent, ...]:  # noqa: ARG002
        """Return the extents of files on the device; ``listed`` are the extents that filefrag printed."""
        return tuple(listed)

    @property
    def fsync_caveat(self) -> str:
        """The setting with which the file system keeps no acknowledged fsync, and why; empty without one."""
        if not (without := BARRIERLESS.intersection(self.mount_options)):
            return ""
        return f"the mount option {', '.join(sorted(without))} omits the flushes of the disks' caches"

    @property
    def names_caveat(self) -> str:
        """The setting with which changes of names and attributes may be lost, and why; empty without one."""
        return ""

    @property
    def shares_blocks(self) -> bool:
        """Whether files may share blocks: the operation ``clone`` of the ledger."""
        return "clone" in self.operations

    @property
    def shows_old_data(self) -> bool:
        """Whether blocks without fsync may have old content of the disk after a power cut."""
        return bool(self.fsync_caveat)

    def caveats(self) -> tuple[str, ...]:
        """Return clauses: promises that a file system with these settings does not keep, and why."""
        return tuple(filter(None, (self.fsync_caveat, self.names_caveat)))

    def owner(self, machine: Machine, device: str, directory: str, offset: int) -> Owner:  # noqa: ARG002
        """Return the owner of the byte at an offset of the device, as the file system's tools report it.

        ``directory`` is the mount point. If the file system is too damaged to be mounted, nothing is mounted.
        """
        return Owner(UNKNOWN)


def named(machine: Machine, directory: str, found: Owner) -> Owner:
    """Return the owner with the path of its inode below the mount point ``directory``, as find(1) reports it."""
    if found.inode is None:
        return found
    options = ["-xdev", "-inum", str(found.inode), "-printf", r"%y %P\n", "-quit"]
    ended = machine.run(["find", directory, *options], deadline_s=OWNER_DEADLINE_S)
    kind, _, path = ended.stdout.partition("\n")[0].partition(" ")
    if not kind:
        return found
    if kind == "d":
        return Owner(found.what, found.inode, f"directory /{path}")
    return found._replace(path=f"/{path}")


def drop_pages(machine: Machine, device: str) -> None:
    """Remove the pages of a device from the page cache, which a mounted file system does not update."""
    machine.run(["blockdev", "--flushbufs", device], deadline_s=OWNER_DEADLINE_S)


USUAL = "xfs"
"""The kind of a stack that names none."""
AnyFilesystem = Annotated[FilesystemSpec, OneOf(FILESYSTEMS, default=USUAL)]
"""The type of a field with a request for any kind of file system; without ``type``, that of `USUAL`."""


def usual() -> FilesystemSpec:
    """Return the request of a stack that names no file system."""
    return FILESYSTEMS[USUAL].model_validate({})


def mount_command(
    spec: FilesystemSpec, device: str, directory: str = DIRECTORY, *, more: Sequence[str] = ()
) -> list[str]:
    """Return the command that creates the mount point if needed, and mounts the file system, replaying a dirty log.

    ``more``: options beside those of the request.
    """
    options = [*spec.all_mount_options(), *more]
    chosen = ["--options", ",".join(options)] if options else []
    return ["mount", "--mkdir", "--types", spec.type, *chosen, device, directory]


def fstab_line(spec: FilesystemSpec, device: str, directory: str) -> str:
    """Return the line of /etc/fstab that mounts the file system with the options of `mount_command`."""
    return f"{device} {directory} {spec.type} {','.join(spec.all_mount_options()) or 'defaults'} 0 2"


def mkfs_command(spec: FilesystemSpec, device: str, geometry: Geometry | None) -> list[str]:
    """Return the command that creates the file system, aligned to the array's geometry if requested."""
    return spec.mkfs_command(device, geometry)


def check_command(spec: FilesystemSpec, device: str) -> list[str]:
    """Return the command that checks the unmounted file system without changing it."""
    return spec.check_command(device)


def parse_check(spec: FilesystemSpec, ended: Completed) -> FilesystemCheck:
    """Parse the output and exit status of `check_command`.

    Raises:
        RigError: the command did not complete its check.
    """
    return spec.parse_check(ended)


def unknown_features(spec: FilesystemSpec, kernel_log: str) -> str | None:
    """Return the kernel's last message about a file system with unknown features; None without such a message."""
    refused = re.findall(rf"^.*(?:{spec.refused_features}).*$", kernel_log, re.MULTILINE)
    return refused[-1] if refused else None


def read_write_back(machine: Machine, found: Found) -> WriteBackState:
    """Read the effective write-back intervals of a machine, and the commit interval of its mounted file system.

    Raises:
        RigError: a file of the kernel is missing or malformed, or the mount options lack the commit interval.
    """
    kind = FILESYSTEMS[found.type]
    files = [EXPIRE, WAKE, *kind.commit_files]
    expire, wake, *own = centiseconds("\n".join(machine.read_files(files).values()), files)
    return WriteBackState(expire_s=expire, wake_s=wake, commit_s=kind.commit_s(found.options, own))


class Filesystem:
    """The file system on one block device of one machine: created, mounted, checked, unmounted and erased."""

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
        """Create the file system, without mounting it.

        Raises:
            RequirementMissing: the machine lacks the program that creates the file system.
            CommandFailed: the program failed.
        """
        for command in self.spec.create_commands(self.machine, self.device, self.geometry):
            try:
                self.machine.succeed(command, deadline_s=MKFS_DEADLINE_S)
            except CommandFailed as error:
                if error.completed.status != NO_PROGRAM:
                    raise
                raise RequirementMissing(
                    f"{self.machine.name}: the image has no program {command[0]}, which creates {self.spec.type}",
                    remedy=f"add {' or '.join(self.spec.packages) or 'its package'} to the recipe of the image",
                ) from error

    def activate(self, more: Sequence[str] = ()) -> FilesystemState:
        """Mount the file system, replaying its log, and verify that the effective state is as requested.

        ``more``: mount options beside those of the request.

        Raises:
            NotEffective: an effective value differs from the requested one.
            RequirementMissing: the machine's kernel does not support the file system, or a feature that the machine's
                mkfs enabled.
            CommandFailed: the mount failed for another reason.
        """
        command = mount_command(self.spec, self.device, self.directory, more=more)
        mounted = self.machine.run(command, deadline_s=MOUNT_DEADLINE_S)
        if not mounted.ok:
            if message := unknown_features(self.spec, self.machine.succeed(["dmesg", "--notime"])):
                raise RequirementMissing(
                    f"{self.machine.name}: the kernel does not support a feature of the {self.spec.type} on "
                    f"{self.device} that mkfs enabled: {message}",
                    remedy="choose a newer kernel or an older image",
                )
            # After the mount, as the mount loads the module of the file system.
            known = self.machine.run(["cat", "/proc/filesystems"]).stdout.split()
            if known and self.spec.type not in known:
                raise RequirementMissing(
                    f"{self.machine.name}: the kernel does not support {self.spec.type}, by /proc/filesystems",
                    remedy=f"choose a kernel with {self.spec.type}",
                )
            raise CommandFailed(mounted)
        return self.require_effective()

    def deactivate(self) -> None:
        """Unmount the file system."""
        self.machine.succeed(["umount", self.directory], deadline_s=MOUNT_DEADLINE_S)

    def destroy(self) -> None:
        """Erase the file system from its device. The file system must not be mounted."""
        self.machine.succeed(self.spec.erase_command(self.device))

    def state(self) -> FilesystemState:
        """Read the effective state of the mounted file system.

        Raises:
            NotEffective: a file system of another kind is mounted.
            RigError: no file system is mounted.
        """
        mounted = parse_findmnt(self.machine.run(findmnt_command(self.directory)).stdout)
        if mounted.type != self.spec.type:
            raise NotEffective(
                f"file system on {self.directory} is not as requested: type: requested {self.spec.type}, effective "
                f"{mounted.type}"
            )
        return self.spec.state(self.machine, self.device, mounted)

    def require_effective(self) -> FilesystemState:
        """Verify that the effective state of the file system is as requested, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        state, spec = self.state(), self.spec
        require_effective(f"{spec.type} on {self.device}", spec.asked(self.geometry), spec.found(state))
        return state

    def placement(self) -> Placement:
        """Read the places of all files and of the log. The file system must be mounted, and its files written back.

        Raises:
            RigError: the output of a tool is truncated.
        """
        listed = self.machine.succeed(files_command(self.directory), deadline_s=FILES_DEADLINE_S)
        return Placement(
            files=self.spec.file_extents(self.machine, self.device, parse_files(listed)),
            log=None if self.spec.log else self.spec.log_place(self.machine, self.device),
            log_writes=self.spec.log_writes(self.state(), self.geometry),
        )

    def check(self) -> FilesystemCheck:
        """Check the file system with its own program, without changing it. The file system must not be mounted.

        Raises:
            RigError: the program did not complete its check.
        """
        return self.spec.check(self.machine, self.device)
