"""fsx, the file system exerciser, built from its crate."""

import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import Field

from raidproof.core import command
from raidproof.core.command import Completed, install_named
from raidproof.core.errors import RaidproofError, RequirementMissing, RigError
from raidproof.core.layer import Spec
from raidproof.core.log import logger, step
from raidproof.image import cache
from raidproof.workload.suite.ltp import parse_ltp
from raidproof.workload.suite.place import SuiteOutcome, SuitePlace, SuiteStep, failed, passed, tail, unknown

CRATE = "fsx"
VERSION = "0.3.1"
TARGET = "x86_64-unknown-linux-gnu"
"""The target of every guest.

It must be named: only then cargo does not pass the flag to its plug-ins, which cannot be static.
"""
STATIC = "-C target-feature=+crt-static"
BUILD_DEADLINE_S = 900.0
REMEDY = f"{install_named(['cargo'])}; or say where a fsx is: --suite-path fsx=PATH"
_NETWORK = re.compile(r"spurious network error|failed to (?:download|fetch|query)|[Cc]ould not (?:connect|resolve)")

NAME = "fsx"
LTP_NAME = "fsx-linux"
DONE = "A-OK!"
DUMPED = "LOG DUMP"
"""Printed by every fsx that found a difference or a failed operation; not printed after misuse."""
_FOUND = re.compile(r"BAD DATA|[Ss]ize error|miscompare|^short |[Ss]hort (?:read|write)|: [A-Z][a-z ]+$")


def built_fsx() -> Path:
    """Return the program; compile it at the first request.

    Raises:
        RequirementMissing: there is no cargo, or this cargo does not compile fsx.
        RigError: the crate cannot be fetched, or no room is left.
        DeadlineExceeded: the build took too long.
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
    ended = command.follow(
        compile_command(cargo, root, scratch / "target"),
        logger.debug,
        environment={"RUSTFLAGS": f"{os.environ.get('RUSTFLAGS', '')} {STATIC}".strip()},
        deadline_s=BUILD_DEADLINE_S,
    )
    if not ended.ok:
        raise explain(ended, scratch)
    (root / "bin" / CRATE).rename(partial / CRATE)


def compile_command(cargo: str, root: Path, target: Path) -> list[str | Path]:
    """Return the command that fetches fsx, compiles it in ``target``, and installs it into ``root``."""
    return [
        *(cargo, "install", CRATE, "--version", f"={VERSION}", "--locked", "--target", TARGET),
        *("--root", root, "--target-dir", target),
    ]


def explain(ended: Completed, where: Path) -> RaidproofError:
    """Return an error with cargo's messages."""
    said = f"{ended.stdout}\n{ended.stderr}"
    if "No space left on device" in said or "Disk quota exceeded" in said:
        return cache.no_room(where)
    found = said.find("error")
    why = " ".join(said[max(found, 0) :].split())[:400]
    if _NETWORK.search(said):
        return RigError(f"{CRATE} {VERSION} could not be fetched: {why}", remedy="check the network")
    return RequirementMissing(f"this host's cargo does not compile {CRATE} {VERSION}: {why}", remedy=REMEDY)


class Fsx(Spec):
    """One fsx on one file."""

    suite: Literal["fsx"] = "fsx"
    path: str | None = None
    """The program, on the host or in the machine; None: from --suite-path, or from the PATH of either."""
    operations: int = Field(default=10_000, ge=1)
    seed: int = Field(default=1, ge=1)
    """Seed of the sequence of operations; 0 would mean the time of day."""
    deadline_s: float = Field(default=600.0, gt=0)


def fsx_steps(spec: Fsx, place: SuitePlace) -> tuple[SuiteStep, ...]:
    """Return the one command."""
    if PurePosixPath(place.path).name == LTP_NAME:
        argv: tuple[str, ...] = (place.path, "-N", str(spec.operations))
        return (SuiteStep(name=NAME, argv=argv, directory="/", environment={"TMPDIR": place.directory}),)
    argv = (place.path, "-N", str(spec.operations), "-S", str(spec.seed), "fsx-file")
    return (SuiteStep(name=NAME, argv=argv, directory=place.directory),)


def parse_fsx(name: str, ended: Completed) -> SuiteOutcome:
    """Judge the run: passed if the output and the status agree, failed if fsx dumped its operations."""
    said = f"{ended.stdout}\n{ended.stderr}"
    if "TINFO: LTP version" in said:
        return parse_ltp(name, ended)
    if ended.ok and DONE in ended.stdout:
        return passed(name)
    if not ended.ok and DUMPED in said:
        lines = [line.strip() for line in said.partition(DUMPED)[0].splitlines()]
        told = (line for line in lines if _FOUND.search(line))
        first = next(told, tail(" ".join(lines)))
        return failed(name, f"{first} (status {ended.status})")
    return unknown(name, f"status {ended.status}: {tail(said)}")
