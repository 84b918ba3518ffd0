"""Builds a module of a User-mode kernel from Debian's source of the same series, with changes of the source."""

import gzip
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import KERNEL, install_line, parse_host_packages
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.log import step
from raidproof.image import apt, cache
from raidproof.image.kernel import catalogue, uml

RECIPE_VERSION = "2"
"""Part of the cache address: increase it when the result of `_build` changes."""
UNNEEDED = (
    *("drivers/*.[ch]", "sound/*.[ch]", "arch/[!ux]*/*.[chS]", "arch/*.dts*"),
    *("Documentation/*.rst", "Documentation/*.yaml", "Documentation/*.txt", "tools/testing/*", "tools/perf/*"),
)
"""Patterns of source files that no module of the kernel needs: three quarters of all files.

Unpacking and removing these files would take longer than building a module.
"""
BUILD_DEADLINE_S = 1800.0


@dataclass(frozen=True)
class Substitution:
    """A replacement of text in the body of one C function."""

    function: str
    """The name of the function."""
    old: str
    """The text to replace."""
    new: str
    """The text that replaces each occurrence of ``old``."""
    count: int = 1
    """How often ``old`` must occur in the function; any other number is an error."""


@dataclass(frozen=True)
class SourceEdit:
    """The changes of one C file of the kernel."""

    file: str
    """The path of the file in the kernel's source."""
    inserted: str
    """Text to insert after the last ``#include`` of the file."""
    substitutions: tuple[Substitution, ...]

    def change(self, folder: Path) -> None:
        """Change the file in a folder with the kernel's source.

        Raises:
            RigError: the file differs from what the edit expects, see `apply`.
        """
        edited = folder / self.file
        edited.write_text(self.apply(edited.read_text()))

    def apply(self, source: str) -> str:
        """Return ``source``, the text of the C file, with the changes.

        Raises:
            RigError: a function does not occur exactly once, the text to replace does not occur `Substitution.count`
                times, or the file has no unconditional last ``#include``.
        """
        for one in self.substitutions:
            source = self._substituted(source, one)
        includes = list(re.finditer(r"^#include .*\n", source, re.MULTILINE))
        if not includes:
            raise RigError(f"{self.file} has no #include, after which the edit could insert text")
        end = includes[-1].end()
        begun, ended = (len(re.findall(rf"^#\s*{word}", source[:end], re.MULTILINE)) for word in ("if", "endif"))
        if begun != ended:
            raise RigError(f"{self.file}: the last #include is conditional, so the edit cannot insert text after it")
        return f"{source[:end]}{self.inserted}{source[end:]}"

    def _substituted(self, source: str, one: Substitution) -> str:
        # In kernel style a name begins a line or follows its type, and a brace in the first column ends a body.
        pattern = rf"^(?:\w[\w *]*[ *])?{one.function}\([^;{{]*\)\s*^{{.*?^}}"
        bodies = list(re.finditer(pattern, source, re.MULTILINE | re.DOTALL))
        if len(bodies) != 1:
            raise RigError(f"{self.file} has {len(bodies)} functions {one.function}, not 1")
        body = bodies[0]
        if (found := body[0].count(one.old)) != one.count:
            raise RigError(f"{self.file}: function {one.function} contains {one.old!r} {found} times, not {one.count}")
        return f"{source[: body.start()]}{body[0].replace(one.old, one.new)}{source[body.end() :]}"


@dataclass(frozen=True)
class SourcePatch:
    """Changes of the kernel's source as a patch in the unified format, with paths such as ``a/drivers/md/md.c``."""

    text: str

    def change(self, folder: Path) -> None:
        """Apply the patch in a folder with the kernel's source.

        Raises:
            RigError: the patch does not match the source.
        """
        ended = command.run(["patch", "--strip=1", "--fuzz=0", "--force", f"--directory={folder}"], stdin=self.text)
        if not ended.ok:
            said = "; ".join(ended.stdout.strip().splitlines())
            raise RigError(f"the patch does not match the kernel's source: {said[-500:]}")


def rebuilt(name: str, module: str, edit: SourceEdit | SourcePatch) -> Path:
    """Return a folder with one module of a User-mode kernel, built from edited source; build it if the cache lacks it.

    ``name`` is the kernel's name in the catalogue, ``module`` the path of the module in the kernel's source, such as
    ``fs/nfsd/nfsd.ko``. The source is of the kernel's patch level, or of the nearest one that Debian keeps.
    The module is built with the kernel's configuration and release string, so that the kernel loads the module. From
    the source of another patch level, the kernel may refuse it, because a structure of the kernel has changed.

    Raises:
        RequestError: the catalogue has no kernel of this name.
        RequirementMissing: this host lacks a program for building a module.
        RigError: the source cannot be fetched, the edit does not match the source, or the compiler fails.
    """
    require_tools()
    release = uml.get(name).release
    declared = catalogue.user_mode(name)
    address = cache.digest(RECIPE_VERSION, declared.suite, release, module, repr(edit))
    return cache.build("module", address, lambda partial: _build(declared, release, module, edit, partial))


def require_tools() -> None:
    """Check that this host has the programs for building a kernel or a module.

    Raises:
        RequirementMissing: a program of vms/host-packages-kernel.txt is missing.
    """
    needed = parse_host_packages(KERNEL.read_text())
    if absent := [one for one in needed if one.command is not None and shutil.which(one.command) is None]:
        raise RequirementMissing(
            f"building a kernel needs {', '.join(str(one.command) for one in absent)}, which this host lacks",
            remedy=install_line(absent),
        )


def _build(
    declared: catalogue.KernelRecipe, release: str, module: str, edit: SourceEdit | SourcePatch, partial: Path
) -> None:
    step(f"fetching the source of kernel {declared.series} from Debian {declared.suite}")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    source_package = f"linux-source-{declared.series}"
    (scratch / "kernel").mkdir()
    files = apt.download(declared.suite, ["user-mode-linux"], scratch / "kernel")
    (scratch / "source").mkdir()
    files[source_package] = apt.download_nearest(declared.suite, source_package, release, scratch / "source")
    apt.unpack(files["user-mode-linux"], scratch / "uml")
    apt.unpack(files[source_package], scratch / "package")
    objects, source = scratch / "objects", scratch / source_package
    objects.mkdir()
    (objects / ".config").write_bytes(config_of(scratch / "uml", release))
    archive = scratch / "package" / "usr" / "src" / f"{source_package}.tar.xz"
    excluded = [f"--exclude={source_package}/{pattern}" for pattern in unneeded(module)]
    command.succeed(["tar", "-C", scratch, "--anchored", *excluded, "-xf", archive], deadline_s=BUILD_DEADLINE_S)
    edit.change(source)

    make_module(source, objects, release, module)
    shutil.copy(objects / module, partial / Path(module).name)
    versions = "".join(f"{package} {apt.version(path)}\n" for package, path in files.items())
    (partial / "versions").write_text(versions)


def make_module(source: Path, objects: Path, release: str, module: str) -> None:
    """Build one module of a User-mode kernel from the tree ``source``; the folder ``objects`` has a ``.config``.

    Raises:
        CommandFailed: the module does not build.
        RequirementMissing: this host has no make.
    """
    step(f"building {module}")
    make: list[str | Path] = [
        "make",
        "-s",
        f"-j{command.processors()}",
        "-C",
        source,
        f"O={objects}",
        *make_words(release),
    ]
    for target in ("olddefconfig", "modules_prepare", module):
        command.succeed([*make, target], deadline_s=BUILD_DEADLINE_S)


def unneeded(module: str) -> list[str]:
    """Return the patterns of source files that ``module`` does not need.

    These are the patterns of `UNNEEDED` outside the module's top folder, which is ``fs`` for ``fs/nfsd/nfsd.ko``; and
    for a driver, the files of drivers in folders with another first letter.
    """
    top, _, rest = module.partition("/")
    patterns = [pattern for pattern in UNNEEDED if pattern.partition("/")[0] != top]
    return [*patterns, f"drivers/[!{rest[0]}]*/*.[ch]"] if top == "drivers" else patterns


def config_of(tree: Path, release: str) -> bytes:
    """Return the configuration in the unpacked package user-mode-linux.

    Raises:
        RigError: the package contains another release than ``release``, or lacks an expected file.
    """
    found = next((tree / "usr/lib/uml/modules").glob("*"), None)
    config = tree / "usr/share/doc/user-mode-linux/config.gz"
    if found is None or not config.is_file():
        raise RigError(f"package user-mode-linux lacks usr/lib/uml/modules/* or {config.relative_to(tree)}")
    if found.name != release:
        raise RigError(
            f"Debian now has User-mode Linux {found.name}, and raidproof's cache has {release}",
            remedy=f"remove {cache.root() / 'kernel'}, so that the new release is fetched",
        )
    return gzip.decompress(config.read_bytes())


def make_words(release: str) -> list[str]:
    """Return the arguments for make(1) that build a module for exactly this release from source of the same series.

    Raises:
        RigError: the release does not have the form of Debian's User-mode kernels, ``6.12.101``.
    """
    found = re.fullmatch(r"\d+\.\d+\.(\d+)", release)
    if found is None:
        raise RigError(f"the release {release!r} of a User-mode kernel is not of the form 6.12.101")
    # KBUILD_MODPOST_WARN: without vmlinux, modpost cannot resolve symbols; modprobe in the guest does, or fails.
    return ["ARCH=um", f"SUBLEVEL={found[1]}", "EXTRAVERSION=", "LOCALVERSION=", "KBUILD_MODPOST_WARN=1"]
