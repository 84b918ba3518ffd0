"""The interface of a provider, which makes the machines of a lab, and the base of those that start processes."""

from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from raidproof.core.errors import RigError
from raidproof.core.registry import Registry
from raidproof.core.topology import MachineSpec, Role, Topology
from raidproof.core.waiting import Deadline
from raidproof.disk.cache import CutPolicy
from raidproof.disk.client import EngineClient
from raidproof.image import image, kernel
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.lab.lab import Provenance
from raidproof.machine.kernel_log import cause_of_death, console_logs
from raidproof.machine.login import LabKeys, LabLogin
from raidproof.machine.machine import OWN_POWEROFF, Cut, Machine, MemberDisks, Power, cut_power
from raidproof.machine.transport import Transport
from raidproof.namespace import Namespace, Process
from raidproof.namespace.network import create_network


@dataclass(frozen=True)
class Site:
    """The resources for the machines of one lab."""

    topology: Topology
    directory: Path
    """Directory of the lab, with its sockets and copy-on-write files."""
    logs: Path
    namespace: Namespace
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


class Provider(Provenance):
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

    def enclose(self, directory: Path) -> Namespace:
        """Return the namespaces of the lab, for network and processes; not entered yet."""
        return Namespace(directory)

    def furnish(self, site: Site) -> None:
        """Create what all machines share: bridge and taps."""
        create_network(site.namespace, site.topology)

    @abstractmethod
    def power(self, spec: MachineSpec, site: Site) -> Power:
        """Return the power switch of a machine, which is off."""

    def machine(self, spec: MachineSpec, site: Site) -> Machine:
        """Return a machine, which is off; this default runs raidproof's init and accepts the lab's keys."""
        login = LabLogin(str(spec.address.ip), site.keys, site.namespace.socket)
        return Machine(spec, self.power(spec, site), Transport(spec.name, login))

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The host programs that take part, by name, each as the words of its command."""
        return {"nbdkit": ("nbdkit",)}


class GuestProvider(Provider):
    """A provider whose machines are processes of the lab, each with a kernel and an image of raidproof."""

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        """By machine name."""
        self.images: dict[str, Image] = {}

    def prepare(self, topology: Topology) -> None:
        """Fetch kernels and images.

        Raises:
            RequestError: there is no such kernel or image.
        """
        for machine in topology.machines:
            asked = machine.software
            self.kernels[machine.name] = kernel.get(asked.kernel, modules=asked.modules, provider=self.name)
            self.images[machine.name] = image.get(asked)


@dataclass
class GuestPower:
    """The power switch of a machine; a subclass implements `on`, which sets ``_guest``."""

    program_name: ClassVar[str] = "its kernel"
    """The process that ends with the machine, for messages."""
    raid6 = True
    spec: MachineSpec
    kernel: Kernel
    image: Image
    site: Site
    disks: MemberDisks | None = field(init=False)
    boots: int = field(default=0, kw_only=True)
    poweroff: tuple[str, ...] = field(default=OWN_POWEROFF, kw_only=True)
    _guest: Process | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Take the machine's member disks from the site."""
        self.disks = self.site.members_of(self.spec)

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console log of each boot, the current one last."""
        return console_logs(self.site.logs, self.spec.name, self.boots)

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Freeze the disks, kill the guest, then apply the cut policy to the disks' caches."""
        self._running()
        return cut_power(self.disks, self._kill, policy, seed)

    def wait_off(self, deadline: Deadline) -> None:
        """Wait until the guest ends by itself, and remove its remains."""
        self._running().wait(deadline)
        self._kill()

    def require_on(self) -> None:
        """Raise RigError with the last console output if the guest has ended."""
        if (status := self._running().status) is not None:
            said = self.consoles[-1].read_text(errors="replace")
            raise RigError(
                f"{self.spec.name}: {self.program_name} ended with status {status}: {cause_of_death(said)}; "
                f"see {self.consoles[-1]}"
            )

    def _kill(self) -> None:
        # SIGKILL: an orderly exit of the program may send a flush to its disks.
        self._running().kill()
        self._guest = None

    def _running(self) -> Process:
        if self._guest is None:
            raise RigError(f"{self.spec.name} is not switched on")
        return self._guest
