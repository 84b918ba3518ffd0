"""The kernels in ``vms/kernels.toml``, and a trial boot that shows whether this CPU runs a User-mode kernel."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from raidproof.core import command
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError, nearest
from raidproof.core.log import step
from raidproof.image import cache, recipe
from raidproof.image.software import compile_library

PROBE_DEADLINE_S = 30.0
SCRATCH_PREFIX = "raidproof-probe-"
"""Prefix of the temporary folders of trials."""
XSTATE = "ptrace set fp regs failed"
_INIT_ENDED = "Attempted to kill init"


@dataclass(frozen=True)
class Kernel:
    """A kernel, with all that is needed to boot a machine with it."""

    name: str
    release: str
    """As printed by ``uname -r``."""
    binary: Path
    """A program of this host (User-mode Linux), or a bzImage."""
    modules_image: Path
    """A read-only ext4 image to mount on /lib/modules."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables of the process, in addition to the harness's own."""
    arguments: tuple[str, ...] = ()
    """Arguments for its command line, on every machine."""
    packages: dict[str, str] = field(default_factory=dict)
    """The versions of the packages that contain it."""
    initramfs: Path | None = None
    """Finds and mounts the root; None for a User-mode kernel, which needs none."""

    @property
    def preload(self) -> Path | None:
        """The library with the XSTATE work-around, if the trial boot showed that it is needed."""
        path = self.environment.get("LD_PRELOAD")
        return Path(path) if path else None


class KernelRecipe(recipe.Recipe):
    """The declared kernels of a suite; series and arguments are those of its User-mode Linux."""

    suite: str
    series: str
    arguments: tuple[str, ...] = ()


class Catalogue(recipe.Recipe):
    """The content of ``vms/kernels.toml``."""

    default: str
    default_flavour: str
    flavours: dict[str, str]
    """The metapackage of each flavour of Debian's kernels for PCs."""
    kernels: dict[str, KernelRecipe]


CATALOGUE = recipe.read(recipe.VMS / "kernels.toml", Catalogue)
DEFAULT = CATALOGUE.default


def user_mode(name: str) -> KernelRecipe:
    """Return the User-mode kernel of this name.

    Raises:
        RequestError: there is none.
    """
    if name not in CATALOGUE.kernels:
        raise RequestError(f"no kernel {name!r} for User-mode Linux: {nearest(name, CATALOGUE.kernels)}")
    return CATALOGUE.kernels[name]


def metapackage(name: str) -> tuple[str, str]:
    """Return the suite and the metapackage of a kernel for PCs, by ``debian/SUITE`` or ``debian/SUITE/FLAVOUR``.

    Raises:
        RequestError: there is none.
    """
    known = {
        label: (declared.suite, package)
        for suite, declared in CATALOGUE.kernels.items()
        for flavour, package in CATALOGUE.flavours.items()
        for label in ([suite] if flavour == CATALOGUE.default_flavour else []) + [f"{suite}/{flavour}"]
    }
    if name not in known:
        raise RequestError(
            f"no kernel {name!r}: {nearest(name, known)}; or the path of a .deb or of a bzImage, with a slash in it"
        )
    return known[name]


def preload_for(name: str, binary: Path, arguments: Sequence[str]) -> Path | None:
    """Return the library that this kernel needs preloaded on this CPU, or None if it needs none.

    Raises:
        RigError: it runs neither with nor without the library; with its last console output.
        RequirementMissing: the work-around is needed and there is no compiler.
    """
    source = (recipe.VMS / "xstate.c").read_bytes()
    address = cache.digest(str(binary), *arguments, source, cpu_identity(Path("/proc/cpuinfo").read_text()))

    def find_out(partial: Path) -> None:
        step(f"trying kernel {name} on this CPU")
        console = boot(binary, arguments, {})
        if reached_user_space(console):
            return
        if XSTATE not in console:
            raise RigError(f"kernel {name} does not run here: {last_words(console)}")
        library = partial / "xstate.so"
        compile_library(recipe.VMS / "xstate.c", library)
        console = boot(binary, arguments, {"LD_PRELOAD": str(library)})
        if not reached_user_space(console):
            raise RigError(f"kernel {name} does not run here, with the work-around either: {last_words(console)}")

    library = cache.build("probe", address, find_out) / "xstate.so"
    return library if library.exists() else None


def cpu_identity(cpuinfo: str) -> str:
    """Return what determines the size of the XSAVE area: the CPU's model and features, and the host's kernel."""
    wanted: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "flags"}:
            wanted.setdefault(key.strip(), value.strip())
    return "\n".join([*wanted.values(), os.uname().release])


def boot(binary: Path, arguments: Sequence[str], environment: dict[str, str]) -> str:
    """Boot a kernel with the host's files, read-only, as its root and /bin/true as init; return its console."""
    with TemporaryDirectory(prefix=SCRATCH_PREFIX) as folder:
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
            return f"no end within {PROBE_DEADLINE_S:g} s"
    return completed.stdout + completed.stderr


def reached_user_space(console: str) -> bool:
    """Return whether init ended successfully: /bin/true ends with status 0."""
    return re.search(rf"{_INIT_ENDED}! exitcode=0x00000000", console) is not None


def last_words(console: str) -> str:
    """Return the console line with the likely reason of the end: the panic, or else the last line."""
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    told = [line for line in lines if "panic" in line.lower() or "failed" in line]
    return (told or lines or ["no output"])[-1]
