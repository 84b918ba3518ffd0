"""The packages that this host needs of its distribution (lists in vms/), and the line that installs them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RigError

FOLDER = Path(__file__).resolve().parents[1] / "vms"
HOST, WIRE, QEMU, VAGRANT, KERNEL = (
    FOLDER / f"host-packages{suffix}.txt" for suffix in ("", "-wire", "-qemu", "-vagrant", "-kernel")
)
INSTALL = "as root: apt-get update && apt-get install --yes --no-install-recommends"
"""The launcher's own command. Elsewhere than on Debian and Ubuntu, the same packages by their names there."""


@dataclass(frozen=True)
class HostPackage:
    """A line of a list: the packages any of which will do, the command they provide, and what it is for."""

    names: tuple[str, ...]
    command: str | None
    why: str


def parse_host_packages(text: str) -> list[HostPackage]:
    """Read lines of the form ``package|alternative  command  # why``; a command ``-`` is none.

    Raises:
        RigError: a line has another form.
    """
    packages = []
    for number, line in enumerate(text.splitlines(), 1):
        content, _, why = line.partition("#")
        match content.split():
            case []:
                continue
            case [names, command]:
                packages.append(HostPackage(tuple(names.split("|")), None if command == "-" else command, why.strip()))
            case _:
                raise RigError(f"{HOST.name}:{number}: not a package and a command: {line!r}")
    return packages


def install_line(packages: Iterable[HostPackage]) -> str:
    """Return the line to paste that installs packages: of alternatives all, for any release has a use for one only."""
    return install_named(name for package in packages for name in package.names)


def install_named(names: Iterable[str]) -> str:
    """Return the line to paste that installs packages of these names."""
    return " ".join([INSTALL, *dict.fromkeys(names)])


def install_list(path: Path) -> str:
    """Return the line to paste that installs all packages of a list."""
    return install_line(parse_host_packages(path.read_text()))


def remedy_for(program: str) -> str:
    """Return the command that installs a program; if no list has the program, a hint to the doctor."""
    for path in (HOST, QEMU, WIRE, VAGRANT, KERNEL):
        found = [one for one in parse_host_packages(path.read_text()) if one.command == program]
        if found:
            return install_line(found)
    return "./raidproof doctor says what is missing"
