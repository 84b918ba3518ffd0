"""fsstress out of a source package of Debian: btrfs-progs tests itself with fstests' own; no binary package has it.

Its libraries for asynchronous operations come from the same suite, and so do the kernel's headers that they want; the
C library is this host's. The program is static, so that it runs in every guest.
"""

import re
import tarfile
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RigError
from raidproof.core.log import step
from raidproof.image import apt, cache

PACKAGE = "btrfs-progs"
SUITE = "trixie"
DEVELOPMENT = ("libaio-dev", "liburing-dev", "linux-libc-dev")
SOURCE = "tests/fsstress.c"
WANTED = re.compile(r"tests/fsstress\.c|common/internal\.h")
"""Of the tarball: the program, and the only header of btrfs-progs' own that it includes."""
FLAGS = (
    *("-O2", "-static", "-w", "-D_GNU_SOURCE", "-include", "sys/mman.h"),
    # What fstests' own configure finds on every Linux; without it, mappings and fallocate would do nothing and say so
    # to nobody.
    *(f"-DHAVE_{name}" for name in ("COPY_FILE_RANGE", "LINUX_FALLOC_H", "LINUX_FIEMAP_H", "SYS_MMAN_H")),
    "-DHAVE_SYS_PRCTL_H",
)
LIBRARIES = ("-luring", "-laio", "-lm")
FETCH_DEADLINE_S = 600.0
COMPILE_DEADLINE_S = 300.0


def built_fsstress() -> Path:
    """Return the program, which is fetched and compiled when it is first asked for.

    Raises:
        RequirementMissing: no compiler, or Debian's keys are not installed.
        RigError: it cannot be fetched, is no longer in there, or does not compile.
    """
    address = cache.digest("1", PACKAGE, SUITE, *DEVELOPMENT, *FLAGS, *LIBRARIES)
    return cache.build("suite", address, _build) / "fsstress"


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
    """Fetch the source, verified, with the settings of apt that the packages were fetched with."""
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
    """Take what is wanted out of a source tarball, without its top folder.

    Raises:
        RigError: it is not in there, or the tarball is not whole.
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
    """Return the command that compiles it."""
    triplet = "x86_64-linux-gnu"
    return [
        *("gcc", *FLAGS, f"-I{source}", f"-I{usr / 'include'}", f"-I{usr / 'include' / triplet}"),
        *("-o", target, source / SOURCE, f"-L{usr / 'lib' / triplet}", *LIBRARIES),
    ]
