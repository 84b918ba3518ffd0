"""How the machines of a lab come to be: what each way of making them has to offer."""

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
    """Where the machines of one lab come to be."""

    topology: Topology
    directory: Path
    """Of the lab: its sockets and copy-on-write files."""
    logs: Path
    enclosure: Enclosure
    engine: EngineClient
    engine_socket: Path
    """Where the disk engine speaks NBD: one export a member, by its serial."""
    keys: LabKeys

    def members_of(self, spec: MachineSpec) -> MemberDisks | None:
        """Return the member disks of a machine; only the server has some."""
        if spec.role is not Role.SERVER:
            return None
        return MemberDisks(self.engine, self.engine_socket, tuple(disk.serial for disk in self.topology.disks))

    def config_disk(self, machine: str) -> Path:
        """Return the file that makes a machine that machine."""
        return self.directory / f"{machine}.config"


PROVIDERS: Registry[type["Provider"]] = Registry("provider", "raidproof.provider", "raidproof.providers")
"""Every provider that makes the machines of a lab in namespaces, by name."""


class Provider(ABC):
    """A way of making machines. A subclass with a name of its own registers itself.

    Its methods are called in this order: prepare, enclose, furnish, then machine for each machine.
    """

    name: ClassVar[str] = ""
    boots_together: ClassVar[bool] = False
    """Whether `furnish` has booted all machines at once: then nobody knows how long each took."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Register the provider."""
        if "name" in vars(cls):
            PROVIDERS.add(cls.name, cls)

    @abstractmethod
    def prepare(self, topology: Topology) -> None:
        """Fetch and build all that the machines need, before anything is started.

        Raises:
            RequestError: it cannot make such machines.
            RequirementMissing: this host lacks something for it.
        """

    def enclose(self, directory: Path) -> Enclosure:
        """Return what will hold the lab together, not entered yet: namespaces for network and processes."""
        return Enclosure(directory)

    def furnish(self, site: Site) -> None:
        """Bring up what all machines share: bridge and taps."""
        create_network(site.enclosure, site.topology)

    @abstractmethod
    def power(self, spec: MachineSpec, site: Site) -> Power:
        """Return the switch of a machine, which is off."""

    def machine(self, spec: MachineSpec, site: Site) -> Machine:
        """Return a machine, which is off: as it is here, one that runs our own init and knows the lab's keys."""
        login = LabLogin(str(spec.address.ip), site.keys, site.enclosure.socket)
        return Machine(spec, self.power(spec, site), Transport(spec.name, login))

    @property
    @abstractmethod
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run on it says nothing about."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the report must know about how these machines ran."""
        return ()

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of this host that take part, by name, each as the words that start it."""
        return {"nbdkit": ("nbdkit",)}
