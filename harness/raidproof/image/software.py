"""The software of a machine, as the machine reports it; libraries preloaded into User-mode kernels."""

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
"""Read by one shell: on User-mode Linux each further command over SSH costs some 10 ms."""


class Machine(Protocol):
    """The part of a machine that is needed here."""

    @property
    def name(self) -> str:
        """Its host name."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command to its end, whatever its status."""


@dataclass(frozen=True)
class Software:
    """The kernel and the packages of a machine."""

    kernel: str
    """The release of the running kernel, as printed by ``uname -r``."""
    packages: dict[str, str]
    """The installed versions by package; of several versions of one package (rpm keeps kernels), the last."""
    manager: str | None
    """The package manager, ``dpkg`` or ``rpm``. None: there is none, so the versions are unknown."""


def software_of(machine: Machine) -> Software:
    """Read the software of a machine, in one command.

    Raises:
        RigError: the answer is not whole.
    """
    completed = machine.run(["sh", "-s"], stdin=_QUERY)
    if not completed.ok:
        raise RigError(f"{machine.name}: cannot list its software: {completed.stderr.strip()[-300:]}")
    return parse_software(completed.stdout)


def parse_software(text: str) -> Software:
    """Parse the answer of a machine.

    Raises:
        RigError: it is not whole.
    """
    match text.splitlines():
        case [kernel, manager, *lines, "end"] if manager in {"dpkg", "rpm", _NO_MANAGER}:
            # Packages that dpkg lists but that are not installed have no version, or only left their configuration.
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
    """Return the libraries to preload into every kernel of the catalogue.

    They prevent lost interrupts and alarms, keep the network working when memory is short, and let disks write
    the page of zeroes.
    """
    return [_compiled("epoll"), _compiled("memory"), _compiled("receive"), _compiled("alarm")]


def _compiled(name: str) -> Path:
    source = recipe.VMS / f"{name}.c"
    file = f"{name}.so"
    address = cache.digest(source.read_bytes())
    return cache.build("preload", address, lambda partial: compile_library(source, partial / file)) / file
