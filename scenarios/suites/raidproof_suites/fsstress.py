"""fsstress, built from the source package of btrfs-progs: random operations on a directory tree."""

import re
import tarfile
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.core.layer import Machine
from raidproof.core.log import step
from raidproof.image import apt, cache
from raidproof.record.suite import SuiteOutcome
from raidproof_suites.suite import Suite, SuitePlace, SuiteStep, failed, passed, tail, unknown

PACKAGE = "btrfs-progs"
SUITE = "trixie"
DEVELOPMENT = ("libaio-dev", "liburing-dev", "linux-libc-dev")
SOURCE = "tests/fsstress.c"
WANTED = re.compile(r"tests/fsstress\.c|common/internal\.h")
"""The program, and the only header of btrfs-progs that it includes, in the tarball."""
FLAGS = (
    *("-O2", "-static", "-w", "-D_GNU_SOURCE", "-include", "sys/mman.h"),
    # What the configure script of fstests finds on every Linux; without these, mappings and fallocate would silently
    # do nothing.
    *(f"-DHAVE_{name}" for name in ("COPY_FILE_RANGE", "LINUX_FALLOC_H", "LINUX_FIEMAP_H", "SYS_MMAN_H")),
    "-DHAVE_SYS_PRCTL_H",
)
LIBRARIES = ("-luring", "-laio", "-lm")
FETCH_DEADLINE_S = 600.0
COMPILE_DEADLINE_S = 300.0

TREES = "trees agree"
LISTING_DEADLINE_S = 300.0
SYNC_DEADLINE_S = 300.0
_SHOWN = 5
# LTP's fsstress removes its tree unless given -c; with that of xfstests -c means to remove it.
_KEEPING = """if "$0" -H 2>&1 | grep -q 'not to remove'; then set -- -c "$@"; fi; exec "$0" "$@\""""


def _build(partial: Path) -> None:
    step(f"compiling fsstress out of Debian {SUITE}'s {PACKAGE}: done once")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    tree, source = scratch / "tree", scratch / "source"
    for package in apt.download(SUITE, DEVELOPMENT, scratch).values():
        apt.unpack(package, tree)
    extract(_tarball(scratch), source)
    command.succeed(compile_command(source, tree / "usr", partial / "fsstress"), deadline_s=COMPILE_DEADLINE_S)


def _tarball(scratch: Path) -> Path:
    """Fetch the source, verified, with the apt settings with which the packages were fetched."""
    said = apt.source(SUITE)
    sources = scratch / "sources.list"
    sources.write_text(f"deb-src [signed-by={said.keyring} target=Sources] {said.mirror} {SUITE} main\n")
    place = scratch / "tarball"
    place.mkdir()
    environment = {"APT_CONFIG": str(scratch / "apt.conf"), "LC_ALL": "C"}
    for words in (["update", "--error-on=any"], ["source", "--download-only", "--tar-only", PACKAGE]):
        ended = command.run(
            ["env", f"--chdir={place}", "apt-get", "-q", *words],
            environment=environment,
            deadline_s=FETCH_DEADLINE_S,
        )
        if not ended.ok:
            raise apt.explain(ended, f"fetching the source of {PACKAGE} of {SUITE}", scratch)
    found = list(place.glob("*.orig.tar.*"))
    if len(found) != 1:
        raise RigError(f"apt fetched {len(found)} tarballs of {PACKAGE}")
    return found[0]


def extract(tarball: Path, target: Path) -> None:
    """Extract the needed files from a source tarball, without its top folder.

    Raises:
        RigError: the files are missing, or the tarball is not whole.
    """
    try:
        with tarfile.open(tarball) as archive:
            for entry in archive:
                _, _, name = entry.name.partition("/")
                if entry.isfile() and WANTED.fullmatch(name) and (content := archive.extractfile(entry)):
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (target / name).write_bytes(content.read())
    except (EOFError, tarfile.TarError) as error:
        raise RigError(f"{tarball.name} is not whole: {error}") from error
    if not (target / SOURCE).exists():
        raise RigError(
            f"{tarball.name} has no {SOURCE} any more", remedy="say where one is: --suite-path fsstress=PATH"
        )


def compile_command(source: Path, usr: Path, target: Path) -> list[str | Path]:
    """Return the command that compiles fsstress."""
    triplet = "x86_64-linux-gnu"
    return [
        *("gcc", *FLAGS, f"-I{source}", f"-I{usr / 'include'}", f"-I{usr / 'include' / triplet}"),
        *("-o", target, source / SOURCE, f"-L{usr / 'lib' / triplet}", *LIBRARIES),
    ]


class Fsstress(Suite):
    """One fsstress, of LTP or of xfstests, on one tree."""

    programs: ClassVar[tuple[str, ...]] = ("fsstress",)
    remedy: ClassVar[str] = "build that of LTP or of fstests (ltp/fsstress)"

    suite: Literal["fsstress"] = "fsstress"
    operations: int = Field(default=500, ge=1)
    """Operations of each process."""
    processes: int = Field(default=4, ge=1)
    seed: int = Field(default=1, ge=1)

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the one command, which leaves its tree."""
        numbers = {"-n": self.operations, "-p": self.processes, "-s": self.seed}
        words = (word for name, value in numbers.items() for word in (name, str(value)))
        argv = ("sh", "-c", _KEEPING, place.path, "-d", place.directory, *words)
        return (SuiteStep(name=self.suite, argv=argv, directory="/"),)

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Judge the run; only the exit status tells whether it passed."""
        if ended.ok:
            return passed(name)
        return unknown(name, f"status {ended.status}: {tail(ended.stderr or ended.stdout)}")

    def compare(self, client: Machine, server: Machine, place: SuitePlace) -> SuiteOutcome:
        """Compare the tree as the client and as the server see it."""
        # The client must first send its dirty data to the server.
        client.succeed(["sync"], deadline_s=SYNC_DEADLINE_S)
        return compare_trees(read_tree(client, place.directory), read_tree(server, place.exported))

    def built(self) -> Path:
        """Return the program; fetch and compile it at the first request.

        Raises:
            RequirementMissing: no compiler, or Debian's keys are not installed.
            RigError: the source cannot be fetched, is no longer in the package, or does not compile.
        """
        address = cache.digest("1", PACKAGE, SUITE, *DEVELOPMENT, *FLAGS, *LIBRARIES)
        return cache.build("suite", address, _build) / "fsstress"


def listing_command(directory: str) -> list[str]:
    """Return the command that lists a tree: path, type, mode, size of files, target of links."""
    return [
        *["env", f"--chdir={directory}", "find", ".", "-mindepth", "1"],
        *["(", "-type", "f", "-printf", r"%P\t%y %m %s\n", "-o", "-printf", r"%P\t%y %m %l\n", ")"],
    ]


def sums_command(directory: str) -> list[str]:
    """Return the command that computes a checksum of every file of a tree."""
    return ["env", f"--chdir={directory}", "find", ".", "-type", "f", "-exec", "sha256sum", "{}", "+"]


def parse_tree(listing: str, sums: str) -> dict[str, str]:
    """Combine both outputs into a description by path.

    Raises:
        RigError: a line is not whole.
    """
    tree: dict[str, str] = {}
    for line in listing.splitlines():
        path, tab, said = line.partition("\t")
        if not tab:
            raise RigError(f"find should print a path and what it is: {line!r}")
        tree[path] = said.strip()
    for line in sums.splitlines():
        digest, gap, path = line.lstrip("\\").partition("  ./")
        if not gap or path not in tree:
            raise RigError(f"sha256sum should print the sum of a file that find had found: {line!r}")
        tree[path] += f" {digest}"
    return tree


def read_tree(machine: Machine, directory: str) -> dict[str, str]:
    """Return the description of a tree as a machine sees it."""
    listing = machine.succeed(listing_command(directory), deadline_s=LISTING_DEADLINE_S)
    return parse_tree(listing, machine.succeed(sums_command(directory), deadline_s=LISTING_DEADLINE_S))


def compare_trees(client: dict[str, str], server: dict[str, str]) -> SuiteOutcome:
    """Compare the tree as the client and as the server see it."""
    if not client and not server:
        return unknown(TREES, "nothing was left to be compared")
    different = sorted(path for path in {*client, *server} if client.get(path) != server.get(path))
    if not different:
        return passed(TREES)
    shown = [
        f"{path}: client {client.get(path, 'has none')}, server {server.get(path, 'has none')}"
        for path in different[:_SHOWN]
    ]
    return failed(TREES, f"{len(different)} of {len({*client, *server})} differ: {'; '.join(shown)}")
