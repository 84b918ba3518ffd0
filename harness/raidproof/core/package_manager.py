"""The package manager of this host: the names of host packages, and the command that installs packages."""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

NAMES = Path(__file__).resolve().parents[1] / "vms" / "host-packages-names.txt"
"""File with the names of host packages in distributions without apt, in columns."""
AUR = "aur:"
"""Prefix of the name of a package of the Arch User Repository, which pacman does not install."""


class PackageManager(StrEnum):
    """A package manager that raidproof has names of packages for."""

    APT = "apt"
    DNF = "dnf"
    PACMAN = "pacman"

    @property
    def install(self) -> str:
        """Start of the instruction that installs packages; the names of the packages follow."""
        return _INSTALL[self]


_INSTALL = {
    PackageManager.APT: "as root: apt-get update && apt-get install --yes --no-install-recommends",
    PackageManager.DNF: "as root: dnf install --assumeyes --setopt=install_weak_deps=False",
    PackageManager.PACMAN: "as root: pacman --sync --needed --noconfirm",
}


def choose(
    which: Callable[[str], str | None] = shutil.which, dpkg_knows: Callable[[], bool] | None = None
) -> PackageManager:
    """Return the package manager of this host, by the rule of the launcher; without any, apt.

    Another distribution can have apt, too, for images of Debian; but then dpkg knows no package, and ``dpkg_knows``
    returns False.
    """
    if which("apt-get") and (dpkg_knows or _dpkg_knows_itself)():
        return PackageManager.APT
    found = (one for one in (PackageManager.DNF, PackageManager.PACMAN) if which(one.value))
    return next(found, PackageManager.APT)


def _dpkg_knows_itself() -> bool:
    try:
        ended = subprocess.run(["dpkg-query", "--show", "dpkg"], capture_output=True, check=False)  # noqa: S607
    except OSError:
        return False
    return ended.returncode == 0


@cache
def of_this_host() -> PackageManager:
    """Return the package manager of this host."""
    return choose()


@cache
def names() -> Mapping[str, Mapping[PackageManager, str]]:
    """Return the names of packages in each distribution, by their names in Debian."""
    rows = [line.split() for line in NAMES.read_text().splitlines() if line and not line.startswith("#")]
    return {
        apt: {PackageManager.APT: apt, PackageManager.DNF: dnf, PackageManager.PACMAN: pacman}
        for apt, dnf, pacman in rows
    }


def instruction(packages: Iterable[str], manager: PackageManager) -> str:
    """Return the instruction that installs packages; ``packages``: their names in Debian.

    A package without a known name keeps the name of Debian.
    """
    here = dict.fromkeys(names().get(one, {}).get(manager, one) for one in packages)
    installed = [one for one in here if one != "-" and not one.startswith(AUR)]
    built = [one.removeprefix(AUR) for one in here if one.startswith(AUR)]
    parts = [" ".join([manager.install, *installed])] if installed else []
    parts += [f"from the Arch User Repository, by makepkg: {' '.join(built)}"] if built else []
    return "; ".join(parts) or "reinstall Python with its module venv"
