"""fsx, the file system exerciser, built from its crate: a suite of one test, and a workload of plans."""

import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal, cast

from pydantic import Field

from raidproof.core import command
from raidproof.core.command import Completed, install_named
from raidproof.core.errors import ProductError, RaidproofError, RequirementMissing, RigError
from raidproof.core.layer import Machine
from raidproof.core.log import logger, step
from raidproof.core.units import KIB
from raidproof.core.waiting import now_ns
from raidproof.image import cache
from raidproof.record.suite import SuiteOutcome
from raidproof.workload.workload import Place, Sample, Work, WorkloadSpec, on_all, own_directory, run_limited
from raidproof_suites.ltp import parse_ltp
from raidproof_suites.suite import Suite, SuitePlace, SuiteStep, Target, failed, install, passed, tail, unknown

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

LTP_NAME = "fsx-linux"
FILE_SIZE = 256 * KIB
"""Maximum size of the file in bytes; the default of fsx."""
DONE = "A-OK!"
DUMPED = "LOG DUMP"
"""Printed by every fsx that found a difference or a failed operation; not printed after misuse."""
_FOUND = re.compile(r"BAD DATA|[Ss]ize error|miscompare|^short |[Ss]hort (?:read|write)|: [A-Z][a-z ]+$")


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


class Fsx(Suite):
    """One fsx on one file."""

    programs: ClassVar[tuple[str, ...]] = ("fsx", LTP_NAME)
    remedy: ClassVar[str] = "build that of fstests (ltp/fsx) or of LTP (fsx-linux), or install the crate fsx"

    suite: Literal["fsx"] = "fsx"
    operations: int = Field(default=10_000, ge=1)
    seed: int = Field(default=1, ge=1)
    """Seed of the sequence of operations; 0 would mean the time of day."""

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the one command."""
        return (self.step(place.path, place.directory),)

    def step(self, path: str, directory: str) -> SuiteStep:
        """Return the command for a program of fsx and a directory for its file."""
        argv: tuple[str, ...] = (path, "-N", str(self.operations))
        if PurePosixPath(path).name == LTP_NAME:
            return SuiteStep(name=self.suite, argv=argv, directory="/", environment={"TMPDIR": directory})
        argv = (*argv, "-S", str(self.seed), "fsx-file")
        return SuiteStep(name=self.suite, argv=argv, directory=directory)

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
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

    def built(self) -> Path:
        """Return the program; compile it at the first request.

        Raises:
            RequirementMissing: there is no cargo, or this cargo does not compile fsx.
            RigError: the crate cannot be fetched, or no room is left.
            DeadlineExceeded: the build took too long.
        """
        return cache.build("suite", cache.digest("1", CRATE, VERSION, TARGET, STATIC), _compile) / CRATE


class FsxSpec(Fsx, WorkloadSpec):
    """fsx in a plan: each machine runs one, on a file of its own."""

    tool: Literal["fsx"] = "fsx"

    def workload(self) -> "FsxWorkload":
        """Return the tool with these settings, ready to run."""
        return FsxWorkload(self)

    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""
        return Work(FILE_SIZE, reads=True, writes=True, once=False, everywhere=True)


class FsxWorkload:
    """Runs fsx on all machines at the same time, each in its own directory."""

    programs = ("timeout",)
    working_set = FILE_SIZE
    timed_s: float | None = None

    def __init__(self, spec: FsxSpec) -> None:
        self.spec = spec
        self._paths: dict[str, str] = {}

    def prepare(self, place: Place) -> None:
        """Install fsx and create the directories.

        Raises:
            RequirementMissing: fsx is nowhere, and cannot be built.
        """
        for machine in place.machines:
            # A lab's machines accept bytes, too.
            self._paths[machine.name] = install(self.spec, cast("Target", machine))
            machine.succeed(["mkdir", "-p", own_directory(machine, place.directory, self.spec.tool)])

    def run(self, place: Place) -> Sample:
        """Run fsx to its end.

        Raises:
            ProductError: a read did not return what was written, or an operation failed.
            RigError: fsx ran too long, or did not come to its end.
        """
        begun = now_ns()
        ended = on_all(place.machines, lambda machine: self._run_on(machine, place.directory))
        seconds = (now_ns() - begun) / 1e9
        for name, one in ended.items():
            outcome = self.spec.parse(name, one)
            if outcome.failed:
                raise ProductError(f"fsx: {outcome.failed[0]}")
            if not outcome.passed:
                raise RigError(f"fsx: {'; '.join(map(str, (*outcome.unknown, *outcome.skipped)))}")
        return Sample(
            primary="operations_s",
            values={"operations_s": self.spec.operations * len(ended) / seconds},
            seconds=seconds,
            output={name: f"{one.stdout}{one.stderr}" for name, one in ended.items()},
        )

    def _run_on(self, machine: Machine, directory: str) -> Completed:
        step = self.spec.step(self._paths[machine.name], own_directory(machine, directory, self.spec.tool))
        return run_limited(machine, step.command, self.spec.deadline_s)

    def clean(self, place: Place) -> None:
        """Remove the directories."""
        for machine in place.machines:
            machine.succeed(["rm", "-rf", own_directory(machine, place.directory, self.spec.tool)])
