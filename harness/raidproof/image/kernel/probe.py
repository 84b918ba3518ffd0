"""Whether a User-mode kernel runs on this CPU: it is booted for an instant, and the answer is remembered."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from raidproof.core import command
from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.log import step
from raidproof.image import cache, recipe
from raidproof.image.preload import compile_library

PROBE_DEADLINE_S = 30.0
SCRATCH_PREFIX = "raidproof-probe-"
"""Of the folders for temporary files in which trials run."""
XSTATE = "ptrace set fp regs failed"
_INIT_ENDED = "Attempted to kill init"


def preload_for(name: str, binary: Path, arguments: Sequence[str]) -> Path | None:
    """Return the library that this kernel needs preloaded on this CPU, or None if it runs as it is.

    Raises:
        RigError: it runs neither way; the message has its last words.
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
    """Return what decides the size of the XSAVE area: the CPU's model and features, and the host's kernel."""
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
    """Whether init ran to its end: status 0 is what /bin/true ends with."""
    return re.search(rf"{_INIT_ENDED}! exitcode=0x00000000", console) is not None


def last_words(console: str) -> str:
    """Return the line that says most about the end: the panic, or else the last one."""
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    told = [line for line in lines if "panic" in line.lower() or "failed" in line]
    return (told or lines or ["it said nothing"])[-1]
