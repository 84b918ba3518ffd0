"""Provider ``qemu``: each machine is a virtual PC of QEMU, accelerated by KVM or emulated; it can boot any kernel."""

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
    "qemu: a machine is a process of this host, so its clock, CPU speed and network vary with the host's load: rates "
    "are comparable only within one run",
    "qemu: a member disk has the latency of its profile, or none without a profile: rates compare configurations, "
    "and do not predict those of a real drive",
    "qemu: all devices are virtio: drivers and firmware of real disks, controllers and network cards do not run",
    "qemu: at a power cut a system disk loses only what QEMU has not yet written to its file on this host; only "
    "member disks have a simulated volatile cache",
)
"""What a run with this provider cannot prove; the report lists these sentences."""
EMULATED = (
    "qemu: CPUs are emulated, at about a tenth of the speed of hardware: measured rates are meaningless, and races "
    "between CPUs occur with another probability than on hardware"
)
"""What a run cannot prove, in addition to `CANNOT_PROVE`, if KVM does not work."""
FIRST_SLOT, LAST_SLOT, FUNCTIONS = 1, 0x1E, 8
"""The free slots of q35's root bus, and PCI functions per slot. Slot 0 is the host bridge, slot 0x1f the chip set."""


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
    """Return the QEMU command that boots a machine, whose console is QEMU's standard output.

    ``directory`` contains the machine's root disk (`overlay_path`) and its configuration disk, ``NAME.config``.

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
    # JSON, because QEMU's KEY=VALUE syntax ends a path at a comma.
    return json.dumps(value, separators=(",", ":"))


def _file(path: Path) -> dict[str, Any]:
    # no-flush: a cut ends only the guest; the host's page cache survives it.
    return {"driver": "file", "filename": str(path), "cache": {"direct": False, "no-flush": True}}


def _raw(path: Path) -> dict[str, Any]:
    # The file is only read; with locking, QEMU would refuse a file that another process has locked.
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
        # The guest's kernel sends flushes only to a disk with a write cache.
        "write-cache": "on",
        "logical_block_size": 512,
    }


def _placed(devices: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Assign a PCI address to each device, eight devices per slot."""
    room = (LAST_SLOT - FIRST_SLOT + 1) * FUNCTIONS
    if len(devices) > room:
        raise RequestError(
            f"provider qemu: the PCI bus of a machine has room for {room} devices, not for {len(devices)}",
            remedy="request fewer member disks",
        )
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
        # The last NUMA node gets the memory that remains after an equal division.
        size = memory if node < spec.numa_nodes - 1 else spec.memory // MIB - memory * node
        words += ["-object", _json({"qom-type": "memory-backend-ram", "id": f"ram{node}", "size": size * MIB})]
        words += ["-numa", f"node,nodeid={node},memdev=ram{node},cpus={node * cpus}-{(node + 1) * cpus - 1}"]
    return words


def overlay_path(directory: Path, machine: str) -> Path:
    """Return the path of the file that stores a machine's writes to its root disk until the lab ends."""
    return directory / f"{machine}.qcow2"


def overlay_command(image: Path, overlay: Path) -> list[str]:
    """Return the command that creates a machine's root disk: an empty qcow2 overlay on a read-only image."""
    return ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image), str(overlay)]


@dataclass
class QemuPower(GuestPower):
    """The power control of a machine that is a QEMU process."""

    program_name: ClassVar[str] = "QEMU"
    accelerator: Accelerator
    program: tuple[str, ...]
    """The start of the QEMU command, from `program_for`."""

    def on(self) -> None:
        """Switch the machine on: first its member disks, then QEMU."""
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
    """Provider ``qemu``: creates the machines of one lab as QEMU processes."""

    name = NAME

    def __init__(self) -> None:
        super().__init__()
        self._kvm = KvmAnswer(works=False, reason="not tried yet")
        self._program: tuple[str, ...] = ()

    def prepare(self, topology: Topology) -> None:
        """Fetch and build the kernel and the image of each machine, and determine whether KVM works.

        Raises:
            RequestError: a requested kernel or image does not exist.
            RequirementMissing: this host lacks QEMU, or a program for building an image or a kernel.
            RigError: a download or a build failed.
        """
        if (lacks := qemu_lacks()) is not None:
            raise RequirementMissing(f"provider qemu: {lacks}", remedy=install_list(QEMU))
        super().prepare(topology)
        self._kvm = kvm.find_out(self.kernels[topology.server.name])
        self._program = program_for(self._kvm.accelerator)

    def power(self, spec: MachineSpec, site: Site) -> QemuPower:
        """Return the power control of a machine that is switched off."""
        name = spec.name
        return QemuPower(spec, self.kernels[name], self.images[name], site, self._kvm.accelerator, self._program)

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run with this provider cannot prove."""
        return CANNOT_PROVE if self._kvm.works else (*CANNOT_PROVE, EMULATED)

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of this host that run during a lab, by name: nbdkit, and the QEMU that runs the machines."""
        return {**super().programs, "qemu": self._program}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the report: the accelerator, the reason for it, and kernel arguments that emulation adds."""
        how = "KVM" if self._kvm.works else "emulated CPUs (TCG), because KVM does not work on this host"
        accelerator = f"qemu with {how}: {self._kvm.reason}"
        words = " ".join(self._kvm.accelerator.arguments)
        return (accelerator, f"kernels on emulated CPUs are booted with {words}") if words else (accelerator,)
