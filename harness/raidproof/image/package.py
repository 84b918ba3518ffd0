"""Debian packages: what a root has installed, and the .deb files that are to take the place of some of it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RequestError, nearest

ARCHITECTURES = ("amd64", "all")
_UNMET = re.compile(r"^ (\S+) : (.+)$|^ {2,}(\w+: .+)$")


@dataclass(frozen=True)
class Installed:
    """A package that a root has."""

    version: str
    source: str


@dataclass(frozen=True)
class Package:
    """A package file."""

    path: Path
    name: str
    version: str
    source: str
    """The source package that it was built from: ``nfs-utils`` of ``nfs-common``."""


def parse_fields(text: str) -> dict[str, str]:
    """Read one paragraph of Debian's control format; of a field of several lines, the first."""
    return dict(re.findall(r"^([A-Za-z][\w-]*):[ \t]*(.*)$", text, re.MULTILINE))


def parse_status(text: str) -> dict[str, Installed]:
    """Read dpkg's status file: what is installed, by package."""
    paragraphs = map(parse_fields, re.split(r"\n\s*\n", text))
    return {
        fields["Package"]: Installed(fields["Version"], _source(fields))
        for fields in paragraphs
        if fields.get("Status", "").endswith(" installed") and "Version" in fields
    }


def read(path: Path) -> Package:
    """Read what a package file says of itself.

    Raises:
        RequestError: it is no package, or one that no machine of ours could run.
    """
    if not path.is_file():
        raise RequestError(f"there is no file {path}")
    described = command.run(["dpkg-deb", "--field", path])
    if not described.ok:
        raise RequestError(f"{path} is no Debian package: {described.stderr.strip().splitlines()[-1]}")
    fields = parse_fields(described.stdout)
    architecture = fields.get("Architecture", "")
    if architecture not in ARCHITECTURES:
        raise RequestError(f"{path} is for {architecture}, and the machines are {' or '.join(ARCHITECTURES)}")
    return Package(path, fields["Package"], fields["Version"], _source(fields))


def _source(fields: Mapping[str, str]) -> str:
    # "Source: nfs-utils (1:2.8.3-1)", and no such field where it is called like the package.
    return fields.get("Source", fields["Package"]).split()[0]


def refuse_strangers(packages: Iterable[Package], installed: Mapping[str, Installed], image: str) -> None:
    """Make sure that each package takes the place of one in the image, or comes from the same source as one.

    Raises:
        RequestError: one does not, two are the same, or the image has no packages of dpkg's at all.
    """
    seen: dict[str, Path] = {}
    sources = {one.source for one in installed.values()}
    for package in packages:
        if not installed:
            raise RequestError(f"{image} has no packages of dpkg's that {package.path} could replace")
        if package.name not in installed and package.source not in sources:
            raise RequestError(
                f"{package.path}: {image} has no package {package.name!r} that it could replace; "
                f"{_near(package, {*installed, *sources})}"
            )
        if package.name in seen:
            raise RequestError(f"{package.name} is given twice: {seen[package.name]} and {package.path}")
        seen[package.name] = package.path


def _near(package: Package, known: set[str]) -> str:
    # All that is in an image would be hundreds of names.
    return nearest(package.name, known).split("valid:", maxsplit=1)[0].strip() or "none is called like it"


def unmet(said: str) -> str | None:
    """Return what apt finds missing, in one line, or None if it finds nothing."""
    _, found, after = said.partition("The following packages have unmet dependencies:\n")
    if not found:
        return None
    sentences: list[str] = []
    for line in after.splitlines():
        match = _UNMET.match(line)
        if match is None:
            break
        name, first, further = match.groups()
        sentences.append(f"{name}: {first}" if name else further)
    return "; ".join(" ".join(sentence.split()) for sentence in sentences) or None


def refused(said: str) -> str | None:
    """Return why dpkg did not install a package, in one line, or None if it did."""
    conflicts: list[str] = re.findall(r"^ (\S+ (?:conflicts with|breaks|pre-depends on) .+)$", said, re.MULTILINE)
    errors: list[str] = re.findall(r"^dpkg: error.*(?:\n .+)*", said, re.MULTILINE)
    # The last word counts: what the first attempt refused may have been possible after the second.
    return next((" ".join(found[-1].split()) for found in (conflicts, errors) if found and errors), None)
