"""The suite fsstress: random operations on a directory tree; built from the source package of btrfs-progs."""

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
"""Debian's source package that contains fsstress."""
SUITE = "trixie"
"""Release of Debian."""
DEVELOPMENT = ("libaio-dev", "liburing-dev", "linux-libc-dev")
"""Packages with the headers and static libraries for the build."""
SOURCE = "tests/fsstress.c"
"""Path of the program's source in the tarball."""
WANTED = re.compile(r"tests/fsstress\.c|common/internal\.h")
"""The needed files of the tarball: the source, and the only header of btrfs-progs that it includes."""
FLAGS = (
    *("-O2", "-static", "-w", "-D_GNU_SOURCE", "-include", "sys/mman.h"),
    # The macros that the configure script of fstests defines on every Linux. Without them, fsstress silently omits
    # operations such as mmap and fallocate.
    *(f"-DHAVE_{name}" for name in ("COPY_FILE_RANGE", "LINUX_FALLOC_H", "LINUX_FIEMAP_H", "SYS_MMAN_H")),
    "-DHAVE_SYS_PRCTL_H",
)
LIBRARIES = ("-luring", "-laio", "-lm")
FETCH_DEADLINE_S = 600.0
COMPILE_DEADLINE_S = 300.0

TREES = "trees agree"
"""Name of the test that compares the trees on client and server."""
LISTING_DEADLINE_S = 300.0
SYNC_DEADLINE_S = 300.0
_SHOWN = 5
"""Maximum number of paths in the reason of a failed comparison."""
# LTP's fsstress removes its tree unless it has the option -c; the one of xfstests removes its tree with -c.
_KEEPING = """if "$0" -H 2>&1 | grep -q 'not to remove'; then set -- -c "$@"; fi; exec "$0" "$@\""""


def _build(partial: Path) -> None:
    step(f"compiling fsstress from the source package {PACKAGE} of Debian {SUITE}; later runs use the result")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    tree, source = scratch / "tree", scratch / "source"
    for package in apt.download(SUITE, DEVELOPMENT, scratch).values():
        apt.unpack(package, tree)
    extract(_tarball(scratch), source)
    command.succeed(compile_command(source, tree / "usr", partial / "fsstress"), deadline_s=COMPILE_DEADLINE_S)


def _tarball(scratch: Path) -> Path:
    """Download and verify the source package, with the settings in ``scratch``/apt.conf; return the tarball's path."""
    origin = apt.source(SUITE)
    sources = scratch / "sources.list"
    sources.write_text(f"deb-src [signed-by={origin.keyring} target=Sources] {origin.mirror} {SUITE} main\n")
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
            raise apt.explain(ended, f"downloading the source of {PACKAGE} of Debian {SUITE}", scratch)
    found = list(place.glob("*.orig.tar.*"))
    if len(found) != 1:
        raise RigError(f"apt downloaded {len(found)} tarballs of {PACKAGE} instead of 1")
    return found[0]


def extract(tarball: Path, target: Path) -> None:
    """Extract the files that match `WANTED` from a source tarball, without the tarball's top folder.

    Raises:
        RigError: the tarball lacks the source of fsstress, or is truncated or damaged.
    """
    try:
        with tarfile.open(tarball) as archive:
            for entry in archive:
                _, _, name = entry.name.partition("/")
                if entry.isfile() and WANTED.fullmatch(name) and (content := archive.extractfile(entry)):
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (target / name).write_bytes(content.read())
    except (EOFError, tarfile.TarError) as error:
        raise RigError(f"{tarball.name} is truncated or damaged: {error}") from error
    if not (target / SOURCE).exists():
        raise RigError(
            f"{tarball.name} no longer has {SOURCE}", remedy="use another fsstress: --suite-path fsstress=PATH"
        )


def compile_command(source: Path, usr: Path, target: Path) -> list[str | Path]:
    """Return the command that compiles fsstress to ``target``; ``usr`` has the headers and libraries."""
    triplet = "x86_64-linux-gnu"
    return [
        *("gcc", *FLAGS, f"-I{source}", f"-I{usr / 'include'}", f"-I{usr / 'include' / triplet}"),
        *("-o", target, source / SOURCE, f"-L{usr / 'lib' / triplet}", *LIBRARIES),
    ]


class Fsstress(Suite):
    """One run of fsstress (of LTP or of xfstests) on one directory tree."""

    programs: ClassVar[tuple[str, ...]] = ("fsstress",)
    remedy: ClassVar[str] = "build the fsstress of LTP or of fstests (ltp/fsstress)"

    suite: Literal["fsstress"] = "fsstress"
    operations: int = Field(default=500, ge=1)
    """Number of operations of each process."""
    processes: int = Field(default=4, ge=1)
    """Number of processes that work on the tree at the same time."""
    seed: int = Field(default=1, ge=1)
    """Seed of the sequence of operations."""

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the command that runs fsstress with an option to keep its tree at the end."""
        numbers = {"-n": self.operations, "-p": self.processes, "-s": self.seed}
        words = (word for name, value in numbers.items() for word in (name, str(value)))
        argv = ("sh", "-c", _KEEPING, place.path, "-d", place.directory, *words)
        return (SuiteStep(name=self.suite, argv=argv, directory="/"),)

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Return the result of the run by its exit status: fsstress prints no results."""
        if ended.ok:
            return passed(name)
        return unknown(name, f"status {ended.status}: {tail(ended.stderr or ended.stdout)}")

    def compare(self, client: Machine, server: Machine, place: SuitePlace) -> SuiteOutcome:
        """Compare the tree on the client with the tree on the server."""
        # The client must first send its dirty data to the server.
        client.succeed(["sync"], deadline_s=SYNC_DEADLINE_S)
        return compare_trees(read_tree(client, place.directory), read_tree(server, place.exported))

    def built(self) -> Path:
        """Return the path of fsstress on this host; download and compile fsstress at the first call.

        Raises:
            RequirementMissing: this host lacks a compiler, or the keys of Debian's archive.
            RigError: the source cannot be downloaded, is no longer in the package, or does not compile.
        """
        address = cache.digest("1", PACKAGE, SUITE, *DEVELOPMENT, *FLAGS, *LIBRARIES)
        return cache.build("suite", address, _build) / "fsstress"


def listing_command(directory: str) -> list[str]:
    """Return the command that lists path, type and mode of all names of a tree, size of files, target of links."""
    return [
        *["env", f"--chdir={directory}", "find", ".", "-mindepth", "1"],
        *["(", "-type", "f", "-printf", r"%P\t%y %m %s\n", "-o", "-printf", r"%P\t%y %m %l\n", ")"],
    ]


def sums_command(directory: str) -> list[str]:
    """Return the command that prints the SHA-256 checksum of every file of a tree."""
    return ["env", f"--chdir={directory}", "find", ".", "-type", "f", "-exec", "sha256sum", "{}", "+"]


def parse_tree(listing: str, sums: str) -> dict[str, str]:
    """Return the description of each path, from the outputs of `listing_command` and `sums_command`.

    Raises:
        RigError: a line is truncated or malformed.
    """
    tree: dict[str, str] = {}
    for line in listing.splitlines():
        path, tab, facts = line.partition("\t")
        if not tab:
            raise RigError(f"find printed a malformed line: {line!r}")
        tree[path] = facts.strip()
    for line in sums.splitlines():
        digest, gap, path = line.lstrip("\\").partition("  ./")
        if not gap or path not in tree:
            raise RigError(f"sha256sum printed a malformed line, or a path that find did not list: {line!r}")
        tree[path] += f" {digest}"
    return tree


def read_tree(machine: Machine, directory: str) -> dict[str, str]:
    """Return the description of each path of a tree on a machine."""
    listing = machine.succeed(listing_command(directory), deadline_s=LISTING_DEADLINE_S)
    return parse_tree(listing, machine.succeed(sums_command(directory), deadline_s=LISTING_DEADLINE_S))


def compare_trees(client: dict[str, str], server: dict[str, str]) -> SuiteOutcome:
    """Return the result of the comparison of a tree on the client and on the server."""
    if not client and not server:
        return unknown(TREES, "both trees are empty")
    different = sorted(path for path in {*client, *server} if client.get(path) != server.get(path))
    if not different:
        return passed(TREES)
    shown = [
        f"{path}: client {client.get(path, 'missing')}, server {server.get(path, 'missing')}"
        for path in different[:_SHOWN]
    ]
    return failed(TREES, f"{len(different)} of {len({*client, *server})} paths differ: {'; '.join(shown)}")
