"""A Vagrant box of our own: an image of ours with a kernel that boots it, so that nothing has to be downloaded."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RigError
from raidproof.core.log import step
from raidproof.image import cache
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.provider.vagrant.libvirt import pool_volume, virtual_size_gib

VERSION = "1"
"""Part of the address: to be raised when what is built here changes."""
BUILD_DEADLINE_S = 600.0
DISK, MODULES, FILE = "box.img", "modules.img", "raidproof.box"
ARGUMENTS = "console=ttyS0 panic=1 net.ifnames=0 raidproof.dhcp"
"""The kernel's command line. The first user space asks for a lease: Vagrant knows a machine by it."""

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


@dataclass(frozen=True)
class Box:
    """A box that Vagrant can find."""

    name: str
    file: Path
    """The archive, for ``vagrant box add``."""
    folder: Path
    """What that makes of it in the folder ``boxes`` of a VAGRANT_HOME."""

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
    """Return the box of an image with a kernel; build it where that is yet to be done.

    Raises:
        RequirementMissing: a host tool is missing.
        RigError: it could not be built; says why.
    """
    # Folders of the cache are named after what they hold.
    address = cache.digest(VERSION, str(image.path), str(kernel.binary), *kernel.arguments, _VAGRANTFILE, ARGUMENTS)
    name = f"raidproof/{image.name.replace('/', '-')}-{address[:8]}"
    folder = cache.build("box", address, lambda partial: _build(name, image, kernel, partial))
    return Box(name, folder / FILE, folder / "boxes" / name.replace("/", "-VAGRANTSLASH-"))


def arguments(kernel: Kernel, *more: str) -> str:
    """Return the kernel's command line."""
    return " ".join([ARGUMENTS, *kernel.arguments, *more])


def vagrantfile(kernel: Kernel) -> str:
    """Return the Vagrantfile inside a box, which says how to boot it."""
    return _VAGRANTFILE.format(arguments=json.dumps(arguments(kernel)))


def metadata(size_gib: int) -> str:
    """Return what vagrant-libvirt wants to know about a box's disk."""
    return json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": size_gib})


def _build(name: str, image: Image, kernel: Kernel, partial: Path) -> None:
    step(f"making a Vagrant box of image {image.name} with kernel {kernel.release}")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    if kernel.initramfs is None:
        raise RigError(f"kernel {kernel.name} has no initramfs")
    disk = scratch / DISK
    # User-mode Linux locks the image that it reads, and QEMU takes that for a writer.
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
    """Return what keeps Vagrant to one home of its own, and from looking for news on the network."""
    return {
        "VAGRANT_HOME": str(home),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
        "VAGRANT_BOX_UPDATE_CHECK_DISABLE": "1",
        "VAGRANT_DEFAULT_PROVIDER": "libvirt",
        "VAGRANT_NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
