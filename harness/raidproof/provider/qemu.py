"""Provider ``qemu``: virtual PCs with any kernel, KVM or emulated, with the disk engine behind their members."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from raidproof.core import command
from raidproof.core.command import QEMU, install_list
from raidproof.core.errors import RequestError, RequirementMissing
from raidproof.core.topology import MachineSpec, Topology
from raidproof.core.units import MIB
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.machine.machine import MemberDisks
from raidproof.namespace.network import hardware_address, tap_name
from raidproof.provider import kvm
from raidproof.provider.kvm import PROGRAM, Accelerator, KvmAnswer, bare_machine, program_for, qemu_lacks
from raidproof.provider.provider import GuestPower, GuestProvider, Site

NAME = "qemu"
CANNOT_PROVE = (
    "qemu: the guest's clock, CPU speed and network are those of a process: MB/s compare only within a run",
    "qemu: disks are simulated from their profiles, and without one have no mechanics at all: rates compare "
    "configurations, and prove nothing of a particular drive",
    "qemu: drivers and firmware of the deployed machine's disks, controllers and network do not run: all is virtio",
    "qemu: system disks are files of this host, and lose at a cut what QEMU had not written; only member disks lose "
    "their caches as disks do",
)
EMULATED = (
    "qemu: processors are emulated, at about a tenth of the speed: rates say nothing, and races between CPUs show "
    "with other odds than on hardware"
)
"""What emulation cannot prove, in addition."""
FIRST_SLOT, LAST_SLOT, FUNCTIONS = 1, 0x1E, 8
"""Slots of q35's root bus: slot 0 is the host bridge, slot 0x1f the chip set."""


def qemu_command(
    spec: MachineSpec,
    kernel: Kernel,
    image: Image,
    directory: Path,
    tap: str,
    accelerator: Accelerator,
    disks: MemberDisks | None = None,
    program: Sequence[str] = (PROGRAM,),
) -> list[str]:
    """Return the QEMU command that boots a machine, with the console on standard output.

    ``directory`` has its root disk (`overlay_path`) and its configuration disk, ``NAME.config``.

    Raises:
        RequestError: the PCI bus has too few addresses for the disks, or the kernel is a User-mode Linux kernel.
    """
    drives = [
        _drive(
            "root", {"driver": "qcow2", "file": _file(overlay_path(directory, spec.name)), "backing": _raw(image.path)}
        ),
        _drive("modules", _raw(kernel.modules_image)),
        _drive("config", _raw(directory / f"{spec.name}.config")),
    ]
    if disks is not None:
        drives += [_member(serial, disks.engine_socket) for serial in disks.serials]
    network = {"driver": "virtio-net-pci", "netdev": "lab", "mac": hardware_address(spec), "romfile": ""}
    noise = {"driver": "virtio-rng-pci", "rng": "noise"}
    devices = [network, noise, *(device for _, device in drives)]
    return [
        *bare_machine(accelerator, spec.memory, kernel, (), program),
        *("-name", spec.name),
        *_processors(spec),
        *("-netdev", f"tap,id=lab,ifname={tap},script=no,downscript=no"),
        *("-object", _json({"qom-type": "rng-random", "id": "noise", "filename": "/dev/urandom"})),
        *(word for node, _ in drives for word in ("-blockdev", _json(node))),
        *(word for device in _placed(devices) for word in ("-device", _json(device))),
    ]


def _json(value: Mapping[str, Any]) -> str:
    # In QEMU's other option syntax, commas in a path have a meaning.
    return json.dumps(value, separators=(",", ":"))


def _file(path: Path) -> dict[str, Any]:
    # The host itself does not fail: its page cache outlives the guest.
    return {"driver": "file", "filename": str(path), "cache": {"direct": False, "no-flush": True}}


def _raw(path: Path) -> dict[str, Any]:
    # The file is only read, so a lock of another process does not matter.
    return {"driver": "raw", "read-only": True, "file": {**_file(path), "locking": "off"}}


def _drive(serial: str, node: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"node-name": serial, **node}, {"driver": "virtio-blk-pci", "drive": serial, "serial": serial}


def _member(serial: str, socket: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    name = f"member-{serial}"
    server = {"type": "unix", "path": str(socket)}
    node = {"driver": "nbd", "node-name": name, "server": server, "export": serial, "discard": "unmap"}
    return node, {
        "driver": "virtio-blk-pci",
        "drive": name,
        "serial": serial,
        "num-queues": 1,
        # Otherwise the guest sends no flush.
        "write-cache": "on",
        "logical_block_size": 512,
    }


def _placed(devices: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Assign each device its address on the bus, eight to a slot."""
    room = (LAST_SLOT - FIRST_SLOT + 1) * FUNCTIONS
    if len(devices) > room:
        raise RequestError(f"a machine has room for {room} devices, not for {len(devices)}")
    for number, device in enumerate(devices):
        slot, function = divmod(number, FUNCTIONS)
        place = {"addr": f"{slot + FIRST_SLOT:#x}.{function}", "multifunction": function == 0}
        yield {**device, "disable-legacy": "on", "bus": "pcie.0", **place}


def _processors(spec: MachineSpec) -> list[str]:
    words = ["-smp", f"cpus={spec.cpus},sockets={spec.numa_nodes},maxcpus={spec.cpus}"]
    if spec.numa_nodes == 1:
        return words
    cpus, memory = spec.cpus // spec.numa_nodes, spec.memory // MIB // spec.numa_nodes
    for node in range(spec.numa_nodes):
        # The last node gets the remainder, so that the sum is the whole memory.
        size = memory if node < spec.numa_nodes - 1 else spec.memory // MIB - memory * node
        words += ["-object", _json({"qom-type": "memory-backend-ram", "id": f"ram{node}", "size": size * MIB})]
        words += ["-numa", f"node,nodeid={node},memdev=ram{node},cpus={node * cpus}-{(node + 1) * cpus - 1}"]
    return words


def overlay_path(directory: Path, machine: str) -> Path:
    """Return the file with a machine's writes to its root; it exists as long as the lab."""
    return directory / f"{machine}.qcow2"


def overlay_command(image: Path, overlay: Path) -> list[str]:
    """Return the command that makes a machine's root: an empty overlay above a read-only image."""
    return ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image), str(overlay)]


@dataclass
class QemuPower(GuestPower):
    """The power of a machine that is a QEMU process."""

    program_name: ClassVar[str] = "QEMU"
    accelerator: Accelerator
    program: tuple[str, ...]
    """The words that start QEMU, from `program_for`."""

    def on(self) -> None:
        """Switch the disks on, then start QEMU."""
        overlay = overlay_path(self.site.directory, self.spec.name)
        if not overlay.exists():
            command.succeed(overlay_command(self.image.path, overlay))
        if self.disks is not None:
            self.disks.power_on()
        self.boots += 1
        directory, tap = self.site.directory, tap_name(self.spec.name)
        argv = qemu_command(
            self.spec, self.kernel, self.image, directory, tap, self.accelerator, self.disks, self.program
        )
        self._guest = self.site.namespace.spawn(argv, output=self.consoles[-1])


class Qemu(GuestProvider):
    """Makes the machines of one lab."""

    name = NAME

    def __init__(self) -> None:
        super().__init__()
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
        super().prepare(topology)
        self._kvm = kvm.find_out(self.kernels[topology.server.name])
        self._program = program_for(self._kvm.accelerator)

    def power(self, spec: MachineSpec, site: Site) -> QemuPower:
        """Return the power switch of a machine."""
        name = spec.name
        return QemuPower(spec, self.kernels[name], self.images[name], site, self._kvm.accelerator, self._program)

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
