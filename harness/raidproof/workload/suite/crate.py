"""fsx out of its crate: compiled here by cargo, without a library of this host's, so that it runs in every guest."""

import os
import re
import shutil
from pathlib import Path

from raidproof.core import program
from raidproof.core.command import Completed
from raidproof.core.errors import RaidproofError, RequirementMissing, RigError
from raidproof.core.host_packages import install_named
from raidproof.core.log import logger, step
from raidproof.image import cache

CRATE = "fsx"
VERSION = "0.3.1"
TARGET = "x86_64-unknown-linux-gnu"
"""What every guest is. Named, because only then cargo spares its own plug-ins, which cannot be static, the flag."""
STATIC = "-C target-feature=+crt-static"
BUILD_DEADLINE_S = 900.0
REMEDY = f"{install_named(['cargo'])}; or say where a fsx is: --suite-path fsx=PATH"
_NETWORK = re.compile(r"spurious network error|failed to (?:download|fetch|query)|[Cc]ould not (?:connect|resolve)")


def built_fsx() -> Path:
    """Return the program, which is compiled when it is first asked for.

    Raises:
        RequirementMissing: there is no cargo, or this one does not compile it.
        RigError: the crate cannot be fetched, or no room is left.
        DeadlineExceeded: it took too long.
    """
    return cache.build("suite", cache.digest("1", CRATE, VERSION, TARGET, STATIC), _compile) / CRATE


def _compile(partial: Path) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise RequirementMissing(f"there is no cargo to compile {CRATE} with", remedy=REMEDY)
    step(f"compiling {CRATE} {VERSION} with cargo: takes a minute, and is done once")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    root = scratch / "root"
    ended = program.follow(
        compile_command(cargo, root, scratch / "target"),
        logger.debug,
        environment={"RUSTFLAGS": f"{os.environ.get('RUSTFLAGS', '')} {STATIC}".strip()},
        deadline_s=BUILD_DEADLINE_S,
    )
    if not ended.ok:
        raise explain(ended, scratch)
    (root / "bin" / CRATE).rename(partial / CRATE)


def compile_command(cargo: str, root: Path, target: Path) -> list[str | Path]:
    """Return the command that fetches it, compiles it in ``target``, and puts it into ``root``."""
    return [
        *(cargo, "install", CRATE, "--version", f"={VERSION}", "--locked", "--target", TARGET),
        *("--root", root, "--target-dir", target),
    ]


def explain(ended: Completed, where: Path) -> RaidproofError:
    """Say why cargo failed, in its own words."""
    said = f"{ended.stdout}\n{ended.stderr}"
    if "No space left on device" in said or "Disk quota exceeded" in said:
        return cache.no_room(where)
    found = said.find("error")
    why = " ".join(said[max(found, 0) :].split())[:400]
    if _NETWORK.search(said):
        return RigError(f"{CRATE} {VERSION} could not be fetched: {why}", remedy="check the network")
    return RequirementMissing(f"this host's cargo does not compile {CRATE} {VERSION}: {why}", remedy=REMEDY)
