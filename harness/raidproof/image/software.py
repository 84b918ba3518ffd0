"""What a machine really runs: its kernel and its packages, read back from the machine itself."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import RigError

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
