"""Provider ``vagrant``: machines that Vagrant makes with a libvirt of the lab's own, on the disk engine."""

from pathlib import Path

from harness.enclosure import Enclosure
from harness.lab.provider import Site
from harness.log import step
from harness.machine import box, image, kernel, kvm, libvirt
from harness.machine.box import Box
from harness.machine.kernel import Kernel
from harness.machine.kvm import KvmAnswer
from harness.machine.libvirt import Libvirt
from harness.machine.qemu import Accelerator
from harness.machine.uml import hardware_address
from harness.machine.vagrant import CANNOT_PROVE, EMULATED, NAME, Vagrant, VagrantPower
from harness.machine.vagrantfile import Guest
from harness.topology import MachineSpec, Topology


class Vagrants:
    """Makes the machines of one lab."""

    name: str = NAME

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        """By the machine's name."""
        self.boxes: dict[str, Box] = {}
        self.answer = KvmAnswer(works=False, reason="not tried")
        """Whether KVM boots a guest here."""
        self._powers: dict[str, VagrantPower] = {}

    def prepare(self, topology: Topology) -> None:
        """Fetch kernels and images, make boxes of them, and find out whether KVM works.

        Raises:
            RequestError: there is no such kernel or image.
            RequirementMissing: not root, or this host has no Vagrant, libvirt or QEMU.
        """
        libvirt.require()
        self.answer = kvm.find_out()
        for machine in topology.machines:
            asked = machine.software
            self.kernels[machine.name] = found = kernel.get(asked.kernel, modules=asked.modules, provider=NAME)
            self.boxes[machine.name] = box.get(image.get(asked), found)

    def enclose(self, directory: Path) -> Enclosure:
        """Return namespaces for network, processes and libvirt's folders."""
        return Enclosure(directory, folders=libvirt.folders(directory))

    def furnish(self, site: Site) -> None:
        """Start libvirt with the lab's network, and let Vagrant make and boot all machines."""
        own = Libvirt(site.enclosure, site.directory, site.logs)
        own.start(site.topology, {spec.name: hardware_address(spec) for spec in site.topology.machines})
        key = site.directory / "key"
        key.touch(mode=0o600)
        key.write_text(site.keys.user.private)
        guests = [self._guest(spec, site, key) for spec in site.topology.machines]
        self._powers = {one.spec.name: VagrantPower(one, own, site.logs) for one in guests}
        made = Vagrant(site.enclosure, own, site.directory, site.logs, guests)
        made.prepare({one.name: one.folder for one in self.boxes.values()}, accelerated=self.answer.works)
        step("vagrant makes the machines")
        made.up(list(self._powers.values()))

    def _guest(self, spec: MachineSpec, site: Site, key: Path) -> Guest:
        own = self.boxes[spec.name]
        return Guest(
            spec,
            own.name,
            site.directory / f"{spec.name}.console",
            config=site.config_disk(spec.name),
            modules=own.modules,
            arguments=box.arguments(self.kernels[spec.name], *self.accelerator.arguments),
            key=key,
            disks=site.members_of(spec),
        )

    def power(self, spec: MachineSpec, site: Site) -> VagrantPower:  # noqa: ARG002
        """Return the switch of a machine; Vagrant has switched it on for the first time."""
        return self._powers[spec.name]

    @property
    def accelerator(self) -> Accelerator:
        """What executes the guests' instructions."""
        return self.answer.accelerator

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run on it says nothing about."""
        return CANNOT_PROVE if self.answer.works else (*CANNOT_PROVE, EMULATED)

    @property
    def notes(self) -> tuple[str, ...]:
        """With what the machines ran."""
        return (f"vagrant with {self.accelerator.name}: {self.answer.reason}",)
