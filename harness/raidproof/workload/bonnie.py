"""bonnie++: one large file by blocks, then many small ones, from its own line of comma-separated values.

Of version 2.00. It does not say a rate of what took less than half a second, nor does this: the value is left out.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, State, power_of_two
from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import now_ns
from raidproof.workload.machines import CACHES_DEADLINE_S, ToolSize, on_all, own_directory, require_room, run_limited
from raidproof.workload.workload import Place, Sample, Work, WorkloadSpec

FIELDS = 50
"""Of one line, by bon_csv2html(1)."""
LARGE = {"putc": 9, "write": 11, "rewrite": 13, "getc": 15, "read": 17}
"""Where the rates of the large file stand, in KiB a second; behind each, the share of a CPU."""
SEEKS = 19
SMALL = {"creates": 26, "stats": 28, "removes": 30, "random_creates": 32, "random_stats": 34, "random_removes": 36}
"""Where the rates of the small files stand."""
NOT_MEASURED = re.compile(r"\+*")
FILES = 1024
"""bonnie++ counts files by this many."""


class BonnieSpec(WorkloadSpec):
    """What bonnie++ is told; sizes of whole MiB, because that is what it understands."""

    tool: Literal["bonnie"] = "bonnie"
    size: Annotated[ToolSize, Field(ge=0, multiple_of=MIB)] = 1024 * MIB
    """The large file; 0: none."""
    ram: Annotated[ToolSize, Field(ge=0, multiple_of=MIB)] | None = None
    """It refuses a file below twice this. None: it asks the machine. 0: any file will do, caches are measured too."""
    number: int = Field(default=16, ge=0)
    """Small files, in units of 1024; 0: none."""
    largest: Annotated[ToolSize, Field(ge=0)] = 0
    smallest: Annotated[ToolSize, Field(ge=0)] = 0
    directories: int = Field(default=0, ge=0)
    """Of the small files; 0: all in one."""
    chunk: Annotated[ToolSize, Field(ge=256, le=MIB)] = 8 * KIB
    """Bytes of one read or write of the large file."""
    fast: bool = True
    """``-f``: not character by character, which measures the CPU."""
    fsync: bool = False
    """``-b``: after every write."""
    direct: bool = False
    """``-D``: the large file past the page cache."""
    deadline_s: float = Field(default=3600.0, gt=0)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.size and not self.number:
            raise RequestError("bonnie: neither a large file nor small ones", remedy="a size, or a number")
        if self.smallest > self.largest:
            raise RequestError(f"bonnie: files from {self.smallest} to {self.largest} bytes; the smaller comes first")
        if not power_of_two(self.chunk):
            raise RequestError(f"bonnie: a chunk of {self.chunk} bytes", remedy="a power of two from 256 to 1 MiB")
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
        """Return what the timed part does, as far as caches care."""
        # By its primary value: writing the large file, or creating small ones.
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
    """What bonnie++ measured; what it left out or could not measure is not there."""

    mb_s: dict[str, float]
    """Of the large file, in 10^6 bytes a second: write, rewrite, read."""
    per_s: dict[str, float]
    """Seeks of the large file, and small files: creates, stats, removes, and the same in random order."""

    @property
    def values(self) -> dict[str, float]:
        """All of them, by a name with its unit."""
        return {f"{name}_mb_s": rate for name, rate in self.mb_s.items()} | {
            f"{name}_s": rate for name, rate in self.per_s.items()
        }


def bonnie_command(spec: BonnieSpec, directory: str) -> list[str]:
    """Return the command; the only line on its standard output is the result."""
    words = ["bonnie++", "-q", "-d", directory]
    words += ["-s", f"{spec.size // MIB}:{spec.chunk}" if spec.size else "0"]
    form = f":{spec.largest}:{spec.smallest}:{spec.directories}" if spec.largest or spec.directories else ""
    words += ["-n", f"{spec.number}{form}"]
    words += ["-r", str(spec.ram // MIB)] if spec.ram is not None else []
    flags = {"-f": spec.fast, "-b": spec.fsync, "-D": spec.direct}
    return [*words, "-u", "root", *(flag for flag, on in flags.items() if on), "-x", "1"]


def parse_bonnie(text: str) -> BonnieState:
    """Read its line: K/s are KiB; ``+++++`` or nothing is what was not measured.

    Raises:
        RigError: it is not one whole line, or a rate is not a number.
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
    """Join what the machines measured side by side; a rate that one of them could not measure is left out.

    Raises:
        RigError: that is the primary one.
    """
    all_values = [state.values for state in states.values()]
    values = {
        name: sum(values[name] for values in all_values)
        for name in all_values[0]
        if all(name in values for values in all_values)
    }
    if primary not in values:
        raise RigError(
            f"bonnie++ did not measure {primary}: it took less than half a second",
            remedy="a larger size, or number",
        )
    return Sample(primary=primary, values=values, seconds=seconds, output=output)


class Bonnie:
    """bonnie++ on every machine at the same time, each in a directory of its own."""

    programs = ("bonnie++", "timeout")
    timed_s: float | None = None

    def __init__(self, spec: BonnieSpec) -> None:
        self.spec = spec

    @property
    def primary(self) -> str:
        """Writing the large file; without one, creating small ones."""
        return "write_mb_s" if self.spec.size else "creates_s"

    @property
    def working_set(self) -> int:
        """Bytes of the large file, or of all small ones if they are more."""
        return max(self.spec.size, self.spec.number * FILES * (self.spec.largest + self.spec.smallest) // 2)

    def prepare(self, place: Place) -> None:
        """Make the directories, and make sure of the room."""
        needed = max(self.spec.size, self.spec.number * FILES * self.spec.largest)
        for machine in place.machines:
            machine.succeed(["mkdir", "-p", own_directory(machine, place.directory, "bonnie")])
            require_room(machine, place.directory, needed * len(place.machines), "bonnie++")
        on_all(place.machines, lambda machine: machine.succeed(["sync"], deadline_s=CACHES_DEADLINE_S))

    def run(self, place: Place) -> Sample:
        """Run all of its phases once.

        Raises:
            DeadlineExceeded: it ran too long.
            RigError: it complained, or its line cannot be read, or was over too soon.
        """
        begun = now_ns()
        output = on_all(place.machines, lambda machine: self._run_on(machine, place.directory))
        seconds = (now_ns() - begun) / 1e9
        states = {name: parse_bonnie(text) for name, text in output.items()}
        return bonnie_sample(states, self.primary, seconds, output)

    def _run_on(self, machine: Machine, directory: str) -> str:
        command = bonnie_command(self.spec, own_directory(machine, directory, "bonnie"))
        ended = run_limited(machine, command, self.spec.deadline_s)
        if not ended.ok:
            # Its complaint comes first; what follows is how to use it.
            said = (ended.stderr.strip() or ended.stdout.strip()).partition("usage:")[0].splitlines()
            raise RigError(f"{machine.name}: bonnie++, status {ended.status}: {' '.join(said)[:300] or 'silent'}")
        return ended.stdout

    def clean(self, place: Place) -> None:
        """Remove what a run that was cut off has left."""
        on_all(
            place.machines,
            lambda machine: machine.succeed(["rm", "-rf", own_directory(machine, place.directory, "bonnie")]),
        )
