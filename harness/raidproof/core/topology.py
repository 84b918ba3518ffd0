"""Specification of a lab: machines with roles and addresses, and the server's member disks."""

from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Interface
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.core.units import MIB, Size

SUBNET = "10.77.0"
"""First three bytes of a lab's IP addresses; all labs use the same addresses, each in its own network namespace."""


LONGEST_NAME = 11
"""Greatest length of a machine's name in bytes: the name of its interface, ``tap-NAME``, has at most 15 bytes."""
NO_MECHANICS = "none"
"""Name of the profile of a disk without simulated latency."""
LONGEST_SERIAL = 20
"""Greatest length of a disk's serial number in bytes (virtio-blk)."""


class Role(StrEnum):
    """The role of a machine in the lab."""

    SERVER = "server"
    STANDBY = "standby"
    """A second server, on the same disks, which serves after it has taken over from the first."""
    CLIENT = "client"


class SoftwareSpec(BaseModel):
    """The requested software of a machine; None requests the default. Kernel and user space are independent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: str | None = None
    """A name such as ``debian/trixie`` or ``debian/trixie/rt``, or a path: a linux-image .deb, a bzImage, a binary of
    User-mode Linux, or a folder that `kernel build` made."""
    modules: str | None = None
    """Folder with the modules of a bzImage or of a binary of User-mode Linux; for another kernel of provider ``uml``,
    with modules that replace those of the kernel."""
    image: str | None = None
    """The name of an image recipe, for example ``debian/trixie``, or the folder of a recipe."""
    packages: tuple[str, ...] = ()
    """Paths of .deb files that replace packages of the image."""

    @classmethod
    def read(cls, words: Iterable[str]) -> Self:
        """Return the software that words such as ``kernel=debian/sid`` and ``nfs-utils=path.deb`` request.

        A key is ``kernel``, ``modules``, ``image``, or the name of a binary or source package.

        Raises:
            RequestError: a word has another form, or two words have the same key.
        """
        fields: dict[str, str] = {}
        packages: list[str] = []
        for word in words:
            key, equals, value = word.partition("=")
            if not (key and equals and value):
                raise RequestError(
                    f"not of the form KEY=VALUE: {word!r}", remedy="write for example kernel=debian/sid"
                )
            if key in {"kernel", "modules", "image"}:
                if key in fields:
                    raise RequestError(f"{key} is given twice")
                fields[key] = value
            elif value.endswith(".deb"):
                packages.append(value)
            else:
                raise RequestError(
                    f"{key}: {value!r} is not the path of a .deb file",
                    remedy=nearest(key, ("kernel", "modules", "image")),
                )
        return cls(**fields, packages=tuple(packages))

    def over(self, other: "SoftwareSpec") -> "SoftwareSpec":
        """Return this specification with its unset fields taken from ``other``, and with the packages of both."""
        return SoftwareSpec(
            kernel=self.kernel or other.kernel,
            # Modules fit only the kernel for which they were built.
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
    """Path of the file that describes the machines of provider ``hosts``."""
    server: SoftwareSpec = SoftwareSpec()
    clients: SoftwareSpec = SoftwareSpec()


class MachineSpec(BaseModel):
    """The specification of one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=rf"^[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}$")
    role: Role
    address: IPv4Interface
    """Address and prefix length on the lab's network."""
    memory: Size = 768 * MIB
    """Size of the machine's memory in bytes."""
    cpus: int = Field(default=1, ge=1, le=64)
    numa_nodes: int = Field(default=1, ge=1, le=8)
    """Number of NUMA nodes, each with an equal number of CPUs."""
    software: SoftwareSpec = SoftwareSpec()
    raid6: bool = False
    """Whether the machine boots at once with RAID6 algorithms. On User-mode Linux their choice takes a second of a
    boot, so that a machine without this field boots again when an array needs them."""

    @model_validator(mode="after")
    def _whole_nodes(self) -> Self:
        if self.cpus % self.numa_nodes:
            raise ValueError(f"{self.cpus} CPUs cannot be divided equally among {self.numa_nodes} NUMA nodes")
        return self


class ControllerSpec(BaseModel):
    """A simulated disk controller: limits that its disks share, and optionally a write cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    bandwidth_mb_s: float | None = Field(default=None, gt=0)
    """Limit of reads and writes together, in 10^6 bytes per second; None means no limit."""
    commands_per_s: float | None = Field(default=None, gt=0)
    """Limit of disk commands per second; None means no limit."""
    cache: Size = 0
    """Size of the write cache in bytes; 0 means no cache."""
    battery: Literal["good", "failed", "unnoticed"] = "good"
    """State of the battery that keeps the write cache through a cut.

    ``failed``: the controller detected the failure and writes through. ``unnoticed``: the battery failed, but the
    controller caches writes, and a cut loses them.
    """


class DiskSpec(BaseModel):
    """The specification of one member disk."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serial: str = Field(pattern=rf"^[A-Za-z0-9_-]{{1,{LONGEST_SERIAL}}}$")
    size: Size
    """Size of the disk in bytes."""
    profile: str | None = None
    """The simulated drive: the name of a file in ``disk/profiles``, or the path of a TOML file; None: no latency."""
    placement: Literal["spread", "outer"] = "spread"
    """Part of the simulated drive that the disk occupies: ``spread``, all of the drive; ``outer``, its outer edge."""
    controller: str | None = None
    """Name of the controller to which the disk is attached; None means no controller."""
    old_data: bool = True
    """Whether blocks that were never written read as old data, if the array permits this; else they read as zeros.

    If a file exposes blocks that were never written, a test finds the old data in the file.
    """


class Topology(BaseModel):
    """The specification of a lab: machines, disks, controllers and provider."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machines: tuple[MachineSpec, ...]
    disks: tuple[DiskSpec, ...]
    controllers: tuple[ControllerSpec, ...] = ()
    slow_motion: float = Field(default=1.0, ge=1, le=1000)
    """Seconds of wall-clock time per simulated second; a factor above 1 reduces the effect of host overhead."""
    provider: str = "uml"
    inventory: str | None = None
    """Path of the file that describes the machines of provider ``hosts``."""

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
        if (servers := [machine.role for machine in self.machines].count(Role.SERVER)) != 1:
            raise ValueError(f"a lab needs exactly one machine with role 'server', found {servers}")
        if (standbys := [machine.role for machine in self.machines].count(Role.STANDBY)) > 1:
            raise ValueError(f"a lab may have one machine with role 'standby', found {standbys}")
        for disk in self.disks:
            if disk.controller is not None and disk.controller not in named["controller"]:
                raise ValueError(f"disk {disk.serial}: controller {disk.controller!r} is not specified")
        return self

    @property
    def timed(self) -> bool:
        """Whether any disk simulates the latency of a drive."""
        return any(disk.profile not in {None, NO_MECHANICS} for disk in self.disks)

    @property
    def server(self) -> MachineSpec:
        """The machine in the role ``server``."""
        return next(machine for machine in self.machines if machine.role is Role.SERVER)

    @property
    def standby(self) -> MachineSpec | None:
        """The machine in the role ``standby``; None if the lab has one server."""
        return next((machine for machine in self.machines if machine.role is Role.STANDBY), None)

    @property
    def clients(self) -> tuple[MachineSpec, ...]:
        """The machines in the role ``client``."""
        return tuple(machine for machine in self.machines if machine.role is Role.CLIENT)


GATEWAY = IPv4Interface(f"{SUBNET}.1/24")
"""Address of the lab's bridge, at which the machines reach the harness."""


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
    """Return the topology of a lab: one server, its disks ``disk0``, ``disk1``, ..., and clients ``client1``, ...

    ``disk_size`` is the size of each disk in bytes, ``memory`` the size of each machine's memory in bytes.
    """
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
    """Return the specification of a lab's server; ``memory`` is in bytes."""
    return MachineSpec(
        name="server",
        role=Role.SERVER,
        address=IPv4Interface(f"{SUBNET}.10/24"),
        memory=memory,
        cpus=cpus,
        numa_nodes=numa_nodes,
        software=platform.server,
    )


def standby_of(server: MachineSpec) -> MachineSpec:
    """Return the specification of a second server that equals the first."""
    address = IPv4Interface((int(server.address.ip) + 1, server.address.network.prefixlen))
    return server.model_copy(update={"name": f"{server.name}2", "role": Role.STANDBY, "address": address})


def with_standby(topology: Topology) -> Topology:
    """Return a topology with a second server that equals the first and has the same disks."""
    machines = (topology.server, standby_of(topology.server), *topology.clients)
    return topology.model_copy(update={"machines": machines})


def client_spec(number: int, platform: Platform, *, memory: int, cpus: int = 1) -> MachineSpec:
    """Return the specification of the client with this number, from 1; ``memory`` is in bytes."""
    return MachineSpec(
        name=f"client{number}",
        role=Role.CLIENT,
        address=IPv4Interface(f"{SUBNET}.{20 + number}/24"),
        memory=memory,
        cpus=cpus,
        software=platform.clients,
    )
