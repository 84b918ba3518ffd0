"""The packages of the distribution that this host needs (lists in vms/), and the command that installs them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RigError

FOLDER = Path(__file__).resolve().parents[1] / "vms"
HOST, WIRE, QEMU, VAGRANT, KERNEL = (
    FOLDER / f"host-packages{suffix}.txt" for suffix in ("", "-wire", "-qemu", "-vagrant", "-kernel")
)
INSTALL = "as root: apt-get update && apt-get install --yes --no-install-recommends"
"""The launcher's command, for Debian and Ubuntu. Other distributions have these packages under other names."""


@dataclass(frozen=True)
class HostPackage:
    """A line of a list: alternative packages, the command that each of them provides, and the reason."""

    names: tuple[str, ...]
    command: str | None
    why: str


def parse_host_packages(text: str) -> list[HostPackage]:
    """Return the packages in lines of the form ``package|alternative  command  # why``; ``-`` means no command.

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
                raise RigError(f"{HOST.name}:{number}: should be a package and a command: {line!r}")
    return packages


def install_line(packages: Iterable[HostPackage]) -> str:
    """Return the shell command that installs packages; it names all alternatives, as each release has only one."""
    return install_named(name for package in packages for name in package.names)


def install_named(names: Iterable[str]) -> str:
    """Return the shell command that installs packages of these names."""
    return " ".join([INSTALL, *dict.fromkeys(names)])


def install_list(path: Path) -> str:
    """Return the shell command that installs all packages of a list."""
    return install_line(parse_host_packages(path.read_text()))


def remedy_for(program: str) -> str:
    """Return the shell command that installs a program; if no list has the program, a hint to ``raidproof doctor``."""
    for path in (HOST, QEMU, WIRE, VAGRANT, KERNEL):
        found = [one for one in parse_host_packages(path.read_text()) if one.command == program]
        if found:
            return install_line(found)
    return "./raidproof doctor says what is missing"
