"""fsx, the file system exerciser: random reads, writes, mappings and truncations of one file, each read compared.

There are several by that name: the one in C of xfstests and the one in Rust (crate ``fsx``) are called alike. LTP's
``fsx-linux`` takes no file but a directory by TMPDIR, and no seed.
"""

import re
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.layer import Spec
from raidproof.workload.suite.ltp_result import parse_ltp
from raidproof.workload.suite.outcome import SuiteOutcome, failed, passed, tail, unknown
from raidproof.workload.suite.place import SuitePlace, SuiteStep

NAME = "fsx"
LTP_NAME = "fsx-linux"
DONE = "A-OK!"
DUMPED = "LOG DUMP"
"""What every fsx prints once it has found a difference or an operation that failed; misuse ends without it."""

_FOUND = re.compile(r"BAD DATA|[Ss]ize error|miscompare|^short |[Ss]hort (?:read|write)|: [A-Z][a-z ]+$")


class Fsx(Spec):
    """One fsx on one file."""

    suite: Literal["fsx"] = "fsx"
    path: str | None = None
    """The program, on the host or in the machine; None is where the user says, or on either's path."""
    operations: int = Field(default=10_000, ge=1)
    seed: int = Field(default=1, ge=1)
    """Of the sequence of operations; 0 would mean the time of day."""
    deadline_s: float = Field(default=600.0, gt=0)


def fsx_steps(spec: Fsx, place: SuitePlace) -> tuple[SuiteStep, ...]:
    """Return the one command."""
    if PurePosixPath(place.path).name == LTP_NAME:
        argv: tuple[str, ...] = (place.path, "-N", str(spec.operations))
        return (SuiteStep(name=NAME, argv=argv, directory="/", environment={"TMPDIR": place.directory}),)
    argv = (place.path, "-N", str(spec.operations), "-S", str(spec.seed), "fsx-file")
    return (SuiteStep(name=NAME, argv=argv, directory=place.directory),)


def parse_fsx(name: str, ended: Completed) -> SuiteOutcome:
    """Read how it ended: it passed if it says so and its status agrees, and failed if it dumped its operations."""
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
