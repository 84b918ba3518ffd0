"""The interface of a provider, which creates the machines of a lab; a base class for machines that are processes."""

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
    """What a provider gets to create the machines of one lab: directories, namespace, disk engine and keys."""

    topology: Topology
    directory: Path
    """Directory of the lab, with its sockets and copy-on-write files."""
    logs: Path
    """Directory of the console logs and of the output of the lab's processes."""
    namespace: Namespace
    engine: EngineClient
    engine_socket: Path
    """The UNIX socket on which the disk engine serves NBD; an export's name is the serial of a member."""
    keys: LabKeys

    def members_of(self, spec: MachineSpec) -> MemberDisks | None:
        """Return the member disks of a server; None for a client, and in a lab without disks."""
        if spec.role is Role.CLIENT or not self.topology.disks:
            return None
        serials = tuple(disk.serial for disk in self.topology.disks)
        shared = self.topology.standby is not None
        return MemberDisks(self.engine, self.engine_socket, serials, spec.name if shared else "")

    def config_disk(self, machine: str) -> Path:
        """Return the file of a machine's configuration disk."""
        return self.directory / f"{machine}.config"


PROVIDERS: Registry[type["Provider"]] = Registry("provider", "raidproof.provider", "raidproof.providers")
"""Every provider that makes the machines of a lab in namespaces, by name."""


class Provider(Provenance):
    """The software that creates the machines of one lab. A subclass with a ``name`` registers itself in `PROVIDERS`.

    `NamespaceLab` calls the methods in this order: `prepare`, `enclose`, `furnish`, then `machine` for each machine.
    """

    name: ClassVar[str] = ""
    """The provider's name in options, plans and records."""
    why_no_standby: ClassVar[str | None] = "only provider uml attaches the same disks to two servers"
    """Why a lab of this provider has one server only; None if it may have a second one, on the same disks."""
    boots_together: ClassVar[bool] = False
    """Whether `furnish` boots all machines at once, so that the boot time of a single machine is unknown."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Register a subclass that sets ``name``."""
        if "name" in vars(cls):
            PROVIDERS.add(cls.name, cls)

    @abstractmethod
    def prepare(self, topology: Topology) -> None:
        """Fetch and build the kernels, images and programs of a lab, before anything of the lab is started.

        Raises:
            RequestError: the provider cannot create a machine with the requested properties.
            RequirementMissing: this host lacks a program, or space, that the provider needs.
        """

    def enclose(self, directory: Path) -> Namespace:
        """Return the namespaces for a lab's network and processes, as a context manager that is not entered yet."""
        return Namespace(directory)

    def furnish(self, site: Site) -> None:
        """Create the bridge and the taps that connect the machines of a lab."""
        create_network(site.namespace, site.topology)

    @abstractmethod
    def power(self, spec: MachineSpec, site: Site) -> Power:
        """Return the power control of a machine that is switched off."""

    def machine(self, spec: MachineSpec, site: Site) -> Machine:
        """Return a machine that is switched off; by default the harness logs in to it with the lab's SSH keys."""
        login = LabLogin(str(spec.address.ip), site.keys, site.namespace.socket)
        return Machine(spec, self.power(spec, site), Transport(spec.name, login))

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of this host that run during a lab, by name, each as the start of its command."""
        return {"nbdkit": ("nbdkit",)}


class GuestProvider(Provider):
    """A provider whose machines are processes of the lab, which boot a kernel and an image of raidproof."""

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        """The kernel of each machine, by the machine's name."""
        self.images: dict[str, Image] = {}
        """The image of each machine, by the machine's name."""

    def prepare(self, topology: Topology) -> None:
        """Fetch and build the kernel and the image of each machine.

        Raises:
            RequestError: a requested kernel or image does not exist, or the provider cannot boot the kernel.
            RequirementMissing: this host lacks a program for building an image or a kernel.
            RigError: a download or a build failed.
        """
        for machine in topology.machines:
            asked = machine.software
            self.kernels[machine.name] = kernel.get(asked.kernel, modules=asked.modules, provider=self.name)
            self.images[machine.name] = image.get(asked)


@dataclass
class GuestPower:
    """The power control of a machine that is a process. A subclass implements ``on``, which sets ``_guest``."""

    program_name: ClassVar[str] = "its kernel"
    """The name of the machine's process in messages."""
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
        """Set ``disks`` to the machine's member disks in the lab of ``site``."""
        self.disks = self.site.members_of(self.spec)

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console logs of the machine, one for each boot, the current boot last."""
        return console_logs(self.site.logs, self.spec.name, self.boots)

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Cut the power: freeze the disks, kill the guest, then apply the cut policy to the disks' caches."""
        self._running()
        return cut_power(self.disks, self._kill, policy, seed)

    def wait_off(self, deadline: Deadline) -> None:
        """Wait until the guest ends by itself, then end its helper processes."""
        self._running().wait(deadline)
        self._kill()

    def require_on(self) -> None:
        """Raise RigError with the last console output if the guest has ended."""
        if (status := self._running().status) is not None:
            output = self.consoles[-1].read_text(errors="replace")
            raise RigError(
                f"{self.spec.name}: {self.program_name} ended with status {status}: {cause_of_death(output)}; "
                f"see {self.consoles[-1]}"
            )

    def _kill(self) -> None:
        # SIGKILL: on another signal the program may flush its disks before it exits.
        self._running().kill()
        self._guest = None

    def _running(self) -> Process:
        if self._guest is None:
            raise RigError(f"{self.spec.name} is not switched on: it has not been booted, or its power was cut")
        return self._guest
