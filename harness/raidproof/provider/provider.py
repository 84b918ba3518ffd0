"""The interface of a provider, which makes the machines of a lab."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from raidproof.core.registry import Registry
from raidproof.core.topology import MachineSpec, Role, Topology
from raidproof.disk.client import EngineClient
from raidproof.machine.login import LabKeys, LabLogin
from raidproof.machine.machine import Machine, MemberDisks, Power
from raidproof.machine.transport import Transport
from raidproof.namespace import Enclosure
from raidproof.namespace.network import create_network


@dataclass(frozen=True)
class Site:
    """The resources for the machines of one lab."""

    topology: Topology
    directory: Path
    """Directory of the lab, with its sockets and copy-on-write files."""
    logs: Path
    enclosure: Enclosure
    engine: EngineClient
    engine_socket: Path
    """The NBD socket of the disk engine: one export per member, by its serial."""
    keys: LabKeys

    def members_of(self, spec: MachineSpec) -> MemberDisks | None:
        """Return the member disks of a machine; only the server has some."""
        if spec.role is not Role.SERVER:
            return None
        return MemberDisks(self.engine, self.engine_socket, tuple(disk.serial for disk in self.topology.disks))

    def config_disk(self, machine: str) -> Path:
        """Return the file of a machine's configuration disk."""
        return self.directory / f"{machine}.config"


PROVIDERS: Registry[type["Provider"]] = Registry("provider", "raidproof.provider", "raidproof.providers")
"""Every provider that makes the machines of a lab in namespaces, by name."""


class Provider(ABC):
    """A way of making machines. A subclass with its own name registers itself.

    Its methods are called in this order: prepare, enclose, furnish, then machine for each machine.
    """

    name: ClassVar[str] = ""
    boots_together: ClassVar[bool] = False
    """Whether `furnish` boots all machines at once: then their individual boot times are unknown."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Register the provider."""
        if "name" in vars(cls):
            PROVIDERS.add(cls.name, cls)

    @abstractmethod
    def prepare(self, topology: Topology) -> None:
        """Fetch and build all that the machines need, before anything is started.

        Raises:
            RequestError: the provider cannot make such machines.
            RequirementMissing: this host lacks something for it.
        """

    def enclose(self, directory: Path) -> Enclosure:
        """Return the namespaces of the lab, for network and processes; not entered yet."""
        return Enclosure(directory)

    def furnish(self, site: Site) -> None:
        """Create what all machines share: bridge and taps."""
        create_network(site.enclosure, site.topology)

    @abstractmethod
    def power(self, spec: MachineSpec, site: Site) -> Power:
        """Return the power switch of a machine, which is off."""

    def machine(self, spec: MachineSpec, site: Site) -> Machine:
        """Return a machine, which is off; this default runs raidproof's init and accepts the lab's keys."""
        login = LabLogin(str(spec.address.ip), site.keys, site.enclosure.socket)
        return Machine(spec, self.power(spec, site), Transport(spec.name, login))

    @property
    @abstractmethod
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run with this provider cannot prove."""

    @property
    def notes(self) -> tuple[str, ...]:
        """How these machines ran, as far as a reader of the report must know it."""
        return ()

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The host programs that take part, by name, each as the words of its command."""
        return {"nbdkit": ("nbdkit",)}
