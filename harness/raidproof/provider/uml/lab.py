"""Provider ``uml``: machines that are processes, with the disk engine behind their member disks."""

from collections.abc import Mapping

from raidproof.core.errors import RequestError
from raidproof.core.topology import MachineSpec, Topology
from raidproof.image import image, kernel
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.namespace.network import tap_name
from raidproof.provider.provider import Provider, Site
from raidproof.provider.uml.machine import CANNOT_PROVE, NAME, UmlPower, uml_environment


class Uml(Provider):
    """Makes the machines of one lab."""

    name: str = NAME

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        """By the machine's name."""
        self.images: dict[str, Image] = {}
        self._environment: dict[str, Mapping[str, str]] = {}

    def prepare(self, topology: Topology) -> None:
        """Fetch kernels and images.

        Raises:
            RequestError: a machine is to have several CPUs, or what cannot be run.
            RequirementMissing: there is no room for the machines' memory.
        """
        memory = sum(machine.memory for machine in topology.machines)
        for machine in topology.machines:
            if machine.cpus > 1:
                raise RequestError(
                    f"{machine.name}: User-mode Linux has one CPU, not {machine.cpus}", remedy="use provider qemu"
                )
            asked = machine.software
            self.kernels[machine.name] = found = kernel.get(asked.kernel, modules=asked.modules, provider=NAME)
            self.images[machine.name] = image.get(asked)
            self._environment[machine.name] = uml_environment(found, memory)

    def power(self, spec: MachineSpec, site: Site) -> UmlPower:
        """Return the switch of a machine."""
        return UmlPower(
            spec,
            self.kernels[spec.name],
            self.images[spec.name],
            site.directory,
            site.logs,
            site.enclosure,
            tap_name(spec.name),
            self._environment[spec.name],
            disks=site.members_of(spec),
        )

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run on it says nothing about."""
        return CANNOT_PROVE

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of this host that take part."""
        return {**super().programs, "qemu-storage-daemon": ("qemu-storage-daemon",)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Which kernels needed help with this CPU."""
        helped = dict.fromkeys(one.name for one in self.kernels.values() if one.preload is not None)
        return tuple(f"{name} ran with the XSTATE work-around, which this CPU needs" for name in helped)
