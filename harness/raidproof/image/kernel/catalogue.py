"""The catalogue of kernels, ``vms/kernels.toml``; a trial boot that shows whether this CPU runs a User-mode kernel."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError, nearest
from raidproof.core.log import step
from raidproof.core.scratch import scratch_folder
from raidproof.image import cache, recipe
from raidproof.image.software import compile_library

PROBE_DEADLINE_S = 30.0
"""Time limit of a trial boot in seconds."""
XSTATE = "ptrace set fp regs failed"
"""The kernel's message on a CPU whose XSAVE area is larger than the kernel expects (docs/kernels.md)."""
_INIT_ENDED = "Attempted to kill init"


@dataclass(frozen=True)
class Kernel:
    """A kernel that is ready to boot a machine: its binary, modules, arguments and environment."""

    name: str
    """The name in the catalogue, or the path of the user's file."""
    release: str
    """The release of the kernel, as printed by ``uname -r``."""
    binary: Path
    """A bzImage, or for User-mode Linux a program of this host."""
    modules_image: Path
    """A read-only ext4 image of the modules, which a machine mounts on /lib/modules."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables of a User-mode kernel's process, in addition to those of the harness."""
    arguments: tuple[str, ...] = ()
    """Arguments for the kernel's command line, on every machine."""
    packages: dict[str, str] = field(default_factory=dict)
    """The versions, by name, of the Debian packages that contain the kernel."""
    initramfs: Path | None = None
    """The initramfs, which mounts the root file system; None for a User-mode kernel, which needs none."""

    @property
    def preload(self) -> Path | None:
        """The library with the XSTATE work-around (docs/kernels.md); None if this CPU runs the kernel without it."""
        path = self.environment.get("LD_PRELOAD")
        return Path(path) if path else None


class KernelRecipe(recipe.Recipe):
    """The kernels of one Debian suite, as listed in ``vms/kernels.toml``."""

    suite: str
    """The suite of the packages, such as ``trixie``."""
    series: str
    """The series of the suite's User-mode Linux, such as ``6.12``."""
    arguments: tuple[str, ...] = ()
    """Arguments for the command line of the suite's User-mode Linux."""


class BuiltModules(recipe.Recipe):
    """Modules that are built on this host for a kernel of Debian: they make a flavour that Debian does not have."""

    flavour: str
    """The flavour of Debian's kernel for which the modules are built."""
    headers: str
    """The metapackage with the headers of the kernel."""
    source: str
    """The package with the source of the modules, in the folder usr/src."""
    component: str
    """The component of the suite in which the source is."""


class Catalogue(recipe.Recipe):
    """The content of ``vms/kernels.toml``."""

    default: str
    """The name of the kernel that a machine has if no kernel is requested for it."""
    default_flavour: str
    """The flavour of a kernel for PCs whose name contains no flavour, such as ``debian/trixie``."""
    flavours: dict[str, str]
    """The metapackage of each flavour of Debian's kernels for PCs."""
    built: dict[str, BuiltModules]
    """The modules that are built on this host, by the name of the flavour that has them."""
    kernels: dict[str, KernelRecipe]
    """The kernels of each suite, by name, such as ``debian/trixie``."""


CATALOGUE = recipe.read(recipe.VMS / "kernels.toml", Catalogue)
DEFAULT = CATALOGUE.default
"""The name of the kernel that a machine has if no kernel is requested for it."""


def user_mode(name: str) -> KernelRecipe:
    """Return the catalogue's entry for a User-mode kernel, such as ``debian/trixie``.

    Raises:
        RequestError: the catalogue has no kernel of this name.
    """
    if name not in CATALOGUE.kernels:
        raise RequestError(f"provider uml has no kernel {name!r}: {nearest(name, CATALOGUE.kernels)}")
    return CATALOGUE.kernels[name]


def metapackage(name: str) -> tuple[str, str]:
    """Return the suite and the metapackage of a kernel for PCs, named ``debian/SUITE`` or ``debian/SUITE/FLAVOUR``.

    Raises:
        RequestError: the catalogue has no kernel of this name.
    """
    known = {
        label: (declared.suite, package)
        for suite, declared in CATALOGUE.kernels.items()
        for flavour, package in _packages().items()
        for label in ([suite] if flavour == CATALOGUE.default_flavour else []) + [f"{suite}/{flavour}"]
    }
    if name not in known:
        raise RequestError(
            f"no kernel {name!r}: {nearest(name, known)}; or the path of a .deb or of a bzImage, such as ./bzImage"
        )
    return known[name]


def _packages() -> dict[str, str]:
    """Return the metapackage of the kernel of each flavour, also of those with modules that are built here."""
    return {**CATALOGUE.flavours, **{name: CATALOGUE.flavours[one.flavour] for name, one in CATALOGUE.built.items()}}


def built_modules(name: str) -> BuiltModules | None:
    """Return the modules that are built for a kernel for PCs of this name; None if Debian has all of its modules."""
    return CATALOGUE.built.get(name.rpartition("/")[2])


def preload_for(name: str, binary: Path, arguments: Sequence[str]) -> Path | None:
    """Return the library with the XSTATE work-around (docs/kernels.md); None if a kernel runs on this CPU without it.

    A trial boot shows whether the kernel needs the work-around; the cache keeps the result.

    Raises:
        RigError: the kernel runs neither with nor without the library.
        RequirementMissing: the kernel needs the work-around, and this host has no compiler.
    """
    source = (recipe.VMS / "xstate.c").read_bytes()
    address = cache.digest(str(binary), *arguments, source, cpu_identity(Path("/proc/cpuinfo").read_text()))

    def find_out(partial: Path) -> None:
        step(f"trying whether kernel {name} runs on this CPU")
        console = boot(binary, arguments, {})
        if reached_user_space(console):
            return
        if XSTATE not in console:
            raise RigError(f"kernel {name} does not run on this host: {last_words(console)}")
        library = partial / "xstate.so"
        compile_library(recipe.VMS / "xstate.c", library)
        console = boot(binary, arguments, {"LD_PRELOAD": str(library)})
        if not reached_user_space(console):
            raise RigError(
                f"kernel {name} does not run on this host, even with the XSTATE work-around: {last_words(console)}"
            )

    library = cache.build("probe", address, find_out) / "xstate.so"
    return library if library.exists() else None


def cpu_identity(cpuinfo: str) -> str:
    """Return the CPU's model and features, and the release of the host's kernel: they determine the XSAVE area's size.

    ``cpuinfo`` is the content of /proc/cpuinfo.
    """
    wanted: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "flags"}:
            wanted.setdefault(key.strip(), value.strip())
    return "\n".join([*wanted.values(), os.uname().release])


def boot(binary: Path, arguments: Sequence[str], environment: dict[str, str]) -> str:
    """Boot a User-mode kernel with this host's files as read-only root, and with /bin/true as init.

    Return the output on the console and on standard error, as one text.
    """
    with scratch_folder("probe") as folder:
        argv: list[str | Path] = [
            "setpriv",
            "--pdeathsig=KILL",
            binary,
            "mem=128M",
            f"uml_dir={folder}",
            "umid=probe",
            "root=/dev/root",
            "rootfstype=hostfs",
            "ro",
            "init=/bin/true",
            "panic=1",
            "con=null",
            "con0=null,fd:1",
            *arguments,
        ]
        try:
            completed = command.run(argv, environment=environment, deadline_s=PROBE_DEADLINE_S)
        except DeadlineExceeded:
            return f"the trial boot of the kernel did not end within {PROBE_DEADLINE_S:g} s"
    return completed.stdout + completed.stderr


def reached_user_space(console: str) -> bool:
    """Return whether a trial boot started init: whether the kernel panicked because /bin/true ended with status 0."""
    return re.search(rf"{_INIT_ENDED}! exitcode=0x00000000", console) is not None


def last_words(console: str) -> str:
    """Return the console line that shows why a kernel ended: the last one with a panic or failure, or the last."""
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    failures = [line for line in lines if "panic" in line.lower() or "failed" in line]
    return (failures or lines or ["no output"])[-1]
