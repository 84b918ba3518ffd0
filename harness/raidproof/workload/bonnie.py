"""The workload bonnie++ 2.00: it accesses one large file in blocks, then creates, stats and removes small files.

The results come from the line of comma-separated values that bonnie++ prints. bonnie++ prints no rate for a phase that
took less than 0.5 s; the results lack this rate.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, State, power_of_two
from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import now_ns
from raidproof.workload.workload import DirectoryTool, Place, Sample, ToolSize, Work, WorkloadSpec, added, run_limited

FIELDS = 50
"""Number of fields in the result line that bonnie++ prints, by bon_csv2html(1)."""
LARGE = {"putc": 9, "write": 11, "rewrite": 13, "getc": 15, "read": 17}
"""Index in the result line of each rate of the large file (KiB/s), by phase; the next field is the CPU load."""
SEEKS = 19
"""Index in the result line of the seeks per second in the large file."""
SMALL = {"creates": 26, "stats": 28, "removes": 30, "random_creates": 32, "random_stats": 34, "random_removes": 36}
"""Index in the result line of each rate of the small files (files per second), by phase."""
NOT_MEASURED = re.compile(r"\+*")
"""Content of a field of the result line if bonnie++ measured no rate: empty, or plus signs."""
FILES = 1024
"""Number of files for which 1 stands in the option ``-n`` of bonnie++(8)."""


class BonnieSpec(WorkloadSpec):
    """Options of bonnie++(8). bonnie++ requires whole MiB for the large file and for the RAM."""

    tool: Literal["bonnie"] = "bonnie"
    size: Annotated[ToolSize, Field(ge=0, multiple_of=MIB)] = 1024 * MIB
    """Bytes of the large file; 0: no large file."""
    ram: Annotated[ToolSize, Field(ge=0, multiple_of=MIB)] | None = None
    """Bytes of RAM: bonnie++ refuses a large file of less than twice this size. None: the RAM of the machine.

    With 0, bonnie++ accepts a large file of every size, also one that fits into caches.
    """
    number: int = Field(default=16, ge=0)
    """Number of small files, in units of 1024; 0: no small files."""
    largest: Annotated[ToolSize, Field(ge=0)] = 0
    """Bytes of the largest small file."""
    smallest: Annotated[ToolSize, Field(ge=0)] = 0
    """Bytes of the smallest small file."""
    directories: int = Field(default=0, ge=0)
    """Number of directories for the small files; 0: all files are in one directory."""
    chunk: Annotated[ToolSize, Field(ge=256, le=MIB)] = 8 * KIB
    """Bytes of one read or write of the large file."""
    fast: bool = True
    """``-f``: skip the tests that read and write single characters; these tests measure the CPU."""
    fsync: bool = False
    """``-b``: call fsync after every write."""
    direct: bool = False
    """``-D``: use O_DIRECT for the large file."""
    deadline_s: float = Field(default=3600.0, gt=0)
    """Time limit of bonnie++ in seconds."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.size and not self.number:
            raise RequestError(
                "bonnie: size is 0 and number is 0, so that there is no file to test",
                remedy="set size (bytes of the large file) or number (thousands of small files)",
            )
        if self.smallest > self.largest:
            raise RequestError(
                f"bonnie: smallest ({self.smallest} bytes) must not exceed largest ({self.largest} bytes)"
            )
        if not power_of_two(self.chunk):
            raise RequestError(
                f"bonnie: chunk must be a power of two, not {self.chunk} bytes",
                remedy="set chunk to a power of two from 256 bytes to 1 MiB",
            )
        if self.ram and self.size and self.size < 2 * self.ram:
            raise RequestError(
                f"bonnie: size {self.size} bytes is less than twice ram {self.ram} bytes; bonnie++ refuses this",
                remedy="set size to at least twice ram, or set ram = 0 to allow files that fit into caches",
            )
        return self

    def workload(self) -> "Bonnie":
        """Return the workload that runs bonnie++ with these settings."""
        return Bonnie(self)

    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""
        # Of the phase with the primary value: it writes the large file, or creates small files.
        return Work(
            self.workload().working_set,
            reads=False,
            writes=True,
            durable="each" if self.fsync else "no",
            direct=self.direct and bool(self.size),
            closes=not self.size,
            everywhere=True,
        )


class BonnieState(State):
    """The rates that bonnie++ measured; a skipped or too short phase has no rate."""

    mb_s: dict[str, float]
    """Rates of the large file in 10^6 bytes/s, by phase: write, rewrite, read."""
    per_s: dict[str, float]
    """Operations per second, by phase: seeks in the large file; creates, stats and removes of small files."""

    @property
    def values(self) -> dict[str, float]:
        """The measured rates by name; a name ends with the unit, for example ``write_mb_s``."""
        return {f"{name}_mb_s": rate for name, rate in self.mb_s.items()} | {
            f"{name}_s": rate for name, rate in self.per_s.items()
        }


def bonnie_command(spec: BonnieSpec, directory: str) -> list[str]:
    """Return the command that runs bonnie++ in a directory; its standard output is the result line."""
    words = ["bonnie++", "-q", "-d", directory]
    words += ["-s", f"{spec.size // MIB}:{spec.chunk}" if spec.size else "0"]
    form = f":{spec.largest}:{spec.smallest}:{spec.directories}" if spec.largest or spec.directories else ""
    words += ["-n", f"{spec.number}{form}"]
    words += ["-r", str(spec.ram // MIB)] if spec.ram is not None else []
    flags = {"-f": spec.fast, "-b": spec.fsync, "-D": spec.direct}
    return [*words, "-u", "root", *(flag for flag, on in flags.items() if on), "-x", "1"]


def parse_bonnie(text: str) -> BonnieState:
    """Return the rates in a result line. bonnie++'s K/s are KiB/s; ``+++++`` or an empty field is a missing rate.

    Raises:
        RigError: the text is not one complete line, or a rate is not a number.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if len(lines) != 1 or not text.endswith("\n"):
        raise RigError(
            f"bonnie++ printed {len(lines)} result lines instead of 1 complete line: {text.strip()[-300:]!r}"
        )
    cells = lines[0].split(",")
    if len(cells) != FIELDS:
        raise RigError(f"the result line of bonnie++ has {len(cells)} fields instead of {FIELDS}: {lines[0][-300:]!r}")

    def measured(places: dict[str, int]) -> dict[str, float]:
        return {name: _rate(name, cells[at]) for name, at in places.items() if not NOT_MEASURED.fullmatch(cells[at])}

    return BonnieState(
        mb_s={name: rate * KIB / 1e6 for name, rate in measured(LARGE).items()},
        per_s=measured({"seeks": SEEKS} | SMALL),
    )


def _rate(name: str, cell: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", cell):
        raise RigError(f"rate {name} in the result line of bonnie++: expected a number, found {cell!r}")
    return float(cell)


def bonnie_sample(states: dict[str, BonnieState], primary: str, seconds: float, output: dict[str, str]) -> Sample:
    """Return the sums of the rates of all machines; leave out a rate that one of the machines lacks.

    Raises:
        RigError: a machine lacks the primary rate.
    """
    values = added([state.values for state in states.values()])
    if primary not in values:
        raise RigError(
            f"bonnie++ measured no {primary}: this phase took less than half a second",
            remedy="set a larger size (bytes of the large file) or number (thousands of small files)",
        )
    return Sample(primary=primary, values=values, seconds=seconds, output=output)


class Bonnie(DirectoryTool[BonnieSpec]):
    """Runs bonnie++ on all machines at the same time, each in its own directory."""

    programs = ("bonnie++", "timeout")

    @property
    def primary(self) -> str:
        """Name of the primary value: the rate of writing the large file; without it, of creating small files."""
        return "write_mb_s" if self.spec.size else "creates_s"

    @property
    def working_set(self) -> int:
        """Bytes of the large file or of all small files, the larger of the two."""
        return max(self.spec.size, self.spec.number * FILES * (self.spec.largest + self.spec.smallest) // 2)

    def room(self) -> int:
        """Return the maximum bytes of one machine's files: the large file or all small files, the larger of both."""
        return max(self.spec.size, self.spec.number * FILES * self.spec.largest)

    def run(self, place: Place) -> Sample:
        """Run all phases of bonnie++ once on each machine.

        Raises:
            DeadlineExceeded: bonnie++ did not end within ``deadline_s``.
            RigError: bonnie++ failed, its result line is malformed, or the phase of the primary value was too short.
        """
        begun = now_ns()
        output = self.run_everywhere(place)
        seconds = (now_ns() - begun) / 1e9
        states = {name: parse_bonnie(text) for name, text in output.items()}
        return bonnie_sample(states, self.primary, seconds, output)

    def run_on(self, machine: Machine, directory: str) -> str:
        """Run bonnie++ on one machine, and return its result line."""
        ended = run_limited(machine, bonnie_command(self.spec, directory), self.spec.deadline_s)
        if not ended.ok:
            # The error message comes first; the usage text follows.
            said = (ended.stderr.strip() or ended.stdout.strip()).partition("usage:")[0].splitlines()
            raise RigError(
                f"{machine.name}: bonnie++ ended with status {ended.status}: {' '.join(said)[:300] or 'no output'}"
            )
        return ended.stdout
