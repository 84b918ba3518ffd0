"""The QEMU that runs a machine: this host's own, or for emulation a newer one where this host's is not to be trusted.

Guests that QEMU 7.2 emulates on a busy host oops with bits in EFLAGS that nobody sets: 11 of 70 boots, and under QEMU
10.0 none of 20 (docs/findings.md). A guest that dies of its processor would be taken for one that dies of its kernel.
"""

import re
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RigError
from raidproof.core.log import step
from raidproof.image import apt, cache

PROGRAM = "qemu-system-x86_64"
TRUSTED = (10, 0)
"""The oldest version under which no such oops was seen; those between 7.2 and it were not tried."""
SUITE = "trixie"
_PARTS = re.compile(r"qemu-system-(?:x86|common|data)|seabios|lib\S+|zlib1g")


def version() -> tuple[int, ...]:
    """Return the version of this host's QEMU.

    Raises:
        RequirementMissing: there is none.
    """
    said = command.succeed([PROGRAM, "--version"])
    found = re.search(r"version (\d+)\.(\d+)", said)
    if found is None:
        raise RigError(f"{PROGRAM} does not say its version: {said.strip()[:80]}")
    return tuple(map(int, found.groups()))


def for_emulation() -> tuple[str, ...]:
    """Return the words that start a QEMU whose emulation can be trusted; fetch one where this host's cannot.

    Raises:
        RequirementMissing, RigError: it cannot be fetched.
    """
    if version() >= TRUSTED:
        return (PROGRAM,)
    folder = cache.build("qemu", cache.digest("1", SUITE, _PARTS.pattern), _fetch)
    # Its own C library and all the others, too, so that this host's need not fit.
    libraries = folder / "tree" / "usr" / "lib" / "x86_64-linux-gnu"
    share = folder / "tree" / "usr" / "share"
    return (
        *(str(libraries / "ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:{libraries / 'pulseaudio'}"),
        str(folder / "tree" / "usr" / "bin" / PROGRAM),
        *("-L", str(share / "qemu"), "-L", str(share / "seabios")),
    )


def _fetch(partial: Path) -> None:
    step(f"fetching QEMU from Debian {SUITE}: the emulation of this host's is not to be trusted")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    for package in apt.download_behind(SUITE, "qemu-system-x86", _PARTS, scratch).values():
        apt.unpack(package, partial / "tree")
