"""The interface of a layer between a disk and its array: the disk itself, checksums, or encryption."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BeforeValidator

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, Spec, try_all
from raidproof.core.registry import OneOf, Registry, register_default
from raidproof.guest.assembled import DEVICE_MAPPER

MEMBER_LAYERS: Registry[type["MemberLayer"]] = Registry(
    "member layer", "raidproof.storage.member", "raidproof.member_layers"
)
"""The requests of all kinds of member layer, by the name of the kind."""
DEFAULT = "disk"
PREFIX = "raidproof-"
MAPPER = "/dev/mapper/"
LAYERED = f"{MAPPER}{PREFIX}"
"""Begin of the paths of devices that a layer makes; the rest is the serial of the disk."""
_DISK = f"/dev/disk/by-id/{PREFIX}"
# A regular expression that matches no text.
_NEVER = r"(?!)"


def disk_path(serial: str) -> str:
    """Return the device path of the disk with this serial. The path stays the same if the kernel's name changes."""
    return f"{_DISK}{serial}"


def serial_of(path: str) -> str:
    """Return the serial of the disk with this path, or below this path. Another path is returned as it is."""
    return path.removeprefix(_DISK).removeprefix(LAYERED)


class Assembly(NamedTuple):
    """The assembly of one device of an array, or of one member below it, by a checker of crash states."""

    device: str
    """The device path, for reports."""
    command: tuple[str, ...]
    interface: str
    """How the agent reads and freezes the device: a key of `raidproof.guest.assembled.INTERFACES`."""
    name: str
    """The name of the device in that interface."""
    sized: str = ""
    """The path of a device of the same size: its number of sectors replaces `SECTORS` in the command. Empty: none."""


class MemberLayer(Spec):
    """The requested layer on each member disk. A subclass with a default for ``type`` is registered.

    A kind that makes a device of its own gives it the name `PREFIX` with the serial of the disk, in device-mapper.
    """

    opaque: ClassVar[str | None] = None
    """The reason why the content of the array cannot be read from the disks; None if it can."""
    damage: ClassVar[str] = _NEVER
    """A regular expression for the kernel's messages that the layer found damage."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the names of the packages with the tools. The record has their versions."""
    encrypts: ClassVar[bool] = False
    """Whether the requests to the disks have other content than those of the file system."""
    keeps_content: ClassVar[bool] = True
    """Whether members on blank disks have equal content, so that the first resync may be skipped."""
    direct: ClassVar[bool] = False
    """Whether the array has the disks themselves as members."""
    parameters: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Files of the machine that must exist before a member is opened, each with its text."""

    type: str
    """The name of the kind. A kind overrides this field with a ``Literal`` that has a default."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register a subclass that has a default for ``type``."""
        register_default(MEMBER_LAYERS, cls)

    def path(self, serial: str) -> str:
        """Return the device path of the member on the disk with this serial."""
        return disk_path(serial) if self.direct else f"{LAYERED}{serial}"

    def caveats(self) -> tuple[str, ...]:
        """Return sentences: the differences from a deployed layer that affect the meaning of results."""
        return ()

    @abstractmethod
    def format_command(self, serial: str) -> list[str]:
        """Return the command that writes the layer's metadata onto a disk; empty if there is none."""

    @abstractmethod
    def open_command(self, serial: str, *, first: bool = False) -> list[str]:
        """Return the command that makes the member's device; ``first``: for the first time after the format."""

    @abstractmethod
    def close_command(self, serial: str) -> list[str]:
        """Return the command that removes the member's device."""

    def assembly(self, serials: Sequence[str]) -> tuple[Assembly, ...]:
        """Return how a checker of crash states opens the members of the disks with these serials."""
        if self.direct:
            return ()
        return tuple(
            Assembly(self.path(serial), tuple(self.open_command(serial)), DEVICE_MAPPER, f"{PREFIX}{serial}")
            for serial in serials
        )

    def create(self, machine: Machine, serials: Sequence[str]) -> None:
        """Write the layer's metadata onto the disks, and make the members' devices."""
        if self.direct:
            return
        self._prepare(machine)
        for serial in serials:
            machine.succeed(self.format_command(serial))
            machine.succeed(self.open_command(serial, first=True))
        self.wait_formatted(machine, serials)
        self.require_effective(machine, serials)

    def wait_formatted(self, machine: Machine, serials: Sequence[str]) -> None:  # noqa: ARG002
        """Wait until background work of the format has ended.

        Raises:
            DeadlineExceeded: it does not end.
        """
        return

    def activate(self, machine: Machine, serials: Sequence[str]) -> None:
        """Make the members' devices that do not exist yet, and verify that all are as requested.

        Raises:
            CommandFailed: a disk has no metadata of the layer, or the metadata is damaged.
            NotEffective: an effective value differs from the requested one.
        """
        if self.direct:
            return
        self._prepare(machine)
        for serial in self._closed(machine, serials):
            machine.succeed(self.open_command(serial))
        self.require_effective(machine, serials)

    def open_readable(self, machine: Machine, serials: Sequence[str]) -> None:
        """Make the members' devices that do not exist yet. A disk whose metadata is damaged is left out."""
        if not self.direct:
            self._prepare(machine)
            for serial in self._closed(machine, serials):
                machine.run(self.open_command(serial))

    def _closed(self, machine: Machine, serials: Sequence[str]) -> list[str]:
        names = names_of(machine)
        return [serial for serial in serials if f"{PREFIX}{serial}" not in names]

    def _prepare(self, machine: Machine) -> None:
        for path, text in self.parameters:
            machine.put(text, path)

    def deactivate(self, machine: Machine, serials: Sequence[str]) -> None:
        """Remove the members' devices. Every device is tried, even if another one fails."""
        if not self.direct:
            steps = [lambda serial=serial: machine.succeed(self.close_command(serial)) for serial in serials]
            try_all(steps, "not every member's device could be removed")

    def destroy(self, machine: Machine, serials: Sequence[str]) -> None:
        """Remove the members' devices, and erase the layer's metadata from the disks."""
        if not self.direct:
            self.deactivate(machine, serials)
            machine.succeed(["wipefs", "--all", *map(disk_path, serials)])

    def require_effective(self, machine: Machine, serials: Sequence[str]) -> None:  # noqa: ARG002
        """Verify that the members' devices are as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        return

    def kernel_names(self, machine: Machine, serials: Sequence[str]) -> dict[str, str]:
        """Return the kernel's name of each member, by device path. The names may change at each boot.

        Raises:
            RigError: a member's device does not exist.
        """
        if self.direct:
            paths = [self.path(serial) for serial in serials]
            found = machine.resolve(paths)
            return {path: real.removeprefix("/dev/") for path, real in zip(paths, found, strict=True)}
        names = names_of(machine)
        if missing := [serial for serial in serials if f"{PREFIX}{serial}" not in names]:
            raise RigError(f"device-mapper has no device of the members {', '.join(missing)}; it has {sorted(names)}")
        return {self.path(serial): names[f"{PREFIX}{serial}"] for serial in serials}


def names_of(machine: Machine) -> dict[str, str]:
    """Return the kernel's names of all devices of device-mapper, by their names there."""
    listed = machine.succeed(["dmsetup", "info", "--columns", "--noheadings", "-o", "name,blkdevname"])
    return dict(line.strip().split(":") for line in listed.splitlines() if line.count(":") == 1)


def kernel_name(machine: Machine, path: str) -> str:
    """Return the kernel's name of the block device with this path: ``md0``, ``dm-0``.

    Raises:
        RigError: device-mapper has no device of the name in the path.
    """
    if path.startswith(_DISK):
        return machine.resolve([path])[0].removeprefix("/dev/")
    if not path.startswith(MAPPER):
        return path.removeprefix("/dev/")
    name = path.removeprefix(MAPPER)
    if (found := names_of(machine).get(name)) is None:
        raise RigError(f"device-mapper has no device {name}")
    return found


def _named(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


AnyMemberLayer = Annotated[MemberLayer, OneOf(MEMBER_LAYERS, default=DEFAULT), BeforeValidator(_named)]
"""The type of a field with a request for any kind of member layer: a table, or only the name of a kind."""
