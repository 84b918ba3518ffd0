"""Debian packages: fetched and verified by apt beside the host's own, and the list of those in an image."""

import getpass
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RaidproofError, RequestError, RequirementMissing, RigError, nearest
from raidproof.core.host_packages import install_named
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


@dataclass(frozen=True)
class Source:
    """One suite on one mirror."""

    mirror: str
    suite: str
    keyring: Path

    @property
    def line(self) -> str:
        """The suite as a line of sources.list; of its indexes only the list of packages is wanted."""
        return f"deb [arch=amd64 signed-by={self.keyring} target=Packages] {self.mirror} {self.suite} main"


def source(suite: str) -> Source:
    """Return a Debian suite on the mirror that the host itself uses, or on the one that mmdebstrap takes by itself.

    Raises:
        RequirementMissing: the host cannot check Debian's signatures, or knows no mirror.
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
    """Return the mirror that mmdebstrap takes when it is told none; on a host that is not Debian apt knows no other.

    Raises:
        RequirementMissing: there is no mmdebstrap, or it names none.
    """
    program = shutil.which("mmdebstrap")
    script = Path(program).read_text(errors="replace") if program else ""
    if found := re.search(r"\$mirror\s*=\s*'(https?://[^']+/debian/?)'", script):
        return found.group(1).rstrip("/")
    raise RequirementMissing("no Debian mirror is known", remedy=install_named(["mmdebstrap"]))


def debian_mirror(repository_uris: str) -> str | None:
    """Return the first address that is a Debian mirror's, of those that apt knows, one a line, or None."""
    for uri in repository_uris.split():
        if re.fullmatch(r"https?://.*/debian/?", uri):
            return uri.rstrip("/")
    return None


def acquire_options() -> list[str]:
    """Return the host's settings of how to download (proxies, retries), as lines of an apt.conf."""
    dump = command.succeed(["apt-config", "dump"])
    return ['Acquire::Retries "3";', 'Acquire::Languages "none";', *of_acquire(dump)]


def of_acquire(dump: str) -> list[str]:
    """Keep from the output of ``apt-config dump`` what says how to download, not what else to."""
    return [
        line
        for line in dump.splitlines()
        if line.startswith("Acquire::") and not line.startswith(("Acquire::IndexTargets", "Acquire::Languages"))
    ]


def download(suite: str, packages: Sequence[str], work: Path) -> dict[str, Path]:
    """Fetch packages of a suite into ``work``, which also takes apt's lists, and return the files by package.

    Raises:
        RequirementMissing: Debian's keys are not installed.
        RigError: the network, the mirror, or a full disk; says which.
    """
    environment = _update(suite, work)
    return _fetch(suite, packages, work, environment)


def download_behind(suite: str, package: str, wanted: re.Pattern[str], work: Path) -> dict[str, Path]:
    """Fetch what stands behind a metapackage: those that it depends on, however far, whose names match ``wanted``.

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
    """Fetch the suite's list of packages, and return the environment in which apt knows nothing else."""
    configuration = work / "apt.conf"
    sources = work / "sources.list"
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "archives").mkdir()
    sources.write_text(source(suite).line + "\n")
    # A configuration of our own, so that none of the host's hooks run; apt reads it before it looks for any other.
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
        RigError: the disk is full, or the file is no package.
    """
    completed = command.run(["dpkg-deb", "--extract", package, tree])
    if not completed.ok:
        raise explain(completed, f"unpacking {package.name}", tree.parent)


def version(package: Path) -> str:
    """Return the version that a package file carries."""
    return command.succeed(["dpkg-deb", "--field", package, "Version"]).strip()


def explain(completed: Completed, what: str, where: Path) -> RaidproofError:
    """Say in one line why apt, or a tool that uses it, failed."""
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
