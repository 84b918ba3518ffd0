"""What one lab consists of: machines, their roles and addresses, and the server's member disks."""

from enum import StrEnum
from ipaddress import IPv4Interface

from pydantic import BaseModel, ConfigDict, Field

from harness.units import MIB, Size

SUBNET = "10.77.0"
"""The lab's network. It exists only inside the lab's own namespace, so every lab may use the same one."""


class Role(StrEnum):
    """What a machine is for."""

    SERVER = "server"
    CLIENT = "client"


class MachineSpec(BaseModel):
    """One computer that is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    role: Role
    address: IPv4Interface
    memory: Size = 768 * MIB


class DiskSpec(BaseModel):
    """One member disk that is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serial: str = Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")
    size: Size


class Topology(BaseModel):
    """Everything that a lab is made of, before anything exists."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machines: tuple[MachineSpec, ...]
    disks: tuple[DiskSpec, ...]
    provider: str = "uml"
    kernel: str | None = None
    image: str | None = None

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
    disk_size: int = 256 * MIB,
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
