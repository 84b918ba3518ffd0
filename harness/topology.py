"""What one lab consists of: machines, their roles and addresses, and the server's member disks."""

from enum import StrEnum
from ipaddress import IPv4Interface
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.units import MIB, Size

SUBNET = "10.77.0"
"""The lab's network. It exists only inside the lab's own namespace, so every lab may use the same one."""


LONGEST_NAME = 11
"""Characters of a machine's name: with ``tap-`` before it, it names an interface of the host (15 at most)."""
NO_MECHANICS = "none"
"""The profile of a disk that answers at once."""
LONGEST_SERIAL = 20
"""Characters of a disk's serial number, as virtio-blk has them."""


class Role(StrEnum):
    """What a machine is for."""

    SERVER = "server"
    CLIENT = "client"


class MachineSpec(BaseModel):
    """One computer that is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=rf"^[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}$")
    role: Role
    address: IPv4Interface
    memory: Size = 768 * MIB


class ControllerSpec(BaseModel):
    """What several disks hang on: a shared bandwidth and command rate, and perhaps a write cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    bandwidth_mb_s: float | None = Field(default=None, gt=0)
    """10^6 bytes a second, both directions together; None is no limit."""
    commands_per_s: float | None = Field(default=None, gt=0)
    cache: Size = 0
    """Bytes of write cache; 0 is none."""
    battery: Literal["good", "failed", "unnoticed"] = "good"
    """Failed: the controller writes through. Unnoticed: it goes on to acknowledge, and a cut empties its cache."""


class DiskSpec(BaseModel):
    """One member disk that is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serial: str = Field(pattern=rf"^[A-Za-z0-9_-]{{1,{LONGEST_SERIAL}}}$")
    size: Size
    profile: str | None = None
    """The drive whose mechanics it has, by its name in disk/profiles or the path of a TOML file; None has none."""
    placement: Literal["spread", "outer"] = "spread"
    """Whether its addresses are spread over the whole drive, or are the first of it."""
    controller: str | None = None


class Topology(BaseModel):
    """Everything that a lab is made of, before anything exists."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machines: tuple[MachineSpec, ...]
    disks: tuple[DiskSpec, ...]
    controllers: tuple[ControllerSpec, ...] = ()
    slow_motion: float = Field(default=1.0, ge=1, le=1000)
    """So many seconds are one of the disks': what this machine needs for itself then counts so many times less."""
    provider: str = "uml"
    kernel: str | None = None
    image: str | None = None

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
            raise ValueError("a lab has one server")
        for disk in self.disks:
            if disk.controller is not None and disk.controller not in named["controller"]:
                raise ValueError(f"disk {disk.serial} hangs on {disk.controller!r}, which is no controller")
        return self

    @property
    def timed(self) -> bool:
        """Whether its disks have mechanics."""
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
"""The bridge's address: where the harness itself is reached from the machines."""


def server_and_clients(
    *,
    clients: int = 2,
    disks: int = 4,
    disk_size: int = 192 * MIB,
    profile: str | None = None,
    placement: Literal["spread", "outer"] = "spread",
    memory: int = 768 * MIB,
    kernel: str | None = None,
    image: str | None = None,
) -> Topology:
    """Return a lab of one server with member disks ``disk0``... and clients ``client1``..."""
    server = MachineSpec(name="server", role=Role.SERVER, address=IPv4Interface(f"{SUBNET}.10/24"), memory=memory)
    others = tuple(
        MachineSpec(
            name=f"client{number}",
            role=Role.CLIENT,
            address=IPv4Interface(f"{SUBNET}.{20 + number}/24"),
            memory=memory,
        )
        for number in range(1, clients + 1)
    )
    return Topology(
        machines=(server, *others),
        disks=tuple(
            DiskSpec(serial=f"disk{number}", size=disk_size, profile=profile, placement=placement)
            for number in range(disks)
        ),
        kernel=kernel,
        image=image,
    )
