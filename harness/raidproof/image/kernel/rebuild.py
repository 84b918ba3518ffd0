"""A module of a kernel, rebuilt from modified source of the same series."""

import gzip
import os
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

RECIPE_VERSION = "1"
"""Part of the cache address: increase it when the result of `_build` changes."""
UNNEEDED = (
    *("drivers/*.[ch]", "sound/*.[ch]", "arch/[!ux]*/*.[chS]", "arch/*.dts*"),
    *("Documentation/*.rst", "Documentation/*.yaml", "Documentation/*.txt", "tools/testing/*", "tools/perf/*"),
)
"""Three quarters of the source's files; unpacking and removing them takes longer than building the module."""
BUILD_DEADLINE_S = 1800.0


@dataclass(frozen=True)
class Substitution:
    """A replacement in the body of one function."""

    function: str
    old: str
    new: str
    count: int = 1
    """How often ``old`` must occur; each occurrence is replaced."""


@dataclass(frozen=True)
class SourceEdit:
    """The changes of one C file."""

    file: str
    """Its path in the kernel's source."""
    inserted: str
    """Text to insert after its last ``#include``."""
    substitutions: tuple[Substitution, ...]

    def apply(self, source: str) -> str:
        """Return the changed text of the file.

        Raises:
            RigError: a function, or the text to replace in it, does not occur as often as expected.
        """
        for one in self.substitutions:
            source = self._substituted(source, one)
        includes = list(re.finditer(r"^#include .*\n", source, re.MULTILINE))
        if not includes:
            raise RigError(f"{self.file} has no #include")
        end = includes[-1].end()
        begun, ended = (len(re.findall(rf"^#\s*{word}", source[:end], re.MULTILINE)) for word in ("if", "endif"))
        if begun != ended:
            raise RigError(f"{self.file}: the last #include is conditional")
        return f"{source[:end]}{self.inserted}{source[end:]}"

    def _substituted(self, source: str, one: Substitution) -> str:
        # In kernel style a name begins a line or follows its type, and a brace in the first column ends a body.
        pattern = rf"^(?:\w[\w *]*[ *])?{one.function}\([^;{{]*\)\s*^{{.*?^}}"
        bodies = list(re.finditer(pattern, source, re.MULTILINE | re.DOTALL))
        if len(bodies) != 1:
            raise RigError(f"{self.file} has {len(bodies)} functions {one.function}, not 1")
        body = bodies[0]
        if (found := body[0].count(one.old)) != one.count:
            raise RigError(f"{self.file}: {one.function} has {one.old!r} {found} times, not {one.count}")
        return f"{source[: body.start()]}{body[0].replace(one.old, one.new)}{source[body.end() :]}"


def rebuilt(name: str, module: str, edit: SourceEdit) -> Path:
    """Return a folder with one module of a User-mode kernel, built from modified source.

    ``name`` is the kernel's in the catalogue, ``module`` the path of the module in the kernel's source. The source is
    of the kernel's series, but may have a later patch level, because Debian keeps few. It is built with the kernel's
    own configuration and release string, so that the kernel loads it.

    Raises:
        RequestError: there is no such kernel.
        RequirementMissing: a program of this host is missing.
        RigError: the source could not be fetched, the edit does not fit, or the compiler fails.
    """
    require_tools()
    release = uml.get(name).release
    declared = catalogue.user_mode(name)
    address = cache.digest(RECIPE_VERSION, declared.suite, release, module, repr(edit))
    return cache.build("module", address, lambda partial: _build(declared, release, module, edit, partial))


def require_tools() -> None:
    """Check that this host can build a module.

    Raises:
        RequirementMissing: it cannot.
    """
    needed = parse_host_packages(KERNEL.read_text())
    if absent := [one for one in needed if one.command is not None and shutil.which(one.command) is None]:
        raise RequirementMissing(
            f"no {', '.join(str(one.command) for one in absent)}, which building a kernel's module takes",
            remedy=install_line(absent),
        )


def _build(declared: catalogue.KernelRecipe, release: str, module: str, edit: SourceEdit, partial: Path) -> None:
    step(f"fetching the source of kernel {declared.series} from Debian {declared.suite}")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    source_package = f"linux-source-{declared.series}"
    files = apt.download(declared.suite, [source_package, "user-mode-linux"], scratch)
    apt.unpack(files["user-mode-linux"], scratch / "uml")
    apt.unpack(files[source_package], scratch / "package")
    objects, source = scratch / "objects", scratch / source_package
    objects.mkdir()
    (objects / ".config").write_bytes(_config(scratch / "uml", release))
    archive = scratch / "package" / "usr" / "src" / f"{source_package}.tar.xz"
    excluded = [f"--exclude={source_package}/{pattern}" for pattern in unneeded(module)]
    command.succeed(["tar", "-C", scratch, "--anchored", *excluded, "-xf", archive], deadline_s=BUILD_DEADLINE_S)
    edited = source / edit.file
    edited.write_text(edit.apply(edited.read_text()))

    step(f"building {module}")
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    make: list[str | Path] = ["make", "-s", jobs, "-C", source, f"O={objects}", *make_words(release)]
    for target in ("olddefconfig", "modules_prepare", module):
        command.succeed([*make, target], deadline_s=BUILD_DEADLINE_S)
    shutil.copy(objects / module, partial / Path(module).name)
    versions = "".join(f"{package} {apt.version(path)}\n" for package, path in files.items())
    (partial / "versions").write_text(versions)


def unneeded(module: str) -> list[str]:
    """Return the patterns of the files that building a module does not need."""
    top = module.partition("/")[0]
    return [pattern for pattern in UNNEEDED if pattern.partition("/")[0] != top]


def _config(tree: Path, release: str) -> bytes:
    """Return the configuration of the unpacked User-mode kernel.

    Raises:
        RigError: its release is not that of the cached kernel, or the package is not laid out as expected.
    """
    found = next((tree / "usr/lib/uml/modules").glob("*"), None)
    config = tree / "usr/share/doc/user-mode-linux/config.gz"
    if found is None or not config.is_file():
        raise RigError("the package user-mode-linux is not laid out as expected")
    if found.name != release:
        raise RigError(
            f"Debian has User-mode Linux {found.name} now, and the cache {release}",
            remedy=f"remove {cache.root() / 'kernel'}: it is fetched again",
        )
    return gzip.decompress(config.read_bytes())


def make_words(release: str) -> list[str]:
    """Return the arguments for make that build a source of the same series for exactly this release.

    Raises:
        RigError: the release does not have the form of Debian's User-mode kernels.
    """
    found = re.fullmatch(r"\d+\.\d+\.(\d+)", release)
    if found is None:
        raise RigError(f"a User-mode kernel of release {release!r}: not of the form 6.12.101")
    # modpost has no vmlinux here for resolving symbols; modprobe resolves them in the guest, or fails.
    return ["ARCH=um", f"SUBLEVEL={found[1]}", "EXTRAVERSION=", "LOCALVERSION=", "KBUILD_MODPOST_WARN=1"]
