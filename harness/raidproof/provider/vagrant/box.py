"""Vagrant boxes: raidproof's boxes, built from an image and a kernel; and the user's boxes, prepared for a lab."""

import base64
import json
import os
import re
import shlex
import socket
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from raidproof.core import command
from raidproof.core.errors import RequestError, RequirementMissing, RigError, nearest
from raidproof.core.log import logger, step
from raidproof.core.topology import Role, SoftwareSpec
from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest.keeper.config import SERVER_UNITS
from raidproof.image import cache
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.machine.login import Way, as_root, connect_in_lab, log_in
from raidproof.machine.machine import Machine
from raidproof.provider.hosts.inventory import BY_ID, OURS
from raidproof.provider.hosts.login import require_root
from raidproof.provider.vagrant.libvirt import pool_volume, virtual_size_gib

PROGRAMS = {
    Role.SERVER: {
        "python3": "collects measurements",
        "mdadm": "creates arrays",
        "wipefs": "removes old signatures from the members",
        "blkid": "identifies file systems",
        "lsblk": "reads the stack back",
        "exportfs": "exports file systems",
        "rpc.nfsd": "starts the NFS server",
        "rpc.mountd": "answers mount requests",
        "nfsdcld": "lets clients reclaim their locks after a crash",
        "udevadm": "waits for the links to the members",
    },
    Role.CLIENT: {
        "python3": "runs the workloads",
        "mount.nfs": "mounts the export",
    },
}
"""The programs that a box must have besides a shell and sudo, by the role of the machine, each with its purpose."""
RUNTIME = "/run/raidproof"
"""The folder on a machine for raidproof's agents."""
CONSOLE = "/sys/class/tty/console/active"
"""The file that lists the consoles to which the kernel prints."""
CLIENT_ID = "/sys/module/nfs/parameters/nfs4_unique_id"
"""The kernel parameter that distinguishes NFSv4 clients with the same host name (nfs(5))."""
ASSEMBLY = ("64-md-raid-assembly.rules", "65-md-incremental.rules")
"""The udev rules of distributions that assemble an array when its members appear."""

SCAN_S = 5.0
"""Time limit in seconds for one attempt to read a host key."""
VERSION = "1"
"""Part of the cache address: increase it when the result of `_build` changes."""
BUILD_DEADLINE_S = 600.0
DISK, MODULES, FILE = "box.img", "modules.img", "raidproof.box"
"""The names of a box's files: the disk with the root file system, the image of the kernel's modules, the archive."""
ARGUMENTS = "console=ttyS0 panic=1 net.ifnames=0 raidproof.dhcp"
"""The kernel's command line. `raidproof.dhcp`: the initramfs gets a DHCP lease, by which Vagrant finds a machine."""
_VAGRANTFILE = """\
# The box boots its own kernel without a boot loader; the initramfs finds the root file system by its label.
Vagrant.configure("2") do |config|
  folder = File.expand_path("..", __FILE__)
  config.ssh.username = "root"
  config.ssh.insert_key = false
  config.vm.synced_folder ".", "/vagrant", disabled: true
  config.vm.provider :libvirt do |libvirt|
    libvirt.machine_type = "q35"
    libvirt.kernel = File.join(folder, "vmlinuz")
    libvirt.initrd = File.join(folder, "initramfs")
    libvirt.cmd_line = {arguments}
    modules = File.join(folder, "modules.img").gsub(",", ",,")
    libvirt.qemuargs value: "-blockdev"
    libvirt.qemuargs value: "driver=file,node-name=modules,read-only=on,filename=#{{modules}}"
    libvirt.qemuargs value: "-device"
    libvirt.qemuargs value: "virtio-blk-pci,bus=pcie.0,addr=0x11,drive=modules,serial=modules"
  end
end
"""
PREFIX = "box:"
"""The prefix of a requested image that is a user's box: ``box:NAME``."""
NAME = "vagrant"
"""The name of the only provider that supports boxes."""
_SLASH = "-VAGRANTSLASH-"
"""What Vagrant writes for a slash of a box's name in the name of a folder or volume."""


class BoxGuest:
    """Prepares one machine of a user's box for raidproof, after each boot."""

    def __init__(self, box: str, serials: Sequence[str]) -> None:
        """Store the name of the box, for messages, and the serials of the machine's member disks."""
        self.box = box
        self._serials = serials
        self._known = False
        self.silent = False
        """Whether the machine's kernel prints nothing on the serial console."""

    def prepare(self, machine: Machine) -> None:
        """Change the configuration of the machine; after the first boot, also make changes that survive a reboot.

        Raises:
            RequestError: commands do not run as root.
            RequirementMissing: the box lacks a program; the message names the program and its purpose.
            RigError: a command fails, the box runs nfsd threads, or a member disk has no write cache.
        """
        first, self._known = not self._known, True
        if first:
            require_root(machine)
            self._require_programs(machine)
            self.silent = "ttyS0" not in machine.get(CONSOLE).split()
        machine.succeed(["mkdir", "--parents", RUNTIME])
        machine.run(["dmesg", "--console-level", "debug"])
        if machine.spec.role is Role.SERVER:
            self._serve(machine, first=first)
        else:
            # An NFSv4 server identifies clients by their host names, and machines of one box have the same host name.
            machine.succeed(["modprobe", "nfs"])
            machine.put(machine.name, CLIENT_ID)
        if first:
            # Files of the first boot, such as host keys, must survive a power cut.
            machine.succeed(["sync"])

    def _require_programs(self, machine: Machine) -> None:
        wanted = PROGRAMS[machine.spec.role]
        found = {line.rpartition("/")[2] for line in machine.run(["which", *wanted]).stdout.splitlines()}
        lacks = [f"{program} ({reason})" for program, reason in wanted.items() if program not in found]
        if lacks:
            raise RequirementMissing(
                f"{machine.name}: box {self.box} lacks {', '.join(lacks)}",
                remedy="install these programs in the box and package the box again, or use an image of raidproof",
            )

    def _serve(self, machine: Machine, *, first: bool) -> None:
        # Before the units are masked: systemd cannot stop a masked unit.
        machine.run(["systemctl", "stop", *SERVER_UNITS], deadline_s=60)
        if first:
            # Masked, because the next boot would export before the file system is mounted: clients would get ESTALE.
            machine.succeed(["systemctl", "mask", *SERVER_UNITS], deadline_s=60)
            for rules in ASSEMBLY:
                machine.succeed(["ln", "--symbolic", "--force", "/dev/null", f"/etc/udev/rules.d/{rules}"])
            machine.succeed(["udevadm", "control", "--reload"])
        machine.run(["systemctl", "start", "rpcbind.socket", "rpc_pipefs.target"], deadline_s=60)
        machine.succeed(["modprobe", "nfsd"])
        if not machine.run(["mountpoint", "--quiet", "/proc/fs/nfsd"]).ok:
            machine.succeed(["mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd"])
        if (threads := machine.get("/proc/fs/nfsd/threads").strip()) != "0":
            raise RigError(
                f"{machine.name}: box {self.box} still runs {threads} nfsd threads, not 0, after systemctl stop"
            )
        self._name_members(machine)

    def _name_members(self, machine: Machine) -> None:
        machine.succeed(["udevadm", "settle", "--timeout=60"], deadline_s=90)
        # The machine may have assembled the members at boot. mdadm does not stop an array in use, such as the root's.
        stopped = machine.run(["mdadm", "--stop", "--scan"])
        logger.debug("%s: %s", machine.name, (stopped.stdout + stopped.stderr).strip())
        if not self._serials:
            return
        shown = [f"{BY_ID}virtio-{serial}" for serial in self._serials]
        devices = machine.resolve(shown)
        for serial, device in zip(self._serials, devices, strict=True):
            # A link of our own, because udev removes and recreates its link at each event of the disk.
            machine.succeed(["ln", "--symbolic", "--force", "--no-dereference", device, f"{BY_ID}{OURS}{serial}"])
        caches = [f"/sys/block/{device.removeprefix('/dev/')}/queue/write_cache" for device in devices]
        for serial, path in zip(self._serials, caches, strict=True):
            if (cache := machine.get(path).strip()) != "write back":
                raise RigError(
                    f"{machine.name}: the cache of disk {serial} is {cache!r}, not 'write back', so the kernel would "
                    "send no flushes"
                )


@dataclass(frozen=True)
class BoxLogin:
    """The SSH login to a machine of a user's box, with the user and keys of the box; commands run as root by sudo."""

    address: str
    """The address of the machine on the lab's network."""
    port: int
    user: str
    keys: tuple[Path, ...]
    """The files of private keys that the box accepts."""
    host_key: paramiko.PKey
    """The host key that the machine must present at each connection."""
    make_socket: Callable[[], socket.socket]
    """Returns a new TCP socket on the lab's network."""

    def connect(self) -> socket.socket:
        """Return a connection to the machine's SSH port, on the lab's network.

        Raises:
            OSError: the machine does not accept a connection.
        """
        return connect_in_lab(self.make_socket, self.address, self.port)

    def authenticate(self, client: paramiko.SSHClient, way: Way, timeout_s: float) -> None:
        """Log in; refuse a machine that presents another host key than `host_key`."""
        log_in(
            client,
            way,
            timeout_s,
            self.address,
            host_key=self.host_key,
            port=self.port,
            user=self.user,
            key_files=self.keys,
        )

    def command(self, argv: Sequence[str]) -> str:
        """Return the line that the user's login shell must execute to run a command as root."""
        return shlex.join(argv) if self.user == "root" else as_root(argv)

    def save(self, directory: Path, machine: str) -> None:
        """Write the login into a lab's directory, for later logins to a kept lab."""
        stored: dict[str, Any] = {
            "address": self.address,
            "port": self.port,
            "user": self.user,
            "keys": [str(one) for one in self.keys],
        }
        stored["host_key"] = [self.host_key.get_name(), self.host_key.get_base64()]
        _file(directory, machine).write_text(json.dumps(stored))


def saved(directory: Path, machine: str, make_socket: Callable[[], socket.socket]) -> BoxLogin | None:
    """Return the login that `BoxLogin.save` wrote for a machine of a kept lab; None for raidproof's own boxes."""
    if not (file := _file(directory, machine)).exists():
        return None
    stored = json.loads(file.read_text())
    name, blob = stored["host_key"]
    host_key = paramiko.PKey.from_type_string(name, base64.b64decode(blob))
    keys = tuple(map(Path, stored["keys"]))
    return BoxLogin(stored["address"], stored["port"], stored["user"], keys, host_key, make_socket)


def _file(directory: Path, machine: str) -> Path:
    return directory / f"{machine}.login.json"


def learn_host_key(
    make_socket: Callable[[], socket.socket], address: str, port: int, deadline: Deadline
) -> paramiko.PKey:
    """Return the host key that a machine presents, unverified; call this function once, after the first boot.

    The key can be trusted: the lab's network is in its own namespace, its bridge connects only the lab's machines, and
    DHCP assigns each address to one hardware address. So no other machine can answer.

    Raises:
        DeadlineExceeded: the machine presents no host key before the deadline.
    """
    return wait_until(lambda: _shown(make_socket, address, port), deadline, f"the host key of {address}")


def _shown(make_socket: Callable[[], socket.socket], address: str, port: int) -> paramiko.PKey | None:
    try:
        connection = connect_in_lab(make_socket, address, port)
    except OSError:
        return None
    connection.settimeout(SCAN_S)
    transport = paramiko.Transport(connection)
    try:
        transport.start_client(timeout=SCAN_S)
        return transport.get_remote_server_key()
    except (OSError, EOFError, paramiko.SSHException):
        return None
    finally:
        transport.close()
        connection.close()


@dataclass(frozen=True)
class Box:
    """A box that raidproof has built from an image and a kernel."""

    name: str
    """The name of the box in Vagrant."""
    file: Path
    """The archive of the box, for ``vagrant box add``."""
    folder: Path
    """The unpacked box: its folder in the folder ``boxes`` of a VAGRANT_HOME."""

    @property
    def content(self) -> Path:
        """The folder with the unpacked files of the box."""
        return self.folder / "0" / "libvirt"

    @property
    def images(self) -> tuple[tuple[Path, str], ...]:
        """The file of the box's disk, and the name of the volume to which Vagrant would upload the disk."""
        return ((self.content / DISK, pool_volume(self.name, self.content / DISK, "box")),)

    @property
    def modules(self) -> Path:
        """The image of the modules of the box's kernel."""
        return self.content / MODULES


def get(image: Image, kernel: Kernel) -> Box:
    """Return the box of an image with a kernel; build it if the cache lacks it.

    Raises:
        RequirementMissing: this host lacks Vagrant or qemu-img.
        RigError: a command of the build failed.
    """
    # The paths stand for the contents: a folder's name in the cache is a digest of what it is built from.
    address = cache.digest(VERSION, str(image.path), str(kernel.binary), *kernel.arguments, _VAGRANTFILE, ARGUMENTS)
    name = f"raidproof/{image.name.replace('/', '-')}-{address[:8]}"
    folder = cache.build("box", address, lambda partial: _build(name, image, kernel, partial))
    return Box(name, folder / FILE, folder / "boxes" / name.replace("/", _SLASH))


def arguments(kernel: Kernel, *more: str) -> str:
    """Return the command line of the kernel of a machine of raidproof's box; ``more`` are further arguments."""
    return " ".join([ARGUMENTS, *kernel.arguments, *more])


def vagrantfile(kernel: Kernel) -> str:
    """Return the content of the Vagrantfile in a box, which defines how a machine of the box boots."""
    return _VAGRANTFILE.format(arguments=json.dumps(arguments(kernel)))


def metadata(size_gib: int) -> str:
    """Return the content of metadata.json in a box, which describes the box's disk for vagrant-libvirt."""
    return json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": size_gib})


def _build(name: str, image: Image, kernel: Kernel, partial: Path) -> None:
    step(f"making a Vagrant box of image {image.name} with kernel {kernel.release}")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    if kernel.initramfs is None:
        raise RigError(f"kernel {kernel.name} has no initramfs, so it cannot be put into a Vagrant box")
    disk = scratch / DISK
    # Without locking: User-mode Linux locks images that it only reads, and QEMU takes the lock for that of a writer.
    source = f"driver=raw,file.driver=file,file.locking=off,file.filename={str(image.path).replace(',', ',,')}"
    command.succeed(["qemu-img", "convert", "--image-opts", source, "-O", "qcow2", disk], deadline_s=BUILD_DEADLINE_S)
    (scratch / "metadata.json").write_text(metadata(virtual_size_gib(disk)))
    (scratch / "Vagrantfile").write_text(vagrantfile(kernel))
    files = {
        "metadata.json": scratch / "metadata.json",
        "Vagrantfile": scratch / "Vagrantfile",
        "vmlinuz": kernel.binary,
        "initramfs": kernel.initramfs,
        MODULES: kernel.modules_image,
        DISK: disk,
    }
    with tarfile.open(partial / FILE, "w") as archive:
        for inside, file in files.items():
            archive.add(file, inside)
    step("adding the box to raidproof's own VAGRANT_HOME")
    home = scratch / "home"
    command.succeed(
        ["vagrant", "box", "add", "--provider", "libvirt", "--name", name, partial / FILE],
        environment={**environment(home), "VAGRANT_CWD": str(scratch)},
        deadline_s=BUILD_DEADLINE_S,
    )
    (home / "boxes").rename(partial / "boxes")


def environment(home: Path) -> dict[str, str]:
    """Return the environment in which Vagrant uses the folder ``home`` as VAGRANT_HOME, and checks for no updates."""
    return {
        "VAGRANT_HOME": str(home),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
        "VAGRANT_BOX_UPDATE_CHECK_DISABLE": "1",
        "VAGRANT_DEFAULT_PROVIDER": "libvirt",
        "VAGRANT_NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


@dataclass(frozen=True)
class UserBox:
    """One version of a user's box for libvirt, which ``vagrant box add`` has fetched."""

    name: str
    """The name of the box in Vagrant."""
    version: str
    """The version of the box; ``0``: the box was added from a file, without a version."""
    folder: Path
    """The folder with all versions of the box, in the folder ``boxes`` of a VAGRANT_HOME."""
    content: Path
    """The folder with the unpacked files of this version."""

    @property
    def images(self) -> tuple[tuple[Path, str], ...]:
        """The file of the box's disk, and the name of the volume to which Vagrant would upload the disk.

        raidproof uploads this file in place of Vagrant. Empty for a box with several disks: Vagrant uploads them.
        """
        described = json.loads((self.content / "metadata.json").read_text())
        disk = self.content / "box.img"
        return () if described.get("disks") else ((disk, pool_volume(self.name, disk, "box", self.version)),)

    def __str__(self) -> str:
        return self.name if self.version == "0" else f"{self.name} {self.version}"


def asked(software: SoftwareSpec) -> str | None:
    """Return the name of the box that is requested for a machine; None if no box is requested."""
    image = software.image or ""
    return image.removeprefix(PREFIX) if image.startswith(PREFIX) else None


def refuse(software: SoftwareSpec, provider: str) -> None:
    """Refuse a box that is requested together with a kernel or packages, or of another provider than ``vagrant``.

    Raises:
        RequestError: the box is requested in one of these ways, or does not exist.
    """
    if (name := asked(software)) is None:
        return
    if provider != NAME:
        raise RequestError(
            f"{software.image}: provider {provider} does not support boxes",
            remedy=f"use provider {NAME}, or request another image",
        )
    others = {"kernel": software.kernel, "modules": software.modules, "packages": software.packages}
    if also := [what for what, value in others.items() if value]:
        raise RequestError(
            f"{software.image} has its own kernel and packages, and cannot be combined with the requested "
            f"{', '.join(also)}",
            remedy=f"request the box alone, or an image of raidproof with {', '.join(also)}",
        )
    find(name)


def boxes() -> Path:
    """Return the folder ``boxes`` of the user's VAGRANT_HOME."""
    return Path(os.environ.get("VAGRANT_HOME") or "~/.vagrant.d").expanduser() / "boxes"


def names() -> list[str]:
    """Return the names of the user's boxes for libvirt."""
    found = boxes().glob("*") if boxes().is_dir() else ()
    return sorted(folder.name.replace(_SLASH, "/") for folder in found if _contents(folder))


def find(name: str) -> UserBox:
    """Return the newest version of a user's box for libvirt.

    Raises:
        RequestError: the user has no box of this name for libvirt.
    """
    known = names()
    if not known:
        raise RequestError(
            f"no box {name!r}: {boxes()} has no boxes for libvirt",
            remedy="add a box: vagrant box add --provider libvirt NAME",
        )
    if name not in known:
        raise RequestError(f"no box {name!r} for libvirt in {boxes()}", remedy=nearest(name, known))
    folder = boxes() / name.replace("/", _SLASH)
    content = max(_contents(folder), key=lambda one: _order(_version(folder, one)))
    return UserBox(name, _version(folder, content), folder, content)


def _contents(folder: Path) -> list[Path]:
    # Folders BOX/VERSION/libvirt or, since Vagrant 2.4, BOX/VERSION/ARCHITECTURE/libvirt.
    found = [file for pattern in ("*", "*/*") for file in folder.glob(f"{pattern}/libvirt/metadata.json")]
    return sorted(file.parent for file in found)


def _version(folder: Path, content: Path) -> str:
    return content.relative_to(folder).parts[0]


def _order(version: str) -> list[int]:
    """Return a sort key that orders versions as RubyGems does: 1.0.pre is before 1.0."""
    return [*(int(part) if part.isdecimal() else -1 for part in re.split(r"[.-]", version)), 0]
