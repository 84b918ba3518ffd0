"""bonnie++: one large file by blocks, then many small files; results from its line of comma-separated values.

Of version 2.00. bonnie++ prints no rate for a phase that took less than 0.5 s; such values are left out here, too.
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
"""Number of fields of a result line, by bon_csv2html(1)."""
LARGE = {"putc": 9, "write": 11, "rewrite": 13, "getc": 15, "read": 17}
"""Fields with the rates of the large file, in KiB/s; the field after each is the share of a CPU."""
SEEKS = 19
SMALL = {"creates": 26, "stats": 28, "removes": 30, "random_creates": 32, "random_stats": 34, "random_removes": 36}
"""Fields with the rates of the small files."""
NOT_MEASURED = re.compile(r"\+*")
FILES = 1024
"""bonnie++ counts files in units of this many."""


class BonnieSpec(WorkloadSpec):
    """Options of bonnie++; sizes are whole MiB, as bonnie++ requires."""

    tool: Literal["bonnie"] = "bonnie"
    size: Annotated[ToolSize, Field(ge=0, multiple_of=MIB)] = 1024 * MIB
    """Bytes of the large file; 0: none."""
    ram: Annotated[ToolSize, Field(ge=0, multiple_of=MIB)] | None = None
    """bonnie++ refuses a file below twice this many bytes. None: bonnie++ asks the machine.

    0: no limit, measures caches too.
    """
    number: int = Field(default=16, ge=0)
    """Number of small files, in units of 1024; 0: none."""
    largest: Annotated[ToolSize, Field(ge=0)] = 0
    smallest: Annotated[ToolSize, Field(ge=0)] = 0
    directories: int = Field(default=0, ge=0)
    """Directories of the small files; 0: all in one."""
    chunk: Annotated[ToolSize, Field(ge=256, le=MIB)] = 8 * KIB
    """Bytes of one read or write of the large file."""
    fast: bool = True
    """``-f``: skip the tests that go character by character, which measure the CPU."""
    fsync: bool = False
    """``-b``: fsync after every write."""
    direct: bool = False
    """``-D``: O_DIRECT for the large file."""
    deadline_s: float = Field(default=3600.0, gt=0)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.size and not self.number:
            raise RequestError("bonnie: neither a large file nor small ones", remedy="a size, or a number")
        if self.smallest > self.largest:
            raise RequestError(f"bonnie: files from {self.smallest} to {self.largest} bytes; the smaller comes first")
        if not power_of_two(self.chunk):
            raise RequestError(
                f"bonnie: the chunk size must be a power of two, not {self.chunk} bytes",
                remedy="use a power of two from 256 bytes to 1 MiB",
            )
        if self.ram and self.size and self.size < 2 * self.ram:
            raise RequestError(
                f"bonnie: a file of {self.size} bytes in {self.ram} bytes of RAM measures the cache",
                remedy="at least twice the RAM, or ram = 0",
            )
        return self

    def workload(self) -> "Bonnie":
        """Return the tool with these settings, ready to run."""
        return Bonnie(self)

    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""
        # For the primary value: writing the large file, or creating small ones.
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
    """The results of bonnie++, without values that it left out or could not measure."""

    mb_s: dict[str, float]
    """Rates of the large file, in 10^6 bytes/s: write, rewrite, read."""
    per_s: dict[str, float]
    """Per second: seeks of the large file; creates, stats, removes of small files, and these in random order."""

    @property
    def values(self) -> dict[str, float]:
        """All values, by a name with its unit."""
        return {f"{name}_mb_s": rate for name, rate in self.mb_s.items()} | {
            f"{name}_s": rate for name, rate in self.per_s.items()
        }


def bonnie_command(spec: BonnieSpec, directory: str) -> list[str]:
    """Return the command; its standard output is the result line only."""
    words = ["bonnie++", "-q", "-d", directory]
    words += ["-s", f"{spec.size // MIB}:{spec.chunk}" if spec.size else "0"]
    form = f":{spec.largest}:{spec.smallest}:{spec.directories}" if spec.largest or spec.directories else ""
    words += ["-n", f"{spec.number}{form}"]
    words += ["-r", str(spec.ram // MIB)] if spec.ram is not None else []
    flags = {"-f": spec.fast, "-b": spec.fsync, "-D": spec.direct}
    return [*words, "-u", "root", *(flag for flag, on in flags.items() if on), "-x", "1"]


def parse_bonnie(text: str) -> BonnieState:
    """Parse the result line: K/s are KiB/s; ``+++++`` or an empty field was not measured.

    Raises:
        RigError: the text is not one whole line, or a rate is not a number.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if len(lines) != 1 or not text.endswith("\n"):
        raise RigError(f"bonnie++ should print one line, not {len(lines)}: {text.strip()[-300:]!r}")
    cells = lines[0].split(",")
    if len(cells) != FIELDS:
        raise RigError(f"bonnie++'s line has {len(cells)} fields instead of {FIELDS}: {lines[0][-300:]!r}")

    def measured(places: dict[str, int]) -> dict[str, float]:
        return {name: _rate(name, cells[at]) for name, at in places.items() if not NOT_MEASURED.fullmatch(cells[at])}

    return BonnieState(
        mb_s={name: rate * KIB / 1e6 for name, rate in measured(LARGE).items()},
        per_s=measured({"seeks": SEEKS} | SMALL),
    )


def _rate(name: str, cell: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", cell):
        raise RigError(f"bonnie++'s rate of {name} should be a number: {cell!r}")
    return float(cell)


def bonnie_sample(states: dict[str, BonnieState], primary: str, seconds: float, output: dict[str, str]) -> Sample:
    """Add up the rates of all machines; leave out a rate that one of them could not measure.

    Raises:
        RigError: the primary rate is missing.
    """
    values = added([state.values for state in states.values()])
    if primary not in values:
        raise RigError(
            f"bonnie++ did not measure {primary}: it took less than half a second",
            remedy="a larger size, or number",
        )
    return Sample(primary=primary, values=values, seconds=seconds, output=output)


class Bonnie(DirectoryTool[BonnieSpec]):
    """Runs bonnie++ on all machines at the same time, each in its own directory."""

    programs = ("bonnie++", "timeout")

    @property
    def primary(self) -> str:
        """Name of the primary value: writing the large file; without a large file, creating small ones."""
        return "write_mb_s" if self.spec.size else "creates_s"

    @property
    def working_set(self) -> int:
        """Bytes of the large file, or of all small files if they are more."""
        return max(self.spec.size, self.spec.number * FILES * (self.spec.largest + self.spec.smallest) // 2)

    def room(self) -> int:
        """Return the bytes of the large file, or of all small files if they are more."""
        return max(self.spec.size, self.spec.number * FILES * self.spec.largest)

    def run(self, place: Place) -> Sample:
        """Run all phases once.

        Raises:
            DeadlineExceeded: bonnie++ ran too long.
            RigError: bonnie++ failed, its line cannot be parsed, or the primary phase was too short.
        """
        begun = now_ns()
        output = self.run_everywhere(place)
        seconds = (now_ns() - begun) / 1e9
        states = {name: parse_bonnie(text) for name, text in output.items()}
        return bonnie_sample(states, self.primary, seconds, output)

    def run_on(self, machine: Machine, directory: str) -> str:
        """Run bonnie++ on one machine, and return its line."""
        ended = run_limited(machine, bonnie_command(self.spec, directory), self.spec.deadline_s)
        if not ended.ok:
            # The error message comes first; the usage text follows.
            said = (ended.stderr.strip() or ended.stdout.strip()).partition("usage:")[0].splitlines()
            raise RigError(f"{machine.name}: bonnie++, status {ended.status}: {' '.join(said)[:300] or 'silent'}")
        return ended.stdout
