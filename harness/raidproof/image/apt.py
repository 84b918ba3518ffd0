"""Debian packages: downloads by an apt with its own configuration; checks of packages that are put into an image."""

import getpass
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import Completed, install_named
from raidproof.core.errors import RaidproofError, RequestError, RequirementMissing, RigError
from raidproof.image import cache

ARCHITECTURES = ("amd64", "all")
"""The architectures of packages that the machines can run."""
_UNMET = re.compile(r"^ (\S+) : (.+)$|^ {2,}(\w+: .+)$")

KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)
"""The files in which a host may have the keys that verify the signatures of Debian's archive."""
UNSTABLE = "sid"
"""The suite without security updates of its own."""
SECURITY = "http://security.debian.org/debian-security"
"""The mirror of Debian's security updates for hosts whose apt has none."""
DOWNLOAD_DEADLINE_S = 1200.0
_BROKEN_DOWNLOAD = re.compile(
    r"Failed to fetch|Could not (?:resolve|connect)|Unable to connect|Temporary failure|[Cc]onnection (?:failed|timed)"
    r"|Hash Sum mismatch|unexpected size|does not have a Release file|Clearsigned file isn't valid"
)


@dataclass(frozen=True)
class Installed:
    """A package that is installed in an image, as listed by dpkg."""

    version: str
    """The version of the binary package, such as ``1:2.8.3-1``."""
    source: str
    """The name of the source package from which the package was built: ``nfs-utils`` for ``nfs-common``."""


@dataclass(frozen=True)
class Package:
    """A .deb file that is to replace a package of an image."""

    path: Path
    name: str
    """The name of the binary package, such as ``nfs-common``."""
    version: str
    """The version of the binary package."""
    source: str
    """The name of the source package from which the package was built: ``nfs-utils`` for ``nfs-common``."""


def parse_fields(text: str) -> dict[str, str]:
    """Return the fields of one paragraph in Debian's control format; of a multi-line field only the first line."""
    return dict(re.findall(r"^([A-Za-z][\w-]*):[ \t]*(.*)$", text, re.MULTILINE))


def parse_status(text: str) -> dict[str, Installed]:
    """Return the installed packages in dpkg's status file (/var/lib/dpkg/status), by package name."""
    paragraphs = map(parse_fields, re.split(r"\n\s*\n", text))
    return {
        fields["Package"]: Installed(fields["Version"], _source(fields))
        for fields in paragraphs
        if fields.get("Status", "").endswith(" installed") and "Version" in fields
    }


def read(path: Path) -> Package:
    """Read the name, version and source of a .deb file.

    Raises:
        RequestError: the file does not exist, is not a Debian package, or has an architecture that is not in
            `ARCHITECTURES`.
    """
    if not path.is_file():
        raise RequestError(f"there is no file {path}")
    described = command.run(["dpkg-deb", "--field", path])
    if not described.ok:
        raise RequestError(f"{path} is not a Debian package: {described.stderr.strip().splitlines()[-1]}")
    fields = parse_fields(described.stdout)
    architecture = fields.get("Architecture", "")
    if architecture not in ARCHITECTURES:
        raise RequestError(
            f"{path} is for architecture {architecture!r}, and the machines accept {' or '.join(ARCHITECTURES)}"
        )
    return Package(path, fields["Package"], fields["Version"], _source(fields))


def _source(fields: Mapping[str, str]) -> str:
    # "Source: nfs-utils (1:2.8.3-1)"; dpkg omits the field if source and package have the same name.
    return fields.get("Source", fields["Package"]).split()[0]


def refuse_strangers(packages: Iterable[Package], installed: Mapping[str, Installed], image: str) -> None:
    """Check that each package replaces an installed one, or is built from the same source as an installed one.

    ``image`` is the name of the image, for messages.

    Raises:
        RequestError: a package replaces no installed package, two files contain the same package, or the image has no
            dpkg packages.
    """
    seen: dict[str, Path] = {}
    sources = {one.source for one in installed.values()}
    for package in packages:
        if not installed:
            raise RequestError(f"{package.path} cannot replace a package of image {image}, which has no dpkg packages")
        if package.name not in installed and package.source not in sources:
            raise RequestError(
                f"{package.path} replaces no package: image {image} has no package {package.name!r}, and none of "
                f"source {package.source!r}; {_near(package, {*installed, *sources})}"
            )
        if package.name in seen:
            raise RequestError(f"package {package.name} is given twice: {seen[package.name]} and {package.path}")
        seen[package.name] = package.path


def _near(package: Package, known: set[str]) -> str:
    # Without the list of valid names: an image has hundreds of packages.
    close = get_close_matches(package.name, sorted(known), n=1)
    return f"did you mean {close[0]!r}?" if close else "no package has a similar name"


def unmet(output: str) -> str | None:
    """Return the unmet dependencies in the output of apt, as one line; None if there are none."""
    _, found, after = output.partition("The following packages have unmet dependencies:\n")
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


def refused(output: str) -> str | None:
    """Return why dpkg did not install a package, as one line of its output; None if there was no error."""
    conflicts: list[str] = re.findall(r"^ (\S+ (?:conflicts with|breaks|pre-depends on) .+)$", output, re.MULTILINE)
    errors: list[str] = re.findall(r"^dpkg: error.*(?:\n .+)*", output, re.MULTILINE)
    # The last message counts: dpkg tries packages again that failed at first.
    return next((" ".join(found[-1].split()) for found in (conflicts, errors) if found and errors), None)


@dataclass(frozen=True)
class Source:
    """A Debian suite on a mirror, from which apt downloads packages."""

    mirror: str
    """The URL of the mirror."""
    suite: str
    """The name of the suite, such as ``trixie``."""
    keyring: Path
    """The file of the keys that verify the mirror's signatures."""
    components: tuple[str, ...] = ()
    """The components of the suite, in addition to ``main``."""

    @property
    def line(self) -> str:
        """The line for sources.list(5), with which apt fetches the list of packages and no other index."""
        components = " ".join(("main", *self.components))
        return f"deb [arch=amd64 signed-by={self.keyring} target=Packages] {self.mirror} {self.suite} {components}"


def source(suite: str, components: Sequence[str] = ()) -> Source:
    """Return a Debian suite on the Debian mirror of the host's apt, or else on the default mirror of mmdebstrap.

    ``components``: the components of the suite, in addition to ``main``.

    Raises:
        RequirementMissing: Debian's archive keys are not installed on this host, or no mirror is known.
    """
    return Source(debian_mirror(_mirrors()) or mmdebstraps_mirror(), suite, _keyring(), tuple(components))


def security_source(suite: str) -> Source:
    """Return the security updates of a Debian release, on the mirror of the host's apt, or else on Debian's own.

    Raises:
        RequirementMissing: Debian's archive keys are not installed on this host.
    """
    return Source(debian_mirror(_mirrors(), "debian-security") or SECURITY, f"{suite}-security", _keyring())


def _mirrors() -> str:
    return command.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]).stdout


def _keyring() -> Path:
    keyring = next((path for path in KEYRINGS if path.exists()), None)
    if keyring is None:
        raise RequirementMissing(
            "Debian's archive keys are not installed on this host, so packages cannot be verified",
            remedy=install_named(["debian-archive-keyring"]),
        )
    return keyring


def mmdebstraps_mirror() -> str:
    """Return the default mirror in the script mmdebstrap, for hosts whose apt has no Debian mirror.

    Raises:
        RequirementMissing: mmdebstrap is not installed, or its script names no mirror.
    """
    program = shutil.which("mmdebstrap")
    script = Path(program).read_text(errors="replace") if program else ""
    if found := re.search(r"\$mirror\s*=\s*'(https?://[^']+/debian/?)'", script):
        return found.group(1).rstrip("/")
    raise RequirementMissing(
        "no Debian mirror is known: neither apt nor mmdebstrap of this host names one",
        remedy=install_named(["mmdebstrap"]),
    )


def debian_mirror(repository_uris: str, archive: str = "debian") -> str | None:
    """Return the first URL of a mirror of ``archive`` among the URLs of apt, one per line; None if there is none."""
    for uri in repository_uris.split():
        if re.fullmatch(rf"https?://.*/{archive}/?", uri):
            return uri.rstrip("/")
    return None


def acquire_options() -> list[str]:
    """Return the download settings of the host's apt (proxies, retries), as lines for apt.conf(5)."""
    dump = command.succeed(["apt-config", "dump"])
    return ['Acquire::Retries "3";', 'Acquire::Languages "none";', *of_acquire(dump)]


def of_acquire(dump: str) -> list[str]:
    """Return the ``Acquire`` lines of ``apt-config dump``, without the lines that make apt fetch optional indexes."""
    return [
        line
        for line in dump.splitlines()
        if line.startswith("Acquire::") and not line.startswith(("Acquire::IndexTargets", "Acquire::Languages"))
    ]


def download(suite: str, packages: Sequence[str], work: Path, *, components: Sequence[str] = ()) -> dict[str, Path]:
    """Download packages of a suite; return the downloaded files by package name.

    ``work`` is an empty folder for the files and for apt's lists; ``components`` are those in addition to ``main``.

    Raises:
        RequirementMissing: Debian's archive keys are not installed on this host.
        RigError: the network or the mirror fails, or the disk is full.
    """
    environment = _update(source(suite, components), work)
    return _fetch(suite, packages, work, environment)


def download_nearest(suite: str, package: str, release: str, work: Path) -> Path:
    """Download the version of a package that is of an upstream release, or of the nearest one that Debian has.

    The security updates of the suite are searched too: the archive keeps few versions of a package. ``release``:
    ``6.12.113``; ``work`` is an empty folder for the file and for apt's lists.

    Raises:
        RequirementMissing: Debian's archive keys are not installed on this host.
        RigError: the network or the mirror fails, or the suite has no such package.
    """
    offers: list[tuple[int, str, Mapping[str, str]]] = []
    origins = [source(suite), *([] if suite == UNSTABLE else [security_source(suite)])]
    for one in origins:
        folder = work / one.suite
        folder.mkdir()
        environment = _update(one, folder)
        listed = command.run(["apt-cache", "madison", package], environment=environment).stdout
        offers += [(_distance(found, release), found, environment) for found in parse_madison(listed, package)]
        if any(distance == 0 for distance, _, _ in offers):
            break
    if not offers:
        raise RigError(f"Debian {suite} has no package {package}")
    _, nearest_version, chosen = min(offers, key=lambda offer: offer[0])
    folder = Path(chosen["APT_CONFIG"]).parent
    return _fetch(suite, [package], folder, chosen, nearest_version)[package]


def parse_madison(output: str, package: str) -> list[str]:
    """Return the versions of a package in the output of apt-cache madison: `` linux | 6.12.107-1 | http://...``."""
    rows = [[column.strip() for column in line.split("|")] for line in output.splitlines()]
    return [row[1] for row in rows if len(row) == 3 and row[0] == package]


def _distance(version: str, release: str) -> int:
    """Return how many patch levels a Debian version (``6.12.107-1``) is away from an upstream release."""
    return abs(int(version.partition("-")[0].rpartition(".")[2]) - int(release.rpartition(".")[2]))


def download_behind(suite: str, package: str, wanted: re.Pattern[str], work: Path) -> dict[str, Path]:
    """Download all direct and indirect dependencies of a package whose names match ``wanted``.

    Return the downloaded files by package name. ``work`` is an empty folder for the files and for apt's lists.

    Raises:
        RequirementMissing: Debian's archive keys are not installed on this host.
        RigError: the network or the mirror fails, the disk is full, or no dependency matches.
    """
    environment = _update(source(suite), work)
    argv = ["apt-cache", "depends", "--recurse", "--important", package]
    completed = command.run(argv, environment=environment)
    if not completed.ok:
        raise explain(completed, f"looking up {package} in {suite}", work)
    names = [line for line in completed.stdout.splitlines() if wanted.fullmatch(line)]
    if not names:
        raise RigError(f"package {package} of Debian {suite} depends on no package that matches {wanted.pattern}")
    return _fetch(suite, names, work, environment)


def _update(origin: Source, work: Path) -> dict[str, str]:
    """Fetch the list of packages of a suite; return the environment in which apt uses only this list."""
    configuration = work / "apt.conf"
    sources = work / "sources.list"
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "archives").mkdir()
    sources.write_text(origin.line + "\n")
    # A separate configuration, so that apt runs none of the host's hooks; apt reads $APT_CONFIG before other files.
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
    _apt_get(["update", "--error-on=any"], f"fetching the list of packages of {origin.suite}", work, environment)
    return environment


def _fetch(
    suite: str, packages: Sequence[str], work: Path, environment: Mapping[str, str], version: str | None = None
) -> dict[str, Path]:
    names = packages if version is None else [f"{name}={version}" for name in packages]
    _apt_get(["download", *names], f"fetching {', '.join(packages)} from {suite}", work, environment)
    return {name: _only(work / "archives", f"{name}_*.deb") for name in packages}


def _apt_get(arguments: Sequence[str], what: str, work: Path, environment: Mapping[str, str]) -> None:
    argv = ["env", f"--chdir={work / 'archives'}", "apt-get", "-q", *arguments]
    completed = command.run(argv, environment=environment, deadline_s=DOWNLOAD_DEADLINE_S)
    if not completed.ok:
        raise explain(completed, what, work)


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise RigError(f"apt downloaded {len(found)} files that match {pattern}, not 1")
    return found[0]


def unpack(package: Path, tree: Path) -> None:
    """Unpack the files of a .deb file into the folder ``tree``.

    Raises:
        RigError: the disk is full, or ``package`` is not a Debian package.
    """
    completed = command.run(["dpkg-deb", "--extract", package, tree])
    if not completed.ok:
        raise explain(completed, f"unpacking {package.name}", tree.parent)


def version(package: Path) -> str:
    """Return the version of the package in a .deb file."""
    return command.succeed(["dpkg-deb", "--field", package, "Version"]).strip()


def explain(completed: Completed, what: str, where: Path) -> RaidproofError:
    """Return the error for a failed command of apt or mmdebstrap, with the reason in one line.

    ``what`` is the failed step, for the message; ``where`` the folder to name if the disk is full.
    """
    output = completed.stderr + completed.stdout
    if "No space left on device" in output or "Disk quota exceeded" in output or "have enough free space" in output:
        return cache.no_room(where)
    complaints = [line for line in output.splitlines() if re.match(r"(E|W|Err):|mkfs|mke2fs|newuidmap", line)]
    first = next((line for line in complaints if _BROKEN_DOWNLOAD.search(line)), None)
    if first is not None:
        return RigError(
            f"{what}: the download failed: {_without_credentials(first)}",
            remedy="check the network and the proxy, then repeat the command: incomplete downloads are removed",
        )
    if "NO_PUBKEY" in output:
        return RequirementMissing(
            f"{what}: this host lacks the key that verifies the archive's signature",
            remedy=install_named(["debian-archive-keyring"]),
        )
    if "subuid" in output or "newuidmap" in output:
        ids = "--add-subuids 100000-165535 --add-subgids 100000-165535"
        return RequirementMissing(
            f"{what}: user {getpass.getuser()} has no subordinate user ids (subuid(5))",
            remedy=f"{install_named(['uidmap'])} && usermod {ids} {getpass.getuser()}",
        )
    reason = (complaints or output.strip().splitlines() or [f"status {completed.status}"])[0]
    return RigError(f"{what}: {_without_credentials(reason)}")


def _without_credentials(line: str) -> str:
    return re.sub(r"//[^/@\s]+@", "//", line)
