"""Builds the initramfs of a kernel for PCs, and the image of a kernel's modules."""

import gzip
import lzma
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import CommandFailed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import step
from raidproof.core.units import MIB
from raidproof.image import apt, cache, recipe

SUFFIXES = (".ko", ".ko.xz", ".ko.gz", ".ko.zst")
"""The suffixes of the files of modules."""

INIT = recipe.VMS / "initramfs" / "init"
"""The script that is the first process of the initramfs."""
SUITE = "trixie"
"""The Debian suite from which the static busybox of the initramfs is downloaded."""
REQUIRED = ("virtio_pci", "virtio_blk", "ext4")
"""The modules without which the initramfs cannot mount the root file system; they may be built into the kernel."""
WANTED = (
    *("crc32c_generic", "crc32c_intel", "crc32c_cryptoapi"),  # ext4 requests these by an alias
    *("virtio_net", "virtio_rng"),
)
"""Further modules that the initramfs loads, if they exist."""
UP = "raidproof-initramfs: the kernel is up"
"""The first line that the initramfs prints on the console."""
TRIAL = "raidproof.trial"
"""Argument on the kernel's command line that makes the initramfs print `UP` and power the machine off."""


def make_image(tree: Path, image: Path) -> None:
    """Make an ext4 image of the folder ``tree``, which has a folder of modules for each kernel release.

    The image is read-only: it has little free space and no journal.

    Raises:
        RequirementMissing: this host has no mkfs.ext4.
        RigError: the file system of ``image`` is full, or mkfs.ext4 fails.
    """
    used = sum(path.lstat().st_size + 4096 for path in tree.rglob("*"))
    size = used + used // 16 + 8 * MIB
    options = ["-q", "-F", "-m", "0", "-O", "^has_journal"]
    completed = command.run(["mkfs.ext4", *options, "-d", tree, image, f"{size // 1024}k"])
    if not completed.ok:
        if "No space left on device" in completed.stderr:
            raise cache.no_room(image.parent)
        raise CommandFailed(completed)


def index(tree: Path, release: str) -> None:
    """Write modules.dep and the other files of depmod(8) for ``tree/lib/modules/release``; packages lack these files.

    Raises:
        RequirementMissing: this host has no depmod.
    """
    command.succeed(["depmod", "--basedir", tree, release], deadline_s=300)


def plain_name(path: str | Path) -> str:
    """Return the name of a module from the name of its file, with underscores for hyphens as the kernel does."""
    return Path(path).name.partition(".ko")[0].replace("-", "_")


@dataclass
class ModuleFolder:
    """A folder with the modules of one kernel release (``lib/modules/RELEASE``)."""

    path: Path
    _files: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._files = {plain_name(path): path for path in self.path.rglob("*.ko*") if path.name.endswith(SUFFIXES)}
        builtin = self.path / "modules.builtin"
        self.builtin = set(map(plain_name, builtin.read_text().split())) if builtin.exists() else set[str]()

    def has(self, name: str) -> bool:
        """Return whether the kernel has the module ``name``, as a file or built in."""
        return plain_name(name) in self._files or plain_name(name) in self.builtin

    def file_of(self, name: str) -> Path | None:
        """Return the file of the module ``name``; None if the module does not exist or is built into the kernel."""
        return self._files.get(plain_name(name))

    def inside(self, folders: Iterable[str]) -> list[str]:
        """Return the names of the modules in ``folders``, such as ``kernel/fs``, and in their subfolders."""
        above = tuple(self.path / folder for folder in folders)
        return sorted(name for name, file in self._files.items() if any(file.is_relative_to(one) for one in above))

    def unmet(self) -> list[str]:
        """Return ``MODULE needs NAME`` for each dependency of a module that the folder and the kernel lack."""
        found = (
            (name, one) for name, file in sorted(self._files.items()) for one in _required(file) if not self.has(one)
        )
        return [f"{name} needs {one}" for name, one in found]

    def needed(self, names: Iterable[str]) -> list[Path]:
        """Return the files of the modules ``names`` and of their dependencies, each after its own dependencies.

        Modules that are built in or do not exist are left out. Each file is decompressed in place, because
        decompression takes an emulated CPU seconds.
        """
        found: dict[str, Path] = {}
        for name in names:
            self._visit(plain_name(name), found, set())
        return list(found.values())

    def _visit(self, name: str, found: dict[str, Path], above: set[str]) -> None:
        if name in found or name in above or name not in self._files:
            return
        self._files[name] = unpack(self._files[name])
        for other in dependencies(self._files[name].read_bytes()):
            self._visit(other, found, above | {name})
        found[name] = self._files[name]


def unpack(path: Path) -> Path:
    """Replace the compressed file of a module by a decompressed one; return the path of the decompressed file."""
    plain = path.with_name(path.name.partition(".ko")[0] + ".ko")
    match path.suffix:
        case ".xz":
            plain.write_bytes(lzma.decompress(path.read_bytes()))
        case ".gz":
            plain.write_bytes(gzip.decompress(path.read_bytes()))
        case ".zst":
            command.succeed(["zstd", "--quiet", "--decompress", "-o", plain, path])
        case _:
            return path
    path.unlink()
    return plain


def _required(file: Path) -> Iterator[str]:
    # Of uncompressed modules only: those that this project or a user builds.
    if file.suffix == ".ko":
        found = re.search(rb"(?<=\0)depends=([^\0]*)\0", b"\0" + file.read_bytes())
        yield from (plain_name(one) for one in (found[1].decode() if found else "").split(",") if one)


def dependencies(module: bytes) -> Iterator[str]:
    """Yield the names of the modules on which a module depends: ``depends`` and ``softdep=pre`` in its .modinfo."""
    for found in re.finditer(rb"(?<=\0)(?:depends=([^\0]*)|softdep=pre: ([^\0]*))(?=\0)", b"\0" + module):
        for name in re.split(rb"[, ]+", (found[1] or found[2] or b"").partition(b" post:")[0]):
            if name:
                yield plain_name(name.decode())


def release_of(module: bytes) -> str | None:
    """Return the release of the kernel for which a module was built; None if the bytes are not a module."""
    found = re.search(rb"\0vermagic=([^ \0]+)", b"\0" + module)
    return found[1].decode() if found else None


def busybox() -> Path:
    """Return the path of a static busybox, which runs on this host and in every guest; download it if needed.

    Raises:
        RequirementMissing: Debian's archive keys are not installed on this host.
        RigError: the download failed.
    """

    def fetch(partial: Path) -> None:
        step(f"fetching busybox from Debian {SUITE}")
        scratch = partial / cache.SCRATCH
        scratch.mkdir()
        package = apt.download(SUITE, ["busybox-static"], scratch)["busybox-static"]
        apt.unpack(package, scratch / "tree")
        found = next((path for path in (scratch / "tree").rglob("busybox") if path.parent.name == "bin"), None)
        if found is None:
            raise RigError(f"package {package.name} contains no program busybox")
        found.rename(partial / "busybox")

    return cache.build("busybox", cache.digest("1", SUITE), fetch) / "busybox"


def address() -> str:
    """Return a digest of the inputs that all initramfs have in common, which do not include the kernel's modules."""
    return cache.digest(INIT.read_bytes(), SUITE, *REQUIRED, *WANTED)


def make(name: str, modules: ModuleFolder, scratch: Path, target: Path) -> None:
    """Write the initramfs of a kernel into the file ``target``.

    ``name`` is the kernel's name for messages, ``scratch`` an existing working folder.

    Raises:
        RequestError: the kernel has no driver for virtio disks, or no ext4.
    """
    if absent := [module for module in REQUIRED if not modules.has(module)]:
        raise RequestError(
            f"kernel {name} has no {', '.join(absent)}, built in or as a module",
            remedy="if the kernel is a bzImage, name the folder of its modules too",
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
    # gzip, because its decompression is fast: at each boot an emulated CPU unpacks the initramfs.
    target.write_bytes(gzip.compress((scratch / "initramfs.cpio").read_bytes(), compresslevel=6, mtime=0))


def _pack(tree: Path, archive: Path) -> None:
    """Pack a folder into a cpio archive in the format newc, which kernels read; root is the owner of all files."""
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
