"""The interface of a volume: the block device between an array and its file system.

A volume is a device on the array, and for some kinds on further disks: encryption, a cache, or a logical volume.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BeforeValidator, Field

from raidproof.core.errors import RequestError
from raidproof.core.layer import Machine, Spec, State, Value, require_effective, try_all, whole_number
from raidproof.core.registry import OneOf, Registry, register_default
from raidproof.core.units import SECTOR, format_size
from raidproof.guest.assembled import sized
from raidproof.storage.array import Geometry
from raidproof.storage.member import Assembly, disk_path, kernel_name

VOLUMES: Registry[type["VolumeSpec"]] = Registry("volume", "raidproof.storage.volume", "raidproof.volumes")
"""The requests of all kinds of volume, by the name of the kind."""
DEFAULT = "direct"
# A regular expression that matches no text.
_NEVER = r"(?!)"

Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")]
"""The type of a field with the serial of a disk."""


class VolumeState(State):
    """The effective state of a volume."""

    type: str
    device: str
    """Path of the device that carries the file system."""
    settings: dict[str, Value]
    """The effective values of the requested settings."""
    counters: dict[str, int]
    """The kernel's counters by name; for a cache, the bytes that only the cache has (``dirty``)."""


class Reading(NamedTuple):
    """What the kernel reports about a volume."""

    settings: dict[str, Value]
    """The effective values of the requested settings, and the kernel's names of the devices below as ``inputs``."""
    counters: dict[str, int]


class VolumeSpec(Spec):
    """The requested volume. A subclass with a default for ``type`` is a kind, registered in `VOLUMES`.

    The parameter ``below`` of the methods is the path of the array.
    """

    axes: ClassVar[Mapping[str, str]] = {}
    """The fields of this kind that a plan may vary, each with a description."""
    further_disks: ClassVar[tuple[str, ...]] = ()
    """The fields that name a disk outside the array."""
    damage: ClassVar[str] = _NEVER
    """A regular expression for the kernel's messages that the volume is damaged."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the names of the packages with the tools. The record has their versions."""
    parameters: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Files of the machine that must exist before the volume is opened, each with its text."""
    forcing: ClassVar[frozenset[str]] = frozenset()
    """Words of the commands that only the harness needs; lines for users lack them."""
    device: ClassVar[str | None]
    """The path of the volume's device; None: the file system is on the array itself."""
    encrypts: ClassVar[bool] = False
    """Whether the requests to the disks have other content than those of the file system."""
    in_place: ClassVar[bool] = True
    """Whether each request goes to its place on the array at once, as the model of the throughput assumes."""
    sector_size: ClassVar[int] = SECTOR
    """The smallest request to the volume in bytes (queue/logical_block_size)."""
    keeps_places: ClassVar[bool] = True
    """Whether byte N of the volume has its place at `data_offset` + N of the array, where a cache writes it sooner or
    later."""

    type: str
    """The name of the kind. A kind overrides this field with a ``Literal`` that has a default."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register a subclass that has a default for ``type``.

        Raises:
            TypeError: an axis of the subclass is not the name of a field.
        """
        register_default(VOLUMES, cls, axes=(*cls.axes, *cls.further_disks))

    @property
    def data_offset(self) -> int:
        """Bytes of the array before the volume's first byte."""
        return 0

    def aligned(self, geometry: Geometry | None) -> Self:  # noqa: ARG002
        """Return the request for an array of this geometry, to whose stripes the kind may align its data."""
        return self

    def refuse_array(self, below: str) -> None:  # noqa: ARG002
        """Check that the volume can be on the array with this path.

        Raises:
            RequestError: it cannot.
        """
        return

    def room(self, size: int) -> int:
        """Return the bytes of the volume on an array of ``size`` bytes."""
        return size - self.data_offset

    @property
    def disks(self) -> tuple[str, ...]:
        """The serials of the disks outside the array, in the order of `further_disks`."""
        return tuple(getattr(self, field) for field in self.further_disks)

    def duties(self) -> dict[str, str]:
        """Return the duty of each disk outside the array, by serial: ``CACHE-DISK``."""
        return {getattr(self, field): field.upper().replace("_", "-") for field in self.further_disks}

    def path(self, below: str) -> str:
        """Return the path of the device that carries the file system."""
        return self.device or below

    @property
    def direct(self) -> bool:
        """Whether the file system is on the array itself."""
        return self.device is None

    def refuse_sizes(self, sizes: Mapping[str, int]) -> None:
        """Check that the further disks are large enough; ``sizes`` has the bytes of each disk, by serial.

        Raises:
            RequestError: a disk is too small.
        """
        for serial in self.disks:
            if sizes[serial] < (least := self.least_disk):
                raise RequestError(
                    f"disk {serial} of the volume {self.type} has {format_size(sizes[serial])}; it needs at least "
                    f"{format_size(least)}"
                )

    @property
    def least_disk(self) -> int:
        """The smallest size in bytes of a further disk."""
        return 0

    def caveats(self) -> tuple[str, ...]:
        """Return sentences: the differences from a deployed volume that affect the meaning of results."""
        return ()

    @abstractmethod
    def format_commands(self, below: str) -> list[list[str]]:
        """Return the commands that write the volume's metadata, or erase earlier metadata, in order."""

    def completed(self, command: list[str], machine: Machine, below: str) -> list[str]:  # noqa: ARG002
        """Return one of `format_commands` with the values that only the machine has, such as the size of the array."""
        return command

    @abstractmethod
    def assembly(self, below: str) -> tuple[Assembly, ...]:
        """Return how the volume's devices are made after the assembly of the array: the volume last."""

    @abstractmethod
    def close_commands(self, below: str) -> list[list[str]]:
        """Return the commands that remove the volume's devices, in order."""

    @abstractmethod
    def asked(self) -> dict[str, Value]:
        """Return the requested settings."""

    @abstractmethod
    def read(self, machine: Machine, below: str) -> Reading:
        """Read what the kernel reports about the volume.

        Raises:
            CommandFailed: the volume does not exist.
            RigError: the kernel's answer is truncated, or is about a volume of another kind.
        """

    def inputs(self, below: str) -> tuple[str, ...]:
        """Return the paths of the devices of which the volume consists."""
        return (below,)


def erase_command(serial: str) -> list[str]:
    """Return the command that erases the begin of a disk, so that a cache finds no earlier content."""
    return ["dd", "if=/dev/zero", f"of={disk_path(serial)}", "bs=1M", "count=1", "conv=fsync", "status=none"]


def wipe_command(path: str) -> list[str]:
    """Return the command that erases the signatures of a device, even if the kernel has not yet closed it."""
    return ["wipefs", "--all", "--force", path]


def sectors_of(machine: Machine, path: str) -> int:
    """Return the 512-byte sectors of a block device.

    Raises:
        RigError: the machine's answer is no number.
    """
    return whole_number(machine.succeed(["blockdev", "--getsz", path]).strip(), f"sectors of {path}")


def ready(machine: Machine, steps: Iterable[Assembly]) -> Iterable[list[str]]:
    """Yield the command of each step, with the number of sectors that the machine reports after the step before."""
    for one in steps:
        yield sized(list(one.command), sectors_of(machine, one.sized)) if one.sized else list(one.command)


class Volume:
    """The volume of one machine: formatted, opened, read back, closed and erased."""

    def __init__(self, spec: VolumeSpec, machine: Machine, below: str) -> None:
        self.spec = spec
        self.machine = machine
        self.below = below
        self.device = spec.path(below)

    def create(self) -> None:
        """Write the volume's metadata, make its device, and verify that the effective state is as requested.

        Raises:
            CommandFailed: a tool refused, or the kernel lacks the target.
            NotEffective: an effective value differs from the requested one.
        """
        self._prepare()
        for command in self.spec.format_commands(self.below):
            self.machine.succeed(self.spec.completed(command, self.machine, self.below))
        self._open()
        self.require_effective()

    def activate(self) -> VolumeState:
        """Make the device of the existing volume, and verify that the effective state is as requested.

        Raises:
            CommandFailed: the volume's metadata is missing or damaged.
            NotEffective: an effective value differs from the requested one.
        """
        self._prepare()
        self._open()
        return self.require_effective()

    def _prepare(self) -> None:
        for path, text in self.spec.parameters:
            self.machine.put(text, path)

    def _open(self) -> None:
        for command in ready(self.machine, self.spec.assembly(self.below)):
            self.machine.succeed(command)

    def deactivate(self) -> None:
        """Remove the volume's devices. Each device is tried, even if another one fails."""
        steps = [
            lambda command=command: self.machine.succeed(command) for command in self.spec.close_commands(self.below)
        ]
        try_all(steps, "not every device of the volume could be removed")

    def destroy(self) -> None:
        """Remove the volume's devices, and erase its metadata from the array and the further disks."""
        if self.spec.direct:
            return
        self.deactivate()
        self.machine.succeed(wipe_command(self.below))
        for serial in self.spec.disks:
            self.machine.succeed(erase_command(serial))

    def state(self) -> VolumeState:
        """Read the effective state of the volume.

        Raises:
            RigError: the volume does not exist, or is of another kind.
        """
        return VolumeState(
            type=self.spec.type, device=self.device, **self.spec.read(self.machine, self.below)._asdict()
        )

    def require_effective(self) -> VolumeState:
        """Verify that the effective state of the volume is as requested, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        state = self.state()
        if not self.spec.direct:
            asked = {**self.spec.asked(), "inputs": self._names()}
            require_effective(f"volume {self.spec.type} on {self.below}", asked, state.settings)
        return state

    def _names(self) -> tuple[str, ...]:
        """Return the kernel's names of the devices below, sorted."""
        return tuple(sorted(kernel_name(self.machine, path) for path in self.spec.inputs(self.below)))


def _named(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


AnyVolume = Annotated[VolumeSpec, OneOf(VOLUMES, default=DEFAULT), BeforeValidator(_named)]
"""The type of a field with a request for any kind of volume: a table, or only the name of a kind."""


def without() -> VolumeSpec:
    """Return the request of a stack whose file system is on the array itself."""
    return VOLUMES[DEFAULT].model_validate({})
