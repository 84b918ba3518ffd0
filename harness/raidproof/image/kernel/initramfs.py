"""The first user space of a machine: it finds the root, mounts it, and hands over."""

import gzip
import shutil
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import step
from raidproof.image import apt, cache, recipe
from raidproof.image.kernel.modules import ModuleFolder

INIT = recipe.VMS / "initramfs" / "init"
SUITE = "trixie"
"""Whose busybox it is. It needs no library, so it suits every kernel."""
REQUIRED = ("virtio_pci", "virtio_blk", "ext4")
WANTED = (
    *("crc32c_generic", "crc32c_intel", "crc32c_cryptoapi"),  # ext4 asks for them by an alias
    *("virtio_net", "virtio_rng"),
)
"""What it loads besides, of what there is."""
UP = "raidproof-initramfs: the kernel is up"
"""What it says first on the console."""
TRIAL = "raidproof.trial"
"""On the kernel's command line: say that, and power off."""


def busybox() -> Path:
    """Return a busybox that needs no library; it runs here and in every guest.

    Raises:
        RequirementMissing, RigError: as `raidproof.image.apt.download`.
    """

    def fetch(partial: Path) -> None:
        step(f"fetching busybox from Debian {SUITE}")
        scratch = partial / cache.SCRATCH
        scratch.mkdir()
        package = apt.download(SUITE, ["busybox-static"], scratch)["busybox-static"]
        apt.unpack(package, scratch / "tree")
        found = next((path for path in (scratch / "tree").rglob("busybox") if path.parent.name == "bin"), None)
        if found is None:
            raise RigError(f"{package.name} has no busybox")
        found.rename(partial / "busybox")

    return cache.build("busybox", cache.digest("1", SUITE), fetch) / "busybox"


def address() -> str:
    """Return what an initramfs is made from, besides the kernel's own modules."""
    return cache.digest(INIT.read_bytes(), SUITE, *REQUIRED, *WANTED)


def make(name: str, modules: ModuleFolder, scratch: Path, target: Path) -> None:
    """Make the initramfs of a kernel. ``name`` is for messages, ``scratch`` an existing folder to work in.

    Raises:
        RequestError: the kernel has no driver for the disks or the root file system.
    """
    if absent := [module for module in REQUIRED if not modules.has(module)]:
        raise RequestError(
            f"kernel {name} has no {', '.join(absent)}, built in or as a module",
            remedy="a bzImage needs the folder of its modules too",
        )
    tree, files = scratch / "initramfs", modules.needed([*REQUIRED, *WANTED])
    for folder in ("bin", "dev", "modules", "proc", "root", "sys"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(busybox(), tree / "bin" / "busybox")
    shutil.copy(INIT, tree / "init")
    (tree / "init").chmod(0o755)
    (tree / "bin" / "busybox").chmod(0o755)
    for file in files:
        shutil.copy(file, tree / "modules" / file.name)
    (tree / "modules" / "order").write_text("".join(f"{file.name}\n" for file in files))
    _pack(tree, scratch / "initramfs.cpio")
    # Quick to unpack matters more than small: an emulated processor unpacks it at each boot.
    target.write_bytes(gzip.compress((scratch / "initramfs.cpio").read_bytes(), compresslevel=6, mtime=0))


def _pack(tree: Path, archive: Path) -> None:
    """Pack a folder in the one format that kernels read, as if it were root's."""
    names = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    words: list[str | Path] = [
        "env",
        f"--chdir={tree}",
        busybox(),
        "cpio",
        "-o",
        "-H",
        "newc",
        "-R",
        "0:0",
        "-F",
        archive,
    ]
    command.succeed(words, stdin="".join(f"{name}\n" for name in names))
