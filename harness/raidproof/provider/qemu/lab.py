"""Provider ``qemu``: virtual PCs with any kernel, KVM or emulated, with the disk engine behind their members."""

from raidproof.core.errors import RequirementMissing
from raidproof.core.host_packages import QEMU, install_list
from raidproof.core.topology import MachineSpec, Topology
from raidproof.image import image, kernel
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.namespace.network import tap_name
from raidproof.provider.choice import qemu_lacks
from raidproof.provider.provider import Provider, Site
from raidproof.provider.qemu import kvm
from raidproof.provider.qemu.kvm import KvmAnswer
from raidproof.provider.qemu.machine import CANNOT_PROVE, EMULATED, NAME, QemuPower, program_for


class Qemu(Provider):
    """Makes the machines of one lab."""

    name = NAME

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        """By machine name."""
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
        """Return the power switch of a machine."""
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
        """What a run with this provider cannot prove."""
        return CANNOT_PROVE if self._kvm.works else (*CANNOT_PROVE, EMULATED)

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The host programs that take part, with the QEMU that runs the machines."""
        return {**super().programs, "qemu": self._program}

    @property
    def notes(self) -> tuple[str, ...]:
        """The accelerator with which the machines ran."""
        how = "KVM" if self._kvm.works else "emulated processors (TCG): KVM does not work here"
        said = f"qemu with {how}: {self._kvm.reason}"
        # Not requested by the user, so it must be reported.
        words = " ".join(self._kvm.accelerator.arguments)
        return (said, f"emulated kernels are booted with {words}") if words else (said,)
