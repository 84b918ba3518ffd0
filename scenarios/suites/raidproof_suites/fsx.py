"""fsx, the file system exerciser, as a suite of one test and as a workload of plans; built from the crate fsx."""

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
"""Version of the crate."""
TARGET = "x86_64-unknown-linux-gnu"
"""The Rust target for all guests.

With an explicit target, cargo applies RUSTFLAGS to the program only, not to procedural macros, which cannot be static.
"""
STATIC = "-C target-feature=+crt-static"
"""Flag of rustc for a static program."""
BUILD_DEADLINE_S = 900.0
REMEDY = f"{install_named(['cargo'])}; or use another fsx: --suite-path fsx=PATH"
_NETWORK = re.compile(r"spurious network error|failed to (?:download|fetch|query)|[Cc]ould not (?:connect|resolve)")

LTP_NAME = "fsx-linux"
"""Name of LTP's fsx, whose options differ from those of the other builds of fsx."""
FILE_SIZE = 256 * KIB
"""Maximum size of fsx's file in bytes; this is the default of fsx."""
DONE = "A-OK!"
"""Last words of an fsx that passed."""
DUMPED = "LOG DUMP"
"""Heading that every fsx prints after wrong data or a failed operation, and not after an invalid option."""
_FOUND = re.compile(r"BAD DATA|[Ss]ize error|miscompare|^short |[Ss]hort (?:read|write)|: [A-Z][a-z ]+$")


def _compile(partial: Path) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise RequirementMissing(f"this host lacks cargo, which compiles {CRATE}", remedy=REMEDY)
    step(f"compiling {CRATE} {VERSION} with cargo: takes a minute; later runs use the result")
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
    """Return the command that downloads fsx, compiles it in ``target``, and installs it in ``root``."""
    return [
        *(cargo, "install", CRATE, "--version", f"={VERSION}", "--locked", "--target", TARGET),
        *("--root", root, "--target-dir", target),
    ]


def explain(ended: Completed, where: Path) -> RaidproofError:
    """Return the error for a failed cargo: no space, no network, or a failed compilation, with cargo's message."""
    output = f"{ended.stdout}\n{ended.stderr}"
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return cache.no_room(where)
    found = output.find("error")
    why = " ".join(output[max(found, 0) :].split())[:400]
    if _NETWORK.search(output):
        return RigError(f"{CRATE} {VERSION} could not be downloaded: {why}", remedy="check the network")
    return RequirementMissing(f"the cargo of this host cannot compile {CRATE} {VERSION}: {why}", remedy=REMEDY)


class Fsx(Suite):
    """One run of fsx on one file."""

    programs: ClassVar[tuple[str, ...]] = ("fsx", LTP_NAME)
    remedy: ClassVar[str] = "build the fsx of fstests (ltp/fsx) or of LTP (fsx-linux), or install the crate fsx"

    suite: Literal["fsx"] = "fsx"
    operations: int = Field(default=10_000, ge=1)
    """Number of operations."""
    seed: int = Field(default=1, ge=1)
    """Seed of the sequence of operations; not 0, because fsx replaces a seed of 0 by the time of day."""

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the command that runs fsx."""
        return (self.step(place.path, place.directory),)

    def step(self, path: str, directory: str) -> SuiteStep:
        """Return the command for the fsx at ``path``, with its file in ``directory``."""
        argv: tuple[str, ...] = (path, "-N", str(self.operations))
        if PurePosixPath(path).name == LTP_NAME:
            return SuiteStep(name=self.suite, argv=argv, directory="/", environment={"TMPDIR": directory})
        argv = (*argv, "-S", str(self.seed), "fsx-file")
        return SuiteStep(name=self.suite, argv=argv, directory=directory)

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Return the result: passed if fsx reports success with status 0, failed if it printed its operations."""
        output = f"{ended.stdout}\n{ended.stderr}"
        if "TINFO: LTP version" in output:
            return parse_ltp(name, ended)
        if ended.ok and DONE in ended.stdout:
            return passed(name)
        if not ended.ok and DUMPED in output:
            lines = [line.strip() for line in output.partition(DUMPED)[0].splitlines()]
            findings = (line for line in lines if _FOUND.search(line))
            first = next(findings, tail(" ".join(lines)))
            return failed(name, f"{first} (status {ended.status})")
        return unknown(name, f"status {ended.status}: {tail(output)}")

    def built(self) -> Path:
        """Return the path of fsx on this host; download and compile fsx at the first call.

        Raises:
            RequirementMissing: this host lacks cargo, or its cargo cannot compile fsx.
            RigError: the crate cannot be downloaded, or the file system is full.
            DeadlineExceeded: the build exceeded `BUILD_DEADLINE_S`.
        """
        return cache.build("suite", cache.digest("1", CRATE, VERSION, TARGET, STATIC), _compile) / CRATE


class FsxSpec(Fsx, WorkloadSpec):
    """fsx as a workload of plans: each machine runs one fsx, on its own file."""

    tool: Literal["fsx"] = "fsx"

    def workload(self) -> "FsxWorkload":
        """Return the workload that runs fsx with these settings."""
        return FsxWorkload(self)

    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""
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
        """Install fsx on each machine, and create the directory of its file.

        Raises:
            RequirementMissing: neither host nor machine has fsx, and it cannot be built.
        """
        for machine in place.machines:
            # The machines of a lab accept bytes on standard input.
            self._paths[machine.name] = install(self.spec, cast("Target", machine))
            machine.succeed(["mkdir", "-p", own_directory(machine, place.directory, self.spec.tool)])

    def run(self, place: Place) -> Sample:
        """Run fsx on all machines at the same time.

        Raises:
            ProductError: a read returned other data than was written, or an operation failed.
            RigError: fsx exceeded its deadline, or ended without a result.
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
        """Remove the directory of each machine."""
        for machine in place.machines:
            machine.succeed(["rm", "-rf", own_directory(machine, place.directory, self.spec.tool)])
