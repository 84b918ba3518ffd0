"""A kernel's modules: which ones need which, and the image in which a machine finds them all."""

import gzip
import lzma
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import CommandFailed
from raidproof.core.units import MIB
from raidproof.image import cache

SUFFIXES = (".ko", ".ko.xz", ".ko.gz", ".ko.zst")


def make_image(tree: Path, image: Path) -> None:
    """Make an image of a folder that holds a folder for each release.

    The image is just larger than the modules; it is only read, so it needs no journal.
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
    """Write modules.dep and the like for ``tree/lib/modules/release``: packages come without them.

    Raises:
        RequirementMissing: the host has no depmod.
    """
    command.succeed(["depmod", "--basedir", tree, release], deadline_s=300)


def plain_name(path: str | Path) -> str:
    """Return the name of a module by its file's: the kernel knows no hyphen."""
    return Path(path).name.partition(".ko")[0].replace("-", "_")


@dataclass
class ModuleFolder:
    """The modules of one release (``lib/modules/RELEASE``)."""

    path: Path
    _files: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._files = {plain_name(path): path for path in self.path.rglob("*.ko*") if path.name.endswith(SUFFIXES)}
        builtin = self.path / "modules.builtin"
        self.builtin = set(map(plain_name, builtin.read_text().split())) if builtin.exists() else set[str]()

    def has(self, name: str) -> bool:
        """Whether the kernel has it, as a module or built in."""
        return plain_name(name) in self._files or plain_name(name) in self.builtin

    def file_of(self, name: str) -> Path | None:
        """Return the file of a module; None if there is none, as of one that is built in."""
        return self._files.get(plain_name(name))

    def needed(self, names: Iterable[str]) -> list[Path]:
        """Return the files of these modules and of all that they need, each after what it needs.

        What is built in, and what there is not, is left out. Each file is unpacked in place: an emulated processor
        takes seconds for what costs this one nothing.
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
    """Replace a compressed module by the module itself, and return its path."""
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


def dependencies(module: bytes) -> Iterator[str]:
    """Yield what a module names in its section .modinfo: what must be loaded before it, or should be."""
    for found in re.finditer(rb"(?<=\0)(?:depends=([^\0]*)|softdep=pre: ([^\0]*))(?=\0)", b"\0" + module):
        for name in re.split(rb"[, ]+", (found[1] or found[2] or b"").partition(b" post:")[0]):
            if name:
                yield plain_name(name.decode())


def release_of(module: bytes) -> str | None:
    """Return the release of the kernel that a module was built for; None if this is no module."""
    found = re.search(rb"\0vermagic=([^ \0]+)", b"\0" + module)
    return found[1].decode() if found else None
