"""Debian packages: fetched and verified by an apt independent of the host's; the packages of an image."""

import getpass
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import Completed, install_named
from raidproof.core.errors import RaidproofError, RequestError, RequirementMissing, RigError, nearest
from raidproof.image import cache

ARCHITECTURES = ("amd64", "all")
_UNMET = re.compile(r"^ (\S+) : (.+)$|^ {2,}(\w+: .+)$")

KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)
DOWNLOAD_DEADLINE_S = 1200.0
_BROKEN_DOWNLOAD = re.compile(
    r"Failed to fetch|Could not (?:resolve|connect)|Unable to connect|Temporary failure|[Cc]onnection (?:failed|timed)"
    r"|Hash Sum mismatch|unexpected size|does not have a Release file|Clearsigned file isn't valid"
)


@dataclass(frozen=True)
class Installed:
    """A package that is installed in a root."""

    version: str
    source: str


@dataclass(frozen=True)
class Package:
    """A package file."""

    path: Path
    name: str
    version: str
    source: str
    """The source package from which it was built: ``nfs-utils`` of ``nfs-common``."""


def parse_fields(text: str) -> dict[str, str]:
    """Parse one paragraph of Debian's control format; of a multi-line field, the first line."""
    return dict(re.findall(r"^([A-Za-z][\w-]*):[ \t]*(.*)$", text, re.MULTILINE))


def parse_status(text: str) -> dict[str, Installed]:
    """Parse dpkg's status file: the installed packages, by name."""
    paragraphs = map(parse_fields, re.split(r"\n\s*\n", text))
    return {
        fields["Package"]: Installed(fields["Version"], _source(fields))
        for fields in paragraphs
        if fields.get("Status", "").endswith(" installed") and "Version" in fields
    }


def read(path: Path) -> Package:
    """Read the fields of a package file.

    Raises:
        RequestError: it is not a package, or one of an architecture that the machines cannot run.
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
    # "Source: nfs-utils (1:2.8.3-1)"; the field is missing if the source has the name of the package.
    return fields.get("Source", fields["Package"]).split()[0]


def refuse_strangers(packages: Iterable[Package], installed: Mapping[str, Installed], image: str) -> None:
    """Check that each package replaces one in the image, or comes from the same source as one.

    Raises:
        RequestError: one does not, two are the same, or the image has no dpkg packages at all.
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
    # The names of all packages of an image would be hundreds.
    return nearest(package.name, known).split("valid:", maxsplit=1)[0].strip() or "none is called like it"


def unmet(said: str) -> str | None:
    """Return the unmet dependencies that apt reports, in one line, or None."""
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
    # The last message counts: a package that failed at first may have succeeded later.
    return next((" ".join(found[-1].split()) for found in (conflicts, errors) if found and errors), None)


@dataclass(frozen=True)
class Source:
    """One suite on one mirror."""

    mirror: str
    suite: str
    keyring: Path

    @property
    def line(self) -> str:
        """The suite as a line of sources.list; of its indexes only the list of packages is fetched."""
        return f"deb [arch=amd64 signed-by={self.keyring} target=Packages] {self.mirror} {self.suite} main"


def source(suite: str) -> Source:
    """Return a Debian suite on the mirror of the host, or else on mmdebstrap's default mirror.

    Raises:
        RequirementMissing: the host cannot verify Debian's signatures, or has no mirror.
    """
    keyring = next((path for path in KEYRINGS if path.exists()), None)
    if keyring is None:
        raise RequirementMissing(
            "Debian's archive keys are not installed", remedy=install_named(["debian-archive-keyring"])
        )
    targets = command.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
    mirror = debian_mirror(targets.stdout) or mmdebstraps_mirror()
    return Source(mirror, suite, keyring)


def mmdebstraps_mirror() -> str:
    """Return mmdebstrap's default mirror, for hosts that are not Debian.

    Raises:
        RequirementMissing: there is no mmdebstrap, or it names no mirror.
    """
    program = shutil.which("mmdebstrap")
    script = Path(program).read_text(errors="replace") if program else ""
    if found := re.search(r"\$mirror\s*=\s*'(https?://[^']+/debian/?)'", script):
        return found.group(1).rstrip("/")
    raise RequirementMissing("no Debian mirror is known", remedy=install_named(["mmdebstrap"]))


def debian_mirror(repository_uris: str) -> str | None:
    """Return the first address of a Debian mirror among those of apt, one per line, or None."""
    for uri in repository_uris.split():
        if re.fullmatch(r"https?://.*/debian/?", uri):
            return uri.rstrip("/")
    return None


def acquire_options() -> list[str]:
    """Return the host's download settings (proxies, retries), as lines of an apt.conf."""
    dump = command.succeed(["apt-config", "dump"])
    return ['Acquire::Retries "3";', 'Acquire::Languages "none";', *of_acquire(dump)]


def of_acquire(dump: str) -> list[str]:
    """Keep the download settings from the output of ``apt-config dump``, without those that add downloads."""
    return [
        line
        for line in dump.splitlines()
        if line.startswith("Acquire::") and not line.startswith(("Acquire::IndexTargets", "Acquire::Languages"))
    ]


def download(suite: str, packages: Sequence[str], work: Path) -> dict[str, Path]:
    """Fetch packages of a suite into ``work``, which also holds apt's lists, and return the files by package.

    Raises:
        RequirementMissing: Debian's keys are not installed.
        RigError: the network, the mirror, or a full disk; the message says which.
    """
    environment = _update(suite, work)
    return _fetch(suite, packages, work, environment)


def download_behind(suite: str, package: str, wanted: re.Pattern[str], work: Path) -> dict[str, Path]:
    """Fetch all direct and indirect dependencies of a metapackage whose names match ``wanted``.

    Raises:
        RequirementMissing, RigError: as `download`; RigError also if nothing matches.
    """
    environment = _update(suite, work)
    argv = ["apt-cache", "depends", "--recurse", "--important", package]
    completed = command.run(argv, environment=environment)
    if not completed.ok:
        raise explain(completed, f"looking up {package} in {suite}", work)
    names = [line for line in completed.stdout.splitlines() if wanted.fullmatch(line)]
    if not names:
        raise RigError(f"{package} of {suite} leads to no package named {wanted.pattern}")
    return _fetch(suite, names, work, environment)


def _update(suite: str, work: Path) -> dict[str, str]:
    """Fetch the suite's list of packages, and return the environment in which apt uses only that list."""
    configuration = work / "apt.conf"
    sources = work / "sources.list"
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "archives").mkdir()
    sources.write_text(source(suite).line + "\n")
    # A separate configuration, so that none of the host's hooks run; apt reads it before any other.
    configuration.write_text(
        "\n".join(
            [
                'Dir::Etc::main "/dev/null";',
                'Dir::Etc::parts "/dev/null";',
                f'Dir::Etc::sourcelist "{sources}";',
                'Dir::Etc::sourceparts "/dev/null";',
                'Dir::Etc::preferences "/dev/null";',
                'Dir::Etc::preferencesparts "/dev/null";',
                f'Dir::State::Lists "{work / "lists"}";',
                'Dir::State::status "/dev/null";',
                f'Dir::Cache "{work}";',
                'APT::Sandbox::User "";',
                'APT::Architecture "amd64";',
                'APT::Architectures "amd64";',
                'Debug::NoLocking "true";',
                *acquire_options(),
            ]
        )
        + "\n"
    )
    environment = {"APT_CONFIG": str(configuration), "LC_ALL": "C"}
    _apt_get(["update", "--error-on=any"], f"fetching the list of packages of {suite}", work, environment)
    return environment


def _fetch(suite: str, packages: Sequence[str], work: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    _apt_get(["download", *packages], f"fetching {', '.join(packages)} from {suite}", work, environment)
    return {name: _only(work / "archives", f"{name}_*.deb") for name in packages}


def _apt_get(arguments: Sequence[str], what: str, work: Path, environment: Mapping[str, str]) -> None:
    argv = ["env", f"--chdir={work / 'archives'}", "apt-get", "-q", *arguments]
    completed = command.run(argv, environment=environment, deadline_s=DOWNLOAD_DEADLINE_S)
    if not completed.ok:
        raise explain(completed, what, work)


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise RigError(f"apt fetched {len(found)} files for {pattern}")
    return found[0]


def unpack(package: Path, tree: Path) -> None:
    """Unpack the files of a package into a folder.

    Raises:
        RigError: the disk is full, or the file is not a package.
    """
    completed = command.run(["dpkg-deb", "--extract", package, tree])
    if not completed.ok:
        raise explain(completed, f"unpacking {package.name}", tree.parent)


def version(package: Path) -> str:
    """Return the version of a package file."""
    return command.succeed(["dpkg-deb", "--field", package, "Version"]).strip()


def explain(completed: Completed, what: str, where: Path) -> RaidproofError:
    """Return an error with the reason, in one line, why apt or a tool that uses it failed."""
    said = completed.stderr + completed.stdout
    if "No space left on device" in said or "Disk quota exceeded" in said or "have enough free space" in said:
        return cache.no_room(where)
    complaints = [line for line in said.splitlines() if re.match(r"(E|W|Err):|mkfs|mke2fs|newuidmap", line)]
    first = next((line for line in complaints if _BROKEN_DOWNLOAD.search(line)), None)
    if first is not None:
        return RigError(
            f"{what}: the download broke: {_without_credentials(first)}",
            remedy="check the network and the proxy, then run it again: nothing half-fetched was kept",
        )
    if "NO_PUBKEY" in said:
        return RequirementMissing(
            f"{what}: the archive's signature cannot be checked", remedy=install_named(["debian-archive-keyring"])
        )
    if "subuid" in said or "newuidmap" in said:
        ids = "--add-subuids 100000-165535 --add-subgids 100000-165535"
        return RequirementMissing(
            f"{what}: no subordinate user ids",
            remedy=f"{install_named(['uidmap'])} && usermod {ids} {getpass.getuser()}",
        )
    last = (complaints or said.strip().splitlines() or [f"status {completed.status}"])[0]
    return RigError(f"{what}: {_without_credentials(last)}")


def _without_credentials(line: str) -> str:
    return re.sub(r"//[^/@\s]+@", "//", line)
