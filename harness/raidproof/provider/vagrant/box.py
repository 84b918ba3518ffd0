"""Vagrant boxes: built from raidproof's image and kernel, or the user's boxes, prepared for a lab."""

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
        "python3": "what is measured is collected by a script",
        "mdadm": "it makes the arrays",
        "wipefs": "old signatures are taken off the members",
        "blkid": "file systems are known by it",
        "lsblk": "the stack is read back by it",
        "exportfs": "it exports the file systems",
        "rpc.nfsd": "it starts the NFS server",
        "rpc.mountd": "it answers who may mount",
        "nfsdcld": "without it no client gets its locks back after a crash",
        "udevadm": "it names the members",
    },
    Role.CLIENT: {
        "python3": "the writing clients are scripts",
        "mount.nfs": "it mounts the export",
    },
}
"""The programs that a box must have besides a shell and sudo, each with its purpose."""
RUNTIME = "/run/raidproof"
CONSOLE = "/sys/class/tty/console/active"
CLIENT_ID = "/sys/module/nfs/parameters/nfs4_unique_id"
ASSEMBLY = ("64-md-raid-assembly.rules", "65-md-incremental.rules")
"""udev's rules by which distributions assemble every array that appears."""

SCAN_S = 5.0
"""Seconds for one attempt to read a host key."""
VERSION = "1"
"""Part of the cache address: increase it when the build changes."""
BUILD_DEADLINE_S = 600.0
DISK, MODULES, FILE = "box.img", "modules.img", "raidproof.box"
ARGUMENTS = "console=ttyS0 panic=1 net.ifnames=0 raidproof.dhcp"
"""The kernel's command line. The initramfs requests a DHCP lease, by which Vagrant identifies a machine."""
_VAGRANTFILE = """\
# How this box boots: by its own kernel, without a boot loader. The root is found by its label.
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
"""Prefix of an image's name that is the name of a box."""
NAME = "vagrant"
"""The only provider that supports boxes."""
_SLASH = "-VAGRANTSLASH-"


class BoxGuest:
    """Prepares one machine of a user's box."""

    def __init__(self, box: str, serials: Sequence[str]) -> None:
        """Take the serials of its member disks in ``serials``; only the server has some."""
        self.box = box
        self._serials = serials
        self._known = False
        self.silent = False
        """Whether its kernel prints nothing on the serial console."""

    def prepare(self, machine: Machine) -> None:
        """Redo what a reboot undoes, and at the first boot make the permanent changes.

        Raises:
            RequestError: commands do not run as root.
            RequirementMissing: the box lacks a program; names it and its purpose.
            RigError: a command fails.
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
            # An NFSv4 server identifies clients by their host names, and copies of one box all have the same.
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
                remedy="install what has them and package the box anew, or take an image of ours",
            )

    def _serve(self, machine: Machine, *, first: bool) -> None:
        # Before it is masked: systemd does not know how to stop a masked unit.
        machine.run(["systemctl", "stop", *SERVER_UNITS], deadline_s=60)
        if first:
            # Otherwise the next boot would serve before the file system is mounted, and clients get stale handles.
            machine.succeed(["systemctl", "mask", *SERVER_UNITS], deadline_s=60)
            for rules in ASSEMBLY:
                machine.succeed(["ln", "--symbolic", "--force", "/dev/null", f"/etc/udev/rules.d/{rules}"])
            machine.succeed(["udevadm", "control", "--reload"])
        machine.run(["systemctl", "start", "rpcbind.socket", "rpc_pipefs.target"], deadline_s=60)
        machine.succeed(["modprobe", "nfsd"])
        if not machine.run(["mountpoint", "--quiet", "/proc/fs/nfsd"]).ok:
            machine.succeed(["mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd"])
        if (threads := machine.get("/proc/fs/nfsd/threads").strip()) != "0":
            raise RigError(f"{machine.name}: box {self.box} keeps {threads} nfsd threads of its own")
        self._name_members(machine)

    def _name_members(self, machine: Machine) -> None:
        machine.succeed(["udevadm", "settle", "--timeout=60"], deadline_s=90)
        # The machine may have assembled them at boot. Arrays in use, as that of a root, refuse to stop.
        stopped = machine.run(["mdadm", "--stop", "--scan"])
        logger.debug("%s: %s", machine.name, (stopped.stdout + stopped.stderr).strip())
        if not self._serials:
            return
        shown = [f"{BY_ID}virtio-{serial}" for serial in self._serials]
        devices = machine.resolve(shown)
        for serial, device in zip(self._serials, devices, strict=True):
            # Independent of udev's link, which is removed and recreated at each event of the disk.
            machine.succeed(["ln", "--symbolic", "--force", "--no-dereference", device, f"{BY_ID}{OURS}{serial}"])
        caches = [f"/sys/block/{device.removeprefix('/dev/')}/queue/write_cache" for device in devices]
        for serial, path in zip(self._serials, caches, strict=True):
            if (cache := machine.get(path).strip()) != "write back":
                raise RigError(f"{machine.name}: {serial} has its cache {cache}: nothing would be flushed")


@dataclass(frozen=True)
class BoxLogin:
    """The login by a user's name and keys; commands that need root use sudo."""

    address: str
    port: int
    user: str
    keys: tuple[Path, ...]
    """Private keys that the box accepts."""
    host_key: paramiko.PKey
    """The host key that the machine must present at each connection."""
    make_socket: Callable[[], socket.socket]
    """Makes a TCP socket on the lab's network."""

    def connect(self) -> socket.socket:
        """Connect on the lab's network.

        Raises:
            OSError: the machine does not answer now.
        """
        return connect_in_lab(self.make_socket, self.address, self.port)

    def authenticate(self, client: paramiko.SSHClient, way: Way, timeout_s: float) -> None:
        """Log in; refuse a machine whose host key differs from that of its first boot."""
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
        """Return the command for the login shell, whatever shell that is, as root."""
        return shlex.join(argv) if self.user == "root" else as_root(argv)

    def save(self, directory: Path, machine: str) -> None:
        """Write the login into a lab's directory, for later logins to a kept lab."""
        said: dict[str, Any] = {
            "address": self.address,
            "port": self.port,
            "user": self.user,
            "keys": [str(one) for one in self.keys],
        }
        said["host_key"] = [self.host_key.get_name(), self.host_key.get_base64()]
        _file(directory, machine).write_text(json.dumps(said))


def saved(directory: Path, machine: str, make_socket: Callable[[], socket.socket]) -> BoxLogin | None:
    """Return the login of a machine of a kept lab, with its pinned host key; None if it is not of a user's box."""
    if not (file := _file(directory, machine)).exists():
        return None
    said = json.loads(file.read_text())
    name, blob = said["host_key"]
    host_key = paramiko.PKey.from_type_string(name, base64.b64decode(blob))
    keys = tuple(map(Path, said["keys"]))
    return BoxLogin(said["address"], said["port"], said["user"], keys, host_key, make_socket)


def _file(directory: Path, machine: str) -> Path:
    return directory / f"{machine}.login.json"


def learn_host_key(
    make_socket: Callable[[], socket.socket], address: str, port: int, deadline: Deadline
) -> paramiko.PKey:
    """Return the host key of a machine, without verification: only to be called once, right after its first boot.

    This is safe only here: the lab's network is in its own namespace, its bridge connects only the lab's machines, and
    DHCP assigns each address to one hardware address. So the machine that answers is the right one.

    Raises:
        DeadlineExceeded: the machine did not present one.
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
    """A box that Vagrant can find."""

    name: str
    file: Path
    """The archive, for ``vagrant box add``."""
    folder: Path
    """The unpacked box in the folder ``boxes`` of a VAGRANT_HOME."""

    @property
    def content(self) -> Path:
        """The folder of its files, unpacked."""
        return self.folder / "0" / "libvirt"

    @property
    def images(self) -> tuple[tuple[Path, str], ...]:
        """Its disk with the name under which Vagrant would upload it."""
        return ((self.content / DISK, pool_volume(self.name, self.content / DISK, "box")),)

    @property
    def modules(self) -> Path:
        """The image of its kernel's modules."""
        return self.content / MODULES


def get(image: Image, kernel: Kernel) -> Box:
    """Return the box of an image with a kernel; build it if needed.

    Raises:
        RequirementMissing: a host tool is missing.
        RigError: the build failed; with the reason.
    """
    # Folders of the cache are named by the digest of their content.
    address = cache.digest(VERSION, str(image.path), str(kernel.binary), *kernel.arguments, _VAGRANTFILE, ARGUMENTS)
    name = f"raidproof/{image.name.replace('/', '-')}-{address[:8]}"
    folder = cache.build("box", address, lambda partial: _build(name, image, kernel, partial))
    return Box(name, folder / FILE, folder / "boxes" / name.replace("/", "-VAGRANTSLASH-"))


def arguments(kernel: Kernel, *more: str) -> str:
    """Return the kernel's command line."""
    return " ".join([ARGUMENTS, *kernel.arguments, *more])


def vagrantfile(kernel: Kernel) -> str:
    """Return the Vagrantfile inside a box, which defines how it boots."""
    return _VAGRANTFILE.format(arguments=json.dumps(arguments(kernel)))


def metadata(size_gib: int) -> str:
    """Return the metadata of a box's disk for vagrant-libvirt."""
    return json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": size_gib})


def _build(name: str, image: Image, kernel: Kernel, partial: Path) -> None:
    step(f"making a Vagrant box of image {image.name} with kernel {kernel.release}")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    if kernel.initramfs is None:
        raise RigError(f"kernel {kernel.name} has no initramfs")
    disk = scratch / DISK
    # User-mode Linux locks its read-only image, and QEMU would treat the lock as a writer's.
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
    step("adding the box to a Vagrant home of ours")
    home = scratch / "home"
    command.succeed(
        ["vagrant", "box", "add", "--provider", "libvirt", "--name", name, partial / FILE],
        environment={**environment(home), "VAGRANT_CWD": str(scratch)},
        deadline_s=BUILD_DEADLINE_S,
    )
    (home / "boxes").rename(partial / "boxes")


def environment(home: Path) -> dict[str, str]:
    """Return the environment that confines Vagrant to one home, and prevents checks for updates on the network."""
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
    """One version of a box for libvirt."""

    name: str
    version: str
    """``0`` if it was added from a file, without a version."""
    folder: Path
    """Folder of all its versions, in the folder ``boxes`` of a VAGRANT_HOME."""
    content: Path
    """Folder of its files."""

    @property
    def images(self) -> tuple[tuple[Path, str], ...]:
        """Its disk with the name under which Vagrant would upload it; empty for several, which Vagrant uploads."""
        described = json.loads((self.content / "metadata.json").read_text())
        disk = self.content / "box.img"
        return () if described.get("disks") else ((disk, pool_volume(self.name, disk, "box", self.version)),)

    def __str__(self) -> str:
        return self.name if self.version == "0" else f"{self.name} {self.version}"


def asked(software: SoftwareSpec) -> str | None:
    """Return the name of the requested box of a machine, or None."""
    image = software.image or ""
    return image.removeprefix(PREFIX) if image.startswith(PREFIX) else None


def refuse(software: SoftwareSpec, provider: str) -> None:
    """Refuse impossible requests: a box has its own kernel and packages, and needs Vagrant.

    Raises:
        RequestError: the request is impossible; with the reason.
    """
    if (name := asked(software)) is None:
        return
    if provider != NAME:
        raise RequestError(
            f"{software.image}: provider {provider} has no boxes", remedy=f"--provider {NAME}, or another image"
        )
    others = {"kernel": software.kernel, "modules": software.modules, "packages": software.packages}
    if also := [what for what, value in others.items() if value]:
        raise RequestError(
            f"{software.image} brings its own kernel and packages; asked for besides: {', '.join(also)}",
            remedy="ask for a box, or for the other image with these",
        )
    find(name)


def boxes() -> Path:
    """Return the folder of the user's boxes."""
    return Path(os.environ.get("VAGRANT_HOME") or "~/.vagrant.d").expanduser() / "boxes"


def names() -> list[str]:
    """Return the names of all boxes for libvirt."""
    found = boxes().glob("*") if boxes().is_dir() else ()
    return sorted(folder.name.replace(_SLASH, "/") for folder in found if _contents(folder))


def find(name: str) -> UserBox:
    """Return the newest version of a box.

    Raises:
        RequestError: there is none of that name for libvirt; suggests the nearest.
    """
    known = names()
    if not known:
        raise RequestError(
            f"no box {name!r}: {boxes()} has none for libvirt",
            remedy="add a box: vagrant box add --provider libvirt NAME",
        )
    if name not in known:
        raise RequestError(f"no box {name!r} for libvirt in {boxes()}", remedy=nearest(name, known))
    folder = boxes() / name.replace("/", _SLASH)
    content = max(_contents(folder), key=lambda one: _order(_version(folder, one)))
    return UserBox(name, _version(folder, content), folder, content)


def _contents(folder: Path) -> list[Path]:
    # BOX/VERSION/libvirt; since Vagrant 2.4 boxes of one architecture lie in BOX/VERSION/ARCHITECTURE/libvirt.
    found = [file for pattern in ("*", "*/*") for file in folder.glob(f"{pattern}/libvirt/metadata.json")]
    return sorted(file.parent for file in found)


def _version(folder: Path, content: Path) -> str:
    return content.relative_to(folder).parts[0]


def _order(version: str) -> list[int]:
    """Return a sort key that orders versions as RubyGems does: 1.0.pre is before 1.0."""
    return [*(int(part) if part.isdecimal() else -1 for part in re.split(r"[.-]", version)), 0]
