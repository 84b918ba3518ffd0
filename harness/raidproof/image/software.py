"""The software that a machine reports; the libraries that are preloaded into kernels of User-mode Linux."""

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
"""A script that prints a machine's software; one script, as each command over SSH costs about 10 ms on ``uml``."""


class Machine(Protocol):
    """The interface of a machine that `software_of` uses."""

    @property
    def name(self) -> str:
        """The host name of the machine."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command, and return its output and its status, which may be a failure."""


@dataclass(frozen=True)
class Software:
    """The kernel and the packages that a machine reports."""

    kernel: str
    """The release of the running kernel, as printed by ``uname -r``."""
    packages: dict[str, str]
    """The installed versions by package name; if rpm lists several versions of a package, the last of them."""
    manager: str | None
    """The package manager, ``dpkg`` or ``rpm``. None: the machine has neither, so the versions are unknown."""


def software_of(machine: Machine) -> Software:
    """Return the kernel and the packages of a machine, read by one command.

    Raises:
        RigError: the command fails, or its output is truncated.
    """
    completed = machine.run(["sh", "-s"], stdin=_QUERY)
    if not completed.ok:
        raise RigError(f"{machine.name}: cannot list the installed packages: {completed.stderr.strip()[-300:]}")
    return parse_software(completed.stdout)


def parse_software(text: str) -> Software:
    """Parse the output of the script that prints a machine's software.

    Raises:
        RigError: the output is truncated.
    """
    match text.splitlines():
        case [kernel, manager, *lines, "end"] if manager in {"dpkg", "rpm", _NO_MANAGER}:
            # dpkg also lists packages that are not installed: removed ones, and names without a version.
            found = (re.fullmatch(r"installed (\S+) (\S+)", line) for line in lines)
            packages = {match.group(1): match.group(2) for match in found if match}
            return Software(kernel, packages, None if manager == _NO_MANAGER else manager)
    raise RigError(f"the list of installed packages of a machine is incomplete; it ends with {text[-300:]!r}")


def compile_library(source: Path, library: Path) -> None:
    """Compile a C file to a shared library without dependencies, for preloading into any kernel of User-mode Linux.

    Raises:
        RequirementMissing: this host has no gcc.
        CommandFailed: gcc fails.
    """
    command.succeed(["gcc", "-O2", "-shared", "-fPIC", "-nostdlib", "-o", library, source])


def libraries() -> list[Path]:
    """Return the libraries to preload into every kernel of User-mode Linux; compile those that the cache lacks.

    They work around defects of User-mode Linux: lost disk interrupts (epoll), lost alarms (alarm), a network that
    stops when memory is short (receive), and vhost-user disks that cannot write the kernel's page of zeroes (memory).
    """
    return [_compiled("epoll"), _compiled("memory"), _compiled("receive"), _compiled("alarm")]


def _compiled(name: str) -> Path:
    source = recipe.VMS / f"{name}.c"
    file = f"{name}.so"
    address = cache.digest(source.read_bytes())
    return cache.build("preload", address, lambda partial: compile_library(source, partial / file)) / file
