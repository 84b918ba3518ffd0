"""A Vagrant box of the user's own: found by its name where ``vagrant box add`` has put it, and only ever read."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RequestError, nearest
from raidproof.core.topology import SoftwareSpec
from raidproof.provider.vagrant.libvirt import pool_volume

PREFIX = "box:"
"""What an image's name begins with that is the name of a box."""
NAME = "vagrant"
"""The one provider that has boxes."""
_SLASH = "-VAGRANTSLASH-"


@dataclass(frozen=True)
class UserBox:
    """One version of a box for libvirt."""

    name: str
    version: str
    """``0`` where it was added from a file, without a version."""
    folder: Path
    """Of all its versions, in the folder ``boxes`` of a VAGRANT_HOME."""
    content: Path
    """Of its files."""

    @property
    def images(self) -> tuple[tuple[Path, str], ...]:
        """Its disk with the name under which Vagrant would upload it. One with several disks is left to Vagrant."""
        described = json.loads((self.content / "metadata.json").read_text())
        disk = self.content / "box.img"
        return () if described.get("disks") else ((disk, pool_volume(self.name, disk, "box", self.version)),)

    def __str__(self) -> str:
        return self.name if self.version == "0" else f"{self.name} {self.version}"


def asked(software: SoftwareSpec) -> str | None:
    """Return the name of the box that a machine is to be made of, or None."""
    image = software.image or ""
    return image.removeprefix(PREFIX) if image.startswith(PREFIX) else None


def refuse(software: SoftwareSpec, provider: str) -> None:
    """Do nothing if such a machine can be: a box brings its kernel and its packages, and needs Vagrant.

    Raises:
        RequestError: it cannot; says why.
    """
    if (name := asked(software)) is None:
        return
    if provider != NAME:
        raise RequestError(
            f"{software.image}: provider {provider} has no boxes", remedy=f"--provider {NAME}, or another image"
        )
    others = {"kernel": software.kernel, "modules": software.modules, "packages": software.packages}
    if also := [what for what, value in others.items() if value]:
        raise RequestError(
            f"{software.image} brings its own kernel and packages; asked for besides: {', '.join(also)}",
            remedy="ask for a box, or for the other image with these",
        )
    find(name)


def boxes() -> Path:
    """Return the folder of the user's boxes."""
    return Path(os.environ.get("VAGRANT_HOME") or "~/.vagrant.d").expanduser() / "boxes"


def names() -> list[str]:
    """Return the names of all boxes for libvirt."""
    found = boxes().glob("*") if boxes().is_dir() else ()
    return sorted(folder.name.replace(_SLASH, "/") for folder in found if _contents(folder))


def find(name: str) -> UserBox:
    """Return the newest version of a box.

    Raises:
        RequestError: there is none of that name for libvirt; names the nearest.
    """
    known = names()
    if not known:
        raise RequestError(
            f"no box {name!r}: {boxes()} has none for libvirt", remedy="vagrant box add --provider libvirt fetches one"
        )
    if name not in known:
        raise RequestError(f"no box {name!r} for libvirt in {boxes()}", remedy=nearest(name, known))
    folder = boxes() / name.replace("/", _SLASH)
    content = max(_contents(folder), key=lambda one: _order(_version(folder, one)))
    return UserBox(name, _version(folder, content), folder, content)


def _contents(folder: Path) -> list[Path]:
    # BOX/VERSION/libvirt; since Vagrant 2.4 boxes of one architecture lie in BOX/VERSION/ARCHITECTURE/libvirt.
    found = [file for pattern in ("*", "*/*") for file in folder.glob(f"{pattern}/libvirt/metadata.json")]
    return sorted(file.parent for file in found)


def _version(folder: Path, content: Path) -> str:
    return content.relative_to(folder).parts[0]


def _order(version: str) -> list[int]:
    """Order versions as RubyGems does: 1.0.pre is before 1.0."""
    return [*(int(part) if part.isdecimal() else -1 for part in re.split(r"[.-]", version)), 0]
