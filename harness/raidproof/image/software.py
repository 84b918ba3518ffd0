"""The software that a machine runs, as the machine reports it; libraries preloaded into User-mode kernels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raidproof.core import command
from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import RigError
from raidproof.image import cache, recipe

_NO_MANAGER = "none"
_QUERY = """\
uname -r
if command -v dpkg-query > /dev/null; then
    echo dpkg
    dpkg-query --show --showformat '${db:Status-Status} ${Package} ${Version}\\n'
elif command -v rpm > /dev/null; then
    echo rpm
    rpm --query --all --queryformat 'installed %{NAME} %{EVR}\\n'
else
    echo none
fi
echo end
"""
"""Read by one shell: on User-mode Linux each further command over SSH costs some ten milliseconds."""


class Machine(Protocol):
    """What is needed of a machine."""

    @property
    def name(self) -> str:
        """Its host name."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command to its end, whatever its status."""


@dataclass(frozen=True)
class Software:
    """What a machine runs."""

    kernel: str
    """The release of the running kernel, as ``uname -r`` has it."""
    packages: dict[str, str]
    """The installed versions by package; of several versions of one package (rpm keeps kernels), the last."""
    manager: str | None
    """Who said so: ``dpkg`` or ``rpm``. None: nobody there knows of packages, so nothing is known about versions."""


def software_of(machine: Machine) -> Software:
    """Read what a machine runs, in one command.

    Raises:
        RigError: it gave no whole answer.
    """
    completed = machine.run(["sh", "-s"], stdin=_QUERY)
    if not completed.ok:
        raise RigError(f"{machine.name}: cannot tell its software: {completed.stderr.strip()[-300:]}")
    return parse_software(completed.stdout)


def parse_software(text: str) -> Software:
    """Read the answer of a machine.

    Raises:
        RigError: it is not whole.
    """
    match text.splitlines():
        case [kernel, manager, *lines, "end"] if manager in {"dpkg", "rpm", _NO_MANAGER}:
            # What dpkg knows of and is not installed has no version, or only left its configuration.
            found = (re.fullmatch(r"installed (\S+) (\S+)", line) for line in lines)
            packages = {match.group(1): match.group(2) for match in found if match}
            return Software(kernel, packages, None if manager == _NO_MANAGER else manager)
    raise RigError(f"the list of a machine's software is not whole: {text[-300:]!r}")


def compile_library(source: Path, library: Path) -> None:
    """Compile a library that needs no C library of its own.

    Raises:
        RequirementMissing: there is no compiler.
        CommandFailed: it does not compile.
    """
    command.succeed(["gcc", "-O2", "-shared", "-fPIC", "-nostdlib", "-o", library, source])


def libraries() -> list[Path]:
    """Return what every kernel of the catalogue needs.

    Not to lose interrupts and alarms, nor its network for want of memory, and disks that can be sent zeroes.
    """
    return [_compiled("epoll"), _compiled("memory"), _compiled("receive"), _compiled("alarm")]


def _compiled(name: str) -> Path:
    source = recipe.VMS / f"{name}.c"
    file = f"{name}.so"
    address = cache.digest(source.read_bytes())
    return cache.build("preload", address, lambda partial: compile_library(source, partial / file)) / file
