"""Files created, looked up and removed per second: what a server does besides moving data.

No tool that a distribution has does just that in a time that is given, so this is a program of our own.
"""

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, State
from raidproof.core.units import KIB
from raidproof.guest import metadata_agent
from raidproof.workload.machines import (
    CACHES_DEADLINE_S,
    ToolSize,
    on_all,
    own_directory,
    require_ended_well,
    require_room,
    run_limited,
)
from raidproof.workload.workload import Place, Sample, Work, WorkloadSpec

SHORTEST_S = 0.5
"""A phase below this is not measured: the guest's clock has steps of 10 ms, which would be more than 2 % of it."""
DEFAULT_S = 6.0
PHASES = 3
CLUSTER = 4 * KIB
"""What a file occupies at least, with its inode."""
RATES = {"create": "creates_s", "stat": "stats_s", "remove": "removes_s"}
PRIMARY = "creates_s"


class MetadataSpec(WorkloadSpec):
    """So many files, or as many as a time allows; dealt out to directories in turn."""

    tool: Literal["metadata"] = "metadata"
    files: int | None = Field(default=None, ge=1)
    """On each machine, however long they take. None: as many as ``seconds`` allow."""
    seconds: float | None = Field(default=None, gt=0, le=3600)
    """Of all three phases: each gets a third. None: 6, unless ``files`` says how many."""
    directories: int = Field(default=10, ge=1, le=500)
    """On each machine; each is held open."""
    size: Annotated[ToolSize, Field(ge=0, le=1024 * KIB)] = 0
    """Bytes that are written to each file."""
    fsync_file: bool = False
    """fsync each file before it is closed."""
    fsync_directory: bool = False
    """fsync the directory after each create and each remove."""
    cold: bool = True
    """Before each round of stat, untimed, the machine forgets names and attributes: a client must ask the server."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Beyond the timed part."""

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.files is not None and self.seconds is not None:
            raise RequestError(
                f"metadata: {self.files} files in {self.seconds:g} s is a result, not a request",
                remedy="files or seconds",
            )
        if self.seconds is not None and self.seconds < PHASES * SHORTEST_S:
            raise RequestError(
                f"metadata: a third of {self.seconds:g} s is too short for the guest's clock",
                remedy=f"at least {PHASES * SHORTEST_S:g} s",
            )
        return self

    @property
    def timed_s(self) -> float | None:
        """What the phases take together; None where the files are counted."""
        return None if self.files else self.seconds or DEFAULT_S

    def workload(self) -> "Metadata":
        """Return the tool with these settings, ready to run."""
        return Metadata(self)

    def work(self) -> Work:
        """Return what the timed part does, as far as caches care."""
        # By its primary value: creating.
        return Work(
            self.files * (self.size + CLUSTER) if self.files else None,
            reads=False,
            writes=True,
            durable="each" if self.fsync_file or self.fsync_directory else "no",
            closes=True,
            everywhere=True,
        )


class Phase(State):
    """What one phase did."""

    done: int = Field(ge=0)
    seconds: float = Field(ge=0)

    @property
    def rate(self) -> float | None:
        """Files a second; None if it was too short to be measured."""
        return self.done / self.seconds if self.seconds >= SHORTEST_S else None


class MetadataState(State):
    """What the agent did."""

    create: Phase
    stat: Phase
    remove: Phase

    @property
    def phases(self) -> dict[str, Phase]:
        """All of them, by the name of their rate."""
        return {RATES[name]: getattr(self, name) for name in RATES}

    @property
    def values(self) -> dict[str, float]:
        """The rates that could be measured."""
        return {name: rate for name, phase in self.phases.items() if (rate := phase.rate) is not None}


def metadata_command(spec: MetadataSpec, directory: str) -> list[str]:
    """Return the command; the program itself comes through standard input."""
    orders = {
        "directory": directory,
        "phase_s": spec.timed_s and spec.timed_s / PHASES,
        **spec.model_dump(include={"files", "directories", "size", "fsync_file", "fsync_directory", "cold"}),
    }
    return ["python3", "-", json.dumps(orders)]


def parse_metadata(text: str) -> MetadataState:
    """Read what the agent printed.

    Raises:
        RigError: it is not whole, or not all that was created was there.
    """
    try:
        state = MetadataState.model_validate_json(text)
    except ValidationError as error:
        raise RigError(f"the metadata agent's answer is not whole: {text[-300:]!r}") from error
    if state.remove.done > state.create.done or not text.endswith("\n"):
        raise RigError(f"the metadata agent's answer cannot be: {text[-300:]!r}")
    return state


def metadata_sample(states: dict[str, MetadataState], size: int, output: dict[str, str]) -> Sample:
    """Join what the machines did side by side; a rate that one of them could not measure is left out.

    Raises:
        RigError: that is the primary one.
    """
    all_values = [state.values for state in states.values()]
    values = {
        name: sum(values[name] for values in all_values)
        for name in RATES.values()
        if all(name in values for values in all_values)
    }
    if PRIMARY not in values:
        raise RigError(f"metadata: creating took less than {SHORTEST_S:g} s", remedy="more files")
    return Sample(
        primary=PRIMARY,
        values=values,
        seconds=max(sum(phase.seconds for phase in state.phases.values()) for state in states.values()),
        written_bytes=size * sum(state.create.done for state in states.values()),
        output=output,
    )


class Metadata:
    """The agent on every machine at the same time, each in a directory of its own."""

    programs = ("python3", "timeout")

    def __init__(self, spec: MetadataSpec) -> None:
        self.spec = spec

    @property
    def working_set(self) -> int:
        """Bytes of all files; 0 where nobody knows before how many there will be."""
        return (self.spec.files or 0) * self.spec.size

    @property
    def timed_s(self) -> float | None:
        """Unknown where the files are counted."""
        return self.spec.timed_s

    def prepare(self, place: Place) -> None:
        """Begin with an empty directory, and make sure of the room for files that are counted."""
        self.clean(place)
        needed = (self.spec.files or 0) * (self.spec.size + CLUSTER) * len(place.machines)
        for machine in place.machines:
            machine.succeed(["mkdir", "-p", own_directory(machine, place.directory, "metadata")])
            require_room(machine, place.directory, needed, "metadata")
        on_all(place.machines, lambda machine: machine.succeed(["sync"], deadline_s=CACHES_DEADLINE_S))

    def run(self, place: Place) -> Sample:
        """Create, stat and remove.

        Raises:
            DeadlineExceeded: it took too long.
            RigError: the agent failed, or its answer cannot be read, or creating was over too soon.
        """
        output = on_all(place.machines, lambda machine: self._run_on(machine, place.directory))
        states = {name: parse_metadata(text) for name, text in output.items()}
        return metadata_sample(states, self.spec.size, output)

    def _run_on(self, machine: Machine, directory: str) -> str:
        command = metadata_command(self.spec, own_directory(machine, directory, "metadata"))
        limit_s = self.spec.deadline_s + (self.timed_s or 0)
        ended = run_limited(machine, command, limit_s, stdin=Path(metadata_agent.__file__).read_text())
        return require_ended_well(ended, "the metadata agent")

    def clean(self, place: Place) -> None:
        """Remove what a run that was cut off has left."""
        on_all(
            place.machines,
            lambda machine: machine.succeed(
                ["rm", "-rf", own_directory(machine, place.directory, "metadata")], deadline_s=self.spec.deadline_s
            ),
        )
