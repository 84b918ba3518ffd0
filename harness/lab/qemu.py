"""Provider ``qemu``: virtual PCs with any kernel, with KVM or emulated, and the disk engine behind their members."""

from harness.errors import RequirementMissing
from harness.host_packages import QEMU, install_list
from harness.lab.provider import Provider, Site
from harness.machine import image, kernel, kvm
from harness.machine.image import Image
from harness.machine.kernel import Kernel
from harness.machine.kvm import KvmAnswer
from harness.machine.provider import qemu_lacks
from harness.machine.qemu import CANNOT_PROVE, EMULATED, NAME, QemuPower, program_for
from harness.network import tap_name
from harness.topology import MachineSpec, Topology


class Qemu(Provider):
    """Makes the machines of one lab."""

    name: str = NAME

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        """By the machine's name."""
        self.images: dict[str, Image] = {}
        self._kvm = KvmAnswer(works=False, reason="not tried yet")
        self._program: tuple[str, ...] = ()

    def prepare(self, topology: Topology) -> None:
        """Fetch kernels and images, and find out whether KVM works.

        Raises:
            RequestError: there is no such kernel or image.
            RequirementMissing: this host has no QEMU.
        """
        if (lacks := qemu_lacks()) is not None:
            raise RequirementMissing(f"provider qemu: {lacks}", remedy=install_list(QEMU))
        for machine in topology.machines:
            asked = machine.software
            self.kernels[machine.name] = kernel.get(asked.kernel, modules=asked.modules, provider=NAME)
            self.images[machine.name] = image.get(asked)
        self._kvm = kvm.find_out(self.kernels[topology.server.name])
        self._program = program_for(self._kvm.accelerator)

    def power(self, spec: MachineSpec, site: Site) -> QemuPower:
        """Return the switch of a machine."""
        return QemuPower(
            spec,
            self.kernels[spec.name],
            self.images[spec.name],
            site.directory,
            site.logs,
            site.enclosure,
            tap_name(spec.name),
            self._kvm.accelerator,
            self._program,
            disks=site.members_of(spec),
        )

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run on it says nothing about."""
        return CANNOT_PROVE if self._kvm.works else (*CANNOT_PROVE, EMULATED)

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of this host that take part; of QEMU the one that the machines run by."""
        return {**super().programs, "qemu": self._program}

    @property
    def notes(self) -> tuple[str, ...]:
        """With what the machines ran."""
        how = "KVM" if self._kvm.works else "emulated processors (TCG): KVM does not work here"
        said = f"qemu with {how}: {self._kvm.reason}"
        # Requested by nobody, so it has to be said.
        words = " ".join(self._kvm.accelerator.arguments)
        return (said, f"emulated kernels are booted with {words}") if words else (said,)
