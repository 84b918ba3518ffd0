"""Source trees of the kernel: a git work tree, an unpacked source, a tar archive, or Debian's source of a suite."""

import lzma
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RequestError, nearest
from raidproof.core.log import step
from raidproof.image import apt, cache
from raidproof.image.kernel import catalogue
from raidproof.image.worktree import identity_of

RECIPE_VERSION = "1"
"""Part of the cache address: increase it when the result of an unpacking changes."""
UNPACK_DEADLINE_S = 1800.0
UNNEEDED = (
    *("drivers/gpu/*.[ch]", "drivers/media/*.[ch]", "drivers/staging/*.[ch]", "drivers/infiniband/*.[ch]"),
    *("drivers/net/ethernet/*.[ch]", "drivers/net/wireless/*.[ch]", "drivers/accel/*.[ch]", "drivers/iio/*.[ch]"),
    *("drivers/clk/*.[ch]", "drivers/pinctrl/*.[ch]", "sound/*.[ch]", "arch/[!ux]*/*.[chS]", "arch/*.dts*"),
    *("Documentation/*.rst", "Documentation/*.yaml", "Documentation/*.txt", "tools/testing/*", "tools/perf/*"),
)
"""Patterns of source files that no kernel of User-mode Linux needs: they are not unpacked."""
_VERSION = re.compile(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION)[ \t]*=[ \t]*(\S*)", re.MULTILINE)


@dataclass(frozen=True)
class SourceTree:
    """A source tree of the kernel, and the version and content that it had when it was read."""

    path: Path
    version: str
    """The version that the Makefile names, such as ``6.12.107`` or ``7.2.0-rc3``."""
    identity: str
    """The content, see `raidproof.image.worktree.identity_of`."""

    @property
    def name(self) -> str:
        """Version and content in one word."""
        return f"{self.version}-{self.identity}"


def located(tree: Path) -> Path:
    """Return the absolute path of a source tree; fetch and unpack the source if ``tree`` names an archive or a suite.

    ``tree`` is a folder, a tar archive, or a name of the catalogue such as ``debian/trixie``.

    Raises:
        RequestError: there is no such folder, archive or name.
        RigError: the source cannot be fetched or unpacked.
    """
    found = tree.expanduser()
    if found.is_dir():
        return found.resolve()
    if found.is_file() and ".tar" in found.name:
        status = found.stat()
        address = cache.digest(
            RECIPE_VERSION, *UNNEEDED, str(found.resolve()), f"{status.st_size}.{status.st_mtime_ns}"
        )
        return _top(cache.build("source", address, lambda partial: unpack(found, partial)))
    if str(tree) in catalogue.CATALOGUE.kernels:
        declared = catalogue.user_mode(str(tree))
        address = cache.digest(RECIPE_VERSION, *UNNEEDED, declared.suite, declared.series)
        return _top(cache.build("source", address, lambda partial: _fetch(declared, partial)))
    raise RequestError(
        f"there is no kernel source {tree}",
        remedy="name a folder, a tar archive such as linux-source-6.12.tar.xz, or a suite; "
        + nearest(str(tree), catalogue.CATALOGUE.kernels),
    )


def _top(folder: Path) -> Path:
    return next(path for path in folder.iterdir() if path.is_dir())


def _fetch(declared: catalogue.KernelRecipe, partial: Path) -> None:
    package = f"linux-source-{declared.series}"
    step(f"fetching the source of kernel {declared.series} from Debian {declared.suite}")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    files = apt.download(declared.suite, [package], scratch)
    apt.unpack(files[package], scratch / "package")
    unpack(scratch / "package" / "usr" / "src" / f"{package}.tar.xz", partial)


def unpack(archive: Path, target: Path) -> None:
    """Unpack the source of a kernel into the folder ``target``, without the files of `UNNEEDED`.

    Raises:
        RequestError: the archive cannot be unpacked, or does not consist of one folder.
        RigError: the file system is full.
    """
    step(f"unpacking {archive.name}")
    try:
        with tarfile.open(archive) as content:
            first = content.next()
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        raise RequestError(f"{archive} is not a tar archive that can be read: {error}") from error
    top = first.name.partition("/")[0] if first else ""
    excluded = [f"--exclude={top}/{pattern}" for pattern in UNNEEDED]
    words: list[str | Path] = ["tar", "-C", target, "--anchored", *excluded, "-xf", archive]
    completed = command.run(words, deadline_s=UNPACK_DEADLINE_S)
    if "No space left on device" in completed.stderr:
        raise cache.no_room(target)
    if not completed.ok:
        raise RequestError(f"{archive} cannot be unpacked: {completed.stderr.strip()[-200:]}")
    tops = [path for path in target.iterdir() if path.name != cache.SCRATCH]
    if len(tops) != 1 or not tops[0].is_dir():
        raise RequestError(f"{archive} does not consist of one folder with the source of a kernel")


def read(path: Path) -> SourceTree:
    """Return the version and the content of a source tree.

    Raises:
        RequestError: the folder is not the source of a kernel that has the architecture um.
        RequirementMissing: the folder is a git work tree, and this host has no git.
        RigError: git fails, or the tree changes at the same time.
    """
    try:
        fields = dict(_VERSION.findall((path / "Makefile").read_text(errors="replace")))
    except OSError:
        fields = {}
    if not {"VERSION", "PATCHLEVEL"} <= fields.keys() or not (path / "arch" / "um").is_dir():
        raise RequestError(
            f"{path} is not the source of a kernel: it has no Makefile with a VERSION, or no folder arch/um",
            remedy="name the top folder of the source",
        )
    numbers = [fields[key] for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL") if fields.get(key)]
    version = ".".join(numbers) + fields.get("EXTRAVERSION", "")
    return SourceTree(path, version, identity_of(path))
