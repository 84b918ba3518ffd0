"""Provider ``vagrant``: Vagrant creates the machines, with a libvirt that runs inside the lab."""

from pathlib import Path

from raidproof.core.log import step
from raidproof.core.topology import MachineSpec, Topology
from raidproof.core.waiting import Deadline, now_ns
from raidproof.image import image, kernel
from raidproof.image.kernel import Kernel
from raidproof.machine.machine import OWN_POWEROFF, Machine
from raidproof.machine.transport import Transport
from raidproof.namespace import Namespace
from raidproof.namespace.network import hardware_address
from raidproof.provider import kvm
from raidproof.provider.kvm import PROGRAM, Accelerator, KvmAnswer
from raidproof.provider.provider import Provider, Site
from raidproof.provider.vagrant import box, libvirt
from raidproof.provider.vagrant.box import Box, BoxGuest, BoxLogin, UserBox, learn_host_key
from raidproof.provider.vagrant.libvirt import Libvirt
from raidproof.provider.vagrant.machine import (
    CANNOT_PROVE,
    EMULATED,
    NAME,
    USERS,
    USERS_POWEROFF,
    Guest,
    SshConfig,
    Vagrant,
    VagrantPower,
)

HOST_KEY_DEADLINE_S = 60.0
"""Seconds within which a machine of a user's box must present its host key."""


class Vagrants(Provider):
    """Provider ``vagrant``: creates the machines of one lab by Vagrant and libvirt."""

    name = NAME
    boots_together = True

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        """The kernel of each machine, by the machine's name; a machine of a user's box has no entry."""
        self.boxes: dict[str, Box | UserBox] = {}
        """The box of each machine, by the machine's name."""
        self.answer = KvmAnswer(works=False, reason="not tried")
        """Whether KVM can run guests on this host."""
        self._powers: dict[str, VagrantPower] = {}
        self._up_s = 0.0
        self._ways: dict[str, SshConfig] = {}
        """Vagrant's logins to the machines of user's boxes, by the machine's name."""
        self._fitted: dict[str, BoxGuest] = {}

    def prepare(self, topology: Topology) -> None:
        """Fetch and build kernels, images and boxes, and determine whether KVM works.

        Raises:
            RequestError: a requested kernel, image or box does not exist.
            RequirementMissing: the user is not root, or this host lacks Vagrant, libvirt or QEMU.
            RigError: a download or a build failed.
        """
        libvirt.require()
        self.answer = kvm.find_out()
        for machine in topology.machines:
            asked = machine.software
            box.refuse(asked, NAME)
            if (name := box.asked(asked)) is not None:
                self.boxes[machine.name] = box.find(name)
                continue
            self.kernels[machine.name] = found = kernel.get(asked.kernel, modules=asked.modules, provider=NAME)
            self.boxes[machine.name] = box.get(image.get(asked), found)

    def enclose(self, directory: Path) -> Namespace:
        """Return the namespaces for a lab's network and processes, with folders of its own for libvirt."""
        return Namespace(directory, folders=libvirt.folders(directory))

    def furnish(self, site: Site) -> None:
        """Start libvirt with the lab's network, and let Vagrant create and boot all machines."""
        own = Libvirt(site.namespace, site.directory, site.logs)
        own.start(site.topology, {spec.name: hardware_address(spec) for spec in site.topology.machines})
        key = site.directory / "key"
        key.touch(mode=0o600)
        key.write_text(site.keys.user.private)
        guests = [self._guest(spec, site, key) for spec in site.topology.machines]
        for one in guests:
            poweroff = OWN_POWEROFF if one.config is not None else USERS_POWEROFF
            self._powers[one.spec.name] = VagrantPower(one, own, site.logs, poweroff)
        made = Vagrant(site.namespace, own, site.directory, site.logs, guests)
        made.prepare(self.boxes.values(), accelerated=self.answer.works)
        step("vagrant creates and boots the machines")
        begun = now_ns()
        made.up(list(self._powers.values()))
        self._up_s = (now_ns() - begun) / 1e9
        if self._users:
            self._ways = made.ssh_config()

    def _guest(self, spec: MachineSpec, site: Site, key: Path) -> Guest:
        own, console = self.boxes[spec.name], site.directory / f"{spec.name}.console"
        if isinstance(own, UserBox):
            version = None if own.version == "0" else own.version
            return Guest(spec, own.name, console, version=version, disks=site.members_of(spec))
        return Guest(
            spec,
            own.name,
            console,
            config=site.config_disk(spec.name),
            modules=own.modules,
            arguments=box.arguments(self.kernels[spec.name], *self.accelerator.arguments),
            key=key,
            disks=site.members_of(spec),
        )

    def power(self, spec: MachineSpec, site: Site) -> VagrantPower:  # noqa: ARG002
        """Return the power control of a machine that Vagrant has already booted."""
        return self._powers[spec.name]

    def machine(self, spec: MachineSpec, site: Site) -> Machine:
        """Return a machine. The login to a machine of a user's box is that of Vagrant.

        Raises:
            DeadlineExceeded: a machine of a user's box does not present its host key.
        """
        own = self.boxes[spec.name]
        if not isinstance(own, UserBox):
            return super().machine(spec, site)
        way = self._ways[spec.name]
        deadline = Deadline.after(HOST_KEY_DEADLINE_S)
        # A user's box makes its host key at the first boot, so the first key that the machine presents is pinned.
        key = learn_host_key(site.namespace.socket, way.address, way.port, deadline)
        login = BoxLogin(way.address, way.port, way.user, way.keys, key, site.namespace.socket)
        login.save(site.directory, spec.name)
        members = site.members_of(spec)
        fitted = self._fitted[spec.name] = BoxGuest(str(own), members.serials if members else ())
        machine = Machine(
            spec,
            self.power(spec, site),
            Transport(spec.name, login),
            own_init=False,
            on_boot=lambda: fitted.prepare(machine),
        )
        return machine

    @property
    def _users(self) -> dict[str, UserBox]:
        return {name: one for name, one in self.boxes.items() if isinstance(one, UserBox)}

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator of the machines: KVM if KVM works, else TCG."""
        return self.answer.accelerator

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of this host that run during a lab, by name, each as the start of its command."""
        return {**super().programs, "vagrant": ("vagrant",), "libvirt": ("libvirtd",), "qemu": (PROGRAM,)}

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run with this provider cannot prove."""
        emulated = () if self.answer.works else (EMULATED,)
        return (*CANNOT_PROVE, *emulated, *((USERS,) if self._users else ()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the report: the accelerator, the duration of vagrant up, and facts about user's boxes."""
        notes = [f"vagrant with {self.accelerator.name}: {self.answer.reason}"]
        notes.append(f"vagrant up took {self._up_s:.0f} s for all machines")
        notes += [f"{name} runs box {one}, with the box's kernel and packages" for name, one in self._users.items()]
        notes += [
            f"{name}: the box's kernel prints nothing on the serial console, so raidproof does not see kernel errors "
            "of a boot that ended with a crash"
            for name, one in self._fitted.items()
            if one.silent
        ]
        return tuple(notes)
