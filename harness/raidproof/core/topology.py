"""Specification of a lab: machines with roles and addresses, and the server's member disks."""

from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Interface
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.core.units import MIB, Size

SUBNET = "10.77.0"
"""The lab's network. It exists only in the lab's network namespace, so all labs can use the same addresses."""


LONGEST_NAME = 11
"""Greatest length of a machine's name: ``tap-`` and the name are a network interface of the host (15 at most)."""
NO_MECHANICS = "none"
"""The profile of a disk without simulated latency."""
LONGEST_SERIAL = 20
"""Greatest length of a disk's serial number (virtio-blk)."""


class Role(StrEnum):
    """The role of a machine in the lab."""

    SERVER = "server"
    CLIENT = "client"


class SoftwareSpec(BaseModel):
    """The requested software of a machine; None means the default. Kernel and user space are independent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: str | None = None
    """A name such as ``debian/trixie`` or ``debian/trixie/rt``, or the path of a linux-image .deb or a bzImage."""
    modules: str | None = None
    """The folder with the modules of a bzImage; on ``uml`` with modules that replace those of the kernel."""
    image: str | None = None
    """The name of a recipe, for example ``debian/trixie``, or the folder of a recipe."""
    packages: tuple[str, ...] = ()
    """Paths of .deb files that replace packages of the image."""

    @classmethod
    def read(cls, words: Iterable[str]) -> Self:
        """Return the software in words such as ``kernel=debian/sid image=debian/trixie nfs-utils=path.deb``.

        A key is ``kernel``, ``modules``, ``image``, or the name of a binary or source package.

        Raises:
            RequestError: a word has another form, or two words have the same key.
        """
        fields: dict[str, str] = {}
        packages: list[str] = []
        for word in words:
            key, equals, value = word.partition("=")
            if not (key and equals and value):
                raise RequestError(f"not KEY=VALUE: {word!r}", remedy="for example kernel=debian/sid")
            if key in {"kernel", "modules", "image"}:
                if key in fields:
                    raise RequestError(f"{key} is given twice")
                fields[key] = value
            elif value.endswith(".deb"):
                packages.append(value)
            else:
                raise RequestError(
                    f"{key}: {value!r} is no .deb file", remedy=nearest(key, ("kernel", "modules", "image"))
                )
        return cls(**fields, packages=tuple(packages))

    def over(self, other: "SoftwareSpec") -> "SoftwareSpec":
        """Return this specification with unset fields taken from the other."""
        return SoftwareSpec(
            kernel=self.kernel or other.kernel,
            # The modules belong to one kernel.
            modules=self.modules if self.kernel else self.modules or other.modules,
            image=self.image or other.image,
            packages=(*other.packages, *self.packages),
        )

    def __str__(self) -> str:
        words = [f"{key}={value}" for key in ("kernel", "modules", "image") if (value := getattr(self, key))]
        return " ".join([*words, *(f"package={one}" for one in self.packages)]) or "the default"


class Platform(BaseModel):
    """The provider of a lab's machines, and their software."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str = "uml"
    inventory: str | None = None
    """The file that names the machines of provider ``hosts``."""
    server: SoftwareSpec = SoftwareSpec()
    clients: SoftwareSpec = SoftwareSpec()


class MachineSpec(BaseModel):
    """The specification of one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=rf"^[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}$")
    role: Role
    address: IPv4Interface
    memory: Size = 768 * MIB
    cpus: int = Field(default=1, ge=1, le=64)
    numa_nodes: int = Field(default=1, ge=1, le=8)
    software: SoftwareSpec = SoftwareSpec()

    @model_validator(mode="after")
    def _whole_nodes(self) -> Self:
        if self.cpus % self.numa_nodes:
            raise ValueError(f"{self.cpus} CPUs do not divide into {self.numa_nodes} NUMA nodes")
        return self


class ControllerSpec(BaseModel):
    """A disk controller: bandwidth and command rate shared by its disks, and optionally a write cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    bandwidth_mb_s: float | None = Field(default=None, gt=0)
    """10^6 bytes per second, reads and writes together; None means no limit."""
    commands_per_s: float | None = Field(default=None, gt=0)
    cache: Size = 0
    """Bytes of write cache; 0 means no cache."""
    battery: Literal["good", "failed", "unnoticed"] = "good"
    """Failed: the controller writes through. Unnoticed: it keeps caching writes, and a cut loses its cache."""


class DiskSpec(BaseModel):
    """The specification of one member disk."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serial: str = Field(pattern=rf"^[A-Za-z0-9_-]{{1,{LONGEST_SERIAL}}}$")
    size: Size
    profile: str | None = None
    """The simulated drive: a name in disk/profiles or the path of a TOML file; None means no latency."""
    placement: Literal["spread", "outer"] = "spread"
    """Which part of the real drive the disk occupies: spread over all of it, or its first (outer) addresses."""
    controller: str | None = None
    old_data: bool = True
    """Whether unwritten blocks read as old data, if the array permits this; else they read as zeros.

    Old data makes it visible if a file exposes blocks that were never written.
    """


class Topology(BaseModel):
    """The specification of a lab: machines, disks, controllers and provider."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machines: tuple[MachineSpec, ...]
    disks: tuple[DiskSpec, ...]
    controllers: tuple[ControllerSpec, ...] = ()
    slow_motion: float = Field(default=1.0, ge=1, le=1000)
    """Slow-motion factor: seconds of wall time per simulated second; reduces the effect of host overhead."""
    provider: str = "uml"
    inventory: str | None = None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        named: dict[str, list[Any]] = {
            "machine name": [machine.name for machine in self.machines],
            "address": [machine.address.ip for machine in self.machines],
            "disk serial": [disk.serial for disk in self.disks],
            "controller": [controller.name for controller in self.controllers],
        }
        for what, values in named.items():
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"{what} used twice: {twice}")
        if [machine.role for machine in self.machines].count(Role.SERVER) != 1:
            raise ValueError("a lab has exactly one server")
        for disk in self.disks:
            if disk.controller is not None and disk.controller not in named["controller"]:
                raise ValueError(f"disk {disk.serial}: there is no controller {disk.controller!r}")
        return self

    @property
    def timed(self) -> bool:
        """Whether the disks simulate the latency of drives."""
        return any(disk.profile not in {None, NO_MECHANICS} for disk in self.disks)

    @property
    def server(self) -> MachineSpec:
        """The one machine in the role ``server``."""
        return next(machine for machine in self.machines if machine.role is Role.SERVER)

    @property
    def clients(self) -> tuple[MachineSpec, ...]:
        """The machines in the role ``client``."""
        return tuple(machine for machine in self.machines if machine.role is Role.CLIENT)


GATEWAY = IPv4Interface(f"{SUBNET}.1/24")
"""The bridge's address, at which the machines reach the harness."""


def server_and_clients(
    *,
    clients: int = 2,
    disks: int = 4,
    disk_size: int = 192 * MIB,
    profile: str | None = None,
    placement: Literal["spread", "outer"] = "spread",
    memory: int = 768 * MIB,
    platform: Platform | None = None,
) -> Topology:
    """Return a lab of one server with member disks ``disk0``... and clients ``client1``..."""
    platform = platform or Platform()
    return Topology(
        machines=(
            server_spec(platform, memory=memory),
            *(client_spec(number, platform, memory=memory) for number in range(1, clients + 1)),
        ),
        disks=tuple(
            DiskSpec(serial=f"disk{number}", size=disk_size, profile=profile, placement=placement)
            for number in range(disks)
        ),
        provider=platform.provider,
        inventory=platform.inventory,
    )


def server_spec(platform: Platform, *, memory: int, cpus: int = 1, numa_nodes: int = 1) -> MachineSpec:
    """Return the server of a lab."""
    return MachineSpec(
        name="server",
        role=Role.SERVER,
        address=IPv4Interface(f"{SUBNET}.10/24"),
        memory=memory,
        cpus=cpus,
        numa_nodes=numa_nodes,
        software=platform.server,
    )


def client_spec(number: int, platform: Platform, *, memory: int, cpus: int = 1) -> MachineSpec:
    """Return a client of a lab; the first has number 1."""
    return MachineSpec(
        name=f"client{number}",
        role=Role.CLIENT,
        address=IPv4Interface(f"{SUBNET}.{20 + number}/24"),
        memory=memory,
        cpus=cpus,
        software=platform.clients,
    )
