"""A machine of provider ``qemu``: emulator, configuration disk, forwarded port, member disks by NBD."""

import io
import json
import re
import shlex
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import paramiko

from raidproof.core import command
from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import step
from raidproof.core.topology import MachineSpec, Role, Topology
from raidproof.core.units import MIB
from raidproof.image import apt, cache
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.machine.login import LabKeys
from raidproof.machine.machine import MemberDisks
from raidproof.namespace.network import hardware_address
from raidproof.provider.guest_power import GuestPower

BLOCK_BYTES = 4096

PROGRAM = "qemu-system-x86_64"
TRUSTED = (10, 0)
"""The oldest version without the known emulation error; versions between 7.2 and this one were not tried."""
SUITE = "trixie"
_PARTS = re.compile(r"qemu-system-(?:x86|common|data)|seabios|lib\S+|zlib1g")
CHUNK = 1 << 16
LOOPBACK = "127.0.0.1"
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


def config_disk(spec: MachineSpec, topology: Topology, keys: LabKeys) -> bytes:
    """Return the archive of one machine's configuration, padded to whole disk blocks."""
    serials = " ".join(disk.serial for disk in topology.disks) if spec.role is Role.SERVER else ""
    environment = {
        "ADDRESS": str(spec.address),
        "ROLE": spec.role.value,
        "SERIALS": serials,
    }
    hosts = "127.0.0.1 localhost\n" + "".join(f"{one.address.ip} {one.name}\n" for one in topology.machines)
    files = {
        "etc/hostname": (spec.name + "\n", 0o644),
        "etc/hosts": (hosts, 0o644),
        "etc/machine-id": (sha256(f"{spec.name} {keys.host.public}".encode()).hexdigest()[:32] + "\n", 0o444),
        "etc/ssh/ssh_host_ed25519_key": (keys.host.private, 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": (keys.host.public, 0o644),
        "root/.ssh/authorized_keys": (keys.user.public, 0o600),
        "etc/raidproof/machine.env": (
            "".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items()),
            0o644,
        ),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            data = content.encode()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    data = buffer.getvalue()
    return data + bytes(-len(data) % BLOCK_BYTES)


def version() -> tuple[int, ...]:
    """Return the version of this host's QEMU.

    Raises:
        RequirementMissing: there is no QEMU.
    """
    said = command.succeed([PROGRAM, "--version"])
    found = re.search(r"version (\d+)\.(\d+)", said)
    if found is None:
        raise RigError(f"{PROGRAM} does not say its version: {said.strip()[:80]}")
    return tuple(map(int, found.groups()))


def for_emulation() -> tuple[str, ...]:
    """Return the words that start a QEMU with correct emulation; fetch one if this host's is too old.

    Raises:
        RequirementMissing, RigError: it cannot be fetched.
    """
    if version() >= TRUSTED:
        return (PROGRAM,)
    folder = cache.build("qemu", cache.digest("1", SUITE, _PARTS.pattern), _fetch)
    # With its own C library and all other libraries, so that it does not depend on this host's.
    libraries = folder / "tree" / "usr" / "lib" / "x86_64-linux-gnu"
    share = folder / "tree" / "usr" / "share"
    return (
        *(str(libraries / "ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:{libraries / 'pulseaudio'}"),
        str(folder / "tree" / "usr" / "bin" / PROGRAM),
        *("-L", str(share / "qemu"), "-L", str(share / "seabios")),
    )


def _fetch(partial: Path) -> None:
    step(f"fetching QEMU from Debian {SUITE}: the emulation of this host's is not to be trusted")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    for package in apt.download_behind(SUITE, "qemu-system-x86", _PARTS, scratch).values():
        apt.unpack(package, partial / "tree")


def forward(transport: paramiko.Transport, connect: Callable[[], socket.socket]) -> int:
    """Forward connections to the returned port on the machine's loopback to the socket that ``connect`` returns.

    The forwarding replaces an earlier one, and ends with the SSH connection.

    Raises:
        paramiko.SSHException: the machine's SSH server does not allow it.
    """

    def accept(channel: paramiko.Channel, _origin: tuple[str, int], _to: tuple[str, int]) -> None:
        threading.Thread(target=_carry, args=(channel, connect), daemon=True, name="forward").start()

    return transport.request_port_forward(LOOPBACK, 0, accept)


def _carry(channel: paramiko.Channel, connect: Callable[[], socket.socket]) -> None:
    """Copy data from the machine until either side ends; send nothing back."""
    with suppress(OSError, EOFError), connect() as heard:
        while data := channel.recv(CHUNK):
            heard.sendall(data)
    channel.close()


class Accelerator(StrEnum):
    """What executes the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"

    @property
    def cpu(self) -> str:
        """The guest's CPU model: this host's own, or the simplest one, which is the fastest to emulate."""
        return "host" if self is Accelerator.KVM else "qemu64,-cx16"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Kernel arguments: CPU mitigations would flush an emulated processor's translations at each system call."""
        return () if self is Accelerator.KVM else ("mitigations=off",)


def bare_machine(
    accelerator: Accelerator,
    memory: int,
    kernel: Kernel,
    arguments: Sequence[str],
    program: Sequence[str] = (PROGRAM,),
) -> list[str]:
    """Return the command of a machine without disks and network; its standard output is the serial console.

    ``memory`` is in bytes; ``program`` are the words that start QEMU. QEMU ends when the guest powers off, restarts or
    panics.

    Raises:
        RequestError: the kernel is not for PCs.
    """
    if kernel.initramfs is None:
        raise RequestError(f"QEMU cannot boot {kernel.name}, a kernel of User-mode Linux")
    options = {Accelerator.KVM: "kvm", Accelerator.TCG: "tcg,thread=multi"}
    append = ["console=ttyS0", "panic=1", "net.ifnames=0", *accelerator.arguments, *kernel.arguments, *arguments]
    return [
        *program,
        *("-no-user-config", "-nodefaults", "-no-reboot"),
        *("-display", "none"),
        *("-machine", "q35,sata=off,smbus=off,usb=off,vmport=off,hpet=off,i8042=off"),
        *("-accel", options[accelerator]),
        *("-cpu", accelerator.cpu),
        *("-m", f"{memory // MIB}M"),
        *("-chardev", "stdio,id=console,signal=off"),
        *("-serial", "chardev:console"),
        *("-kernel", str(kernel.binary)),
        *("-initrd", str(kernel.initramfs)),
        *("-append", " ".join(append)),
    ]


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
    """Return the command that boots a machine; its standard output is the console.

    ``directory`` has its root disk (`overlay_path`) and its configuration disk, ``NAME.config``.

    Raises:
        RequestError: more disks than the machine has slots for, or a kernel that is not for PCs.
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


def program_for(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the words that start QEMU for a machine; fetch one for emulation if this host's is too old."""
    return (PROGRAM,) if accelerator is Accelerator.KVM else for_emulation()


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
        overlay = overlay_path(self.directory, self.spec.name)
        if not overlay.exists():
            command.succeed(overlay_command(self.image.path, overlay))
        if self.disks is not None:
            self.disks.power_on()
        self.boots += 1
        argv = qemu_command(
            self.spec,
            self.kernel,
            self.image,
            self.directory,
            self.tap,
            self.accelerator,
            self.disks,
            self.program,
        )
        self._guest = self.enclosure.spawn(argv, output=self.consoles[-1])
