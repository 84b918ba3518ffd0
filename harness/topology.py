"""What one lab consists of: machines, their roles and addresses, and the server's member disks."""

from enum import StrEnum
from ipaddress import IPv4Interface
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.units import MIB, Size

SUBNET = "10.77.0"
"""The lab's network. It exists only inside the lab's own namespace, so every lab may use the same one."""


LONGEST_NAME = 11
"""Characters of a machine's name: with ``tap-`` before it, it names an interface of the host (15 at most)."""
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


class DiskSpec(BaseModel):
    """One member disk that is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serial: str = Field(pattern=rf"^[A-Za-z0-9_-]{{1,{LONGEST_SERIAL}}}$")
    size: Size


class Topology(BaseModel):
    """Everything that a lab is made of, before anything exists."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machines: tuple[MachineSpec, ...]
    disks: tuple[DiskSpec, ...]
    provider: str = "uml"
    kernel: str | None = None
    image: str | None = None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        named: dict[str, list[Any]] = {
            "machine name": [machine.name for machine in self.machines],
            "address": [machine.address.ip for machine in self.machines],
            "disk serial": [disk.serial for disk in self.disks],
        }
        for what, values in named.items():
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"{what} used twice: {twice}")
        if [machine.role for machine in self.machines].count(Role.SERVER) != 1:
            raise ValueError("a lab has one server")
        return self

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
        disks=tuple(DiskSpec(serial=f"disk{number}", size=disk_size) for number in range(disks)),
        kernel=kernel,
        image=image,
    )
