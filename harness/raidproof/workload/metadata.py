"""Files created, looked up and removed per second: the metadata work of a server.

No tool of a distribution does only that for a given time, so the agent is part of raidproof.
"""

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, State
from raidproof.core.units import KIB
from raidproof.guest import metadata_agent
from raidproof.workload.workload import (
    DirectoryTool,
    Place,
    Sample,
    ToolSize,
    Work,
    WorkloadSpec,
    added,
    require_ended_well,
    run_limited,
)

SHORTEST_S = 0.5
"""Seconds; shorter phases are not measured: the 10 ms steps of the guest's clock would be more than 2 % of them."""
DEFAULT_S = 6.0
PHASES = 3
CLUSTER = 4 * KIB
"""Bytes that a file occupies at least, with its inode."""
RATES = {"create": "creates_s", "stat": "stats_s", "remove": "removes_s"}
PRIMARY = "creates_s"


class MetadataSpec(WorkloadSpec):
    """A number of files, or as many as a time allows; distributed round-robin over directories."""

    tool: Literal["metadata"] = "metadata"
    files: int | None = Field(default=None, ge=1)
    """Files on each machine, however long they take. None: as many as ``seconds`` allow."""
    seconds: float | None = Field(default=None, gt=0, le=3600)
    """Seconds of all three phases; each gets a third. None: 6, unless ``files`` is given."""
    directories: int = Field(default=10, ge=1, le=500)
    """Directories on each machine; each is held open."""
    size: Annotated[ToolSize, Field(ge=0, le=1024 * KIB)] = 0
    """Bytes that are written to each file."""
    fsync_file: bool = False
    """fsync each file before it is closed."""
    fsync_directory: bool = False
    """fsync the directory after each create and each remove."""
    cold: bool = True
    """Drop cached names and attributes before each round of stat, untimed: a client must ask the server."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds in addition to the timed part."""

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
        """Seconds of all phases together; None if the number of files is given."""
        return None if self.files else self.seconds or DEFAULT_S

    def workload(self) -> "Metadata":
        """Return the tool with these settings, ready to run."""
        return Metadata(self)

    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""
        # For the primary value: creating.
        return Work(
            self.files * (self.size + CLUSTER) if self.files else None,
            reads=False,
            writes=True,
            durable="each" if self.fsync_file or self.fsync_directory else "no",
            closes=True,
            everywhere=True,
        )


class Phase(State):
    """The result of one phase."""

    done: int = Field(ge=0)
    seconds: float = Field(ge=0)

    @property
    def rate(self) -> float | None:
        """Files per second; None if the phase was too short to be measured."""
        return self.done / self.seconds if self.seconds >= SHORTEST_S else None


class MetadataState(State):
    """The results of the agent."""

    create: Phase
    stat: Phase
    remove: Phase

    @property
    def phases(self) -> dict[str, Phase]:
        """All phases, by the name of their rate."""
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
    """Parse the agent's output.

    Raises:
        RigError: the output is not whole, or files that were created were missing.
    """
    try:
        state = MetadataState.model_validate_json(text)
    except ValidationError as error:
        raise RigError(f"the metadata agent's answer is not whole: {text[-300:]!r}") from error
    if state.remove.done > state.create.done or not text.endswith("\n"):
        raise RigError(f"the metadata agent's answer cannot be: {text[-300:]!r}")
    return state


def metadata_sample(states: dict[str, MetadataState], size: int, output: dict[str, str]) -> Sample:
    """Add up the rates of all machines; leave out a rate that one of them could not measure.

    Raises:
        RigError: the primary rate is missing.
    """
    values = added([state.values for state in states.values()])
    if PRIMARY not in values:
        raise RigError(f"metadata: creating took less than {SHORTEST_S:g} s", remedy="more files")
    return Sample(
        primary=PRIMARY,
        values=values,
        seconds=max(sum(phase.seconds for phase in state.phases.values()) for state in states.values()),
        written_bytes=size * sum(state.create.done for state in states.values()),
        output=output,
    )


class Metadata(DirectoryTool[MetadataSpec]):
    """Runs the agent on all machines at the same time, each in its own directory."""

    programs = ("python3", "timeout")

    @property
    def working_set(self) -> int:
        """Bytes of all files; 0 if their number is not known before."""
        return (self.spec.files or 0) * self.spec.size

    @property
    def clean_deadline_s(self) -> float:
        """Seconds to remove all files."""
        return self.spec.deadline_s

    @property
    def timed_s(self) -> float | None:
        """None if the number of files is given."""
        return self.spec.timed_s

    def room(self) -> int:
        """Return the bytes of a given number of files."""
        return (self.spec.files or 0) * (self.spec.size + CLUSTER)

    def prepare(self, place: Place) -> None:
        """Create an empty directory, and check the free space."""
        self.clean(place)
        super().prepare(place)

    def run(self, place: Place) -> Sample:
        """Create, stat and remove.

        Raises:
            DeadlineExceeded: the agent took too long.
            RigError: the agent failed, its answer cannot be parsed, or creating was too short.
        """
        output = self.run_everywhere(place)
        states = {name: parse_metadata(text) for name, text in output.items()}
        return metadata_sample(states, self.spec.size, output)

    def run_on(self, machine: Machine, directory: str) -> str:
        """Run the agent on one machine, and return its answer."""
        command = metadata_command(self.spec, directory)
        limit_s = self.spec.deadline_s + (self.timed_s or 0)
        ended = run_limited(machine, command, limit_s, stdin=Path(metadata_agent.__file__).read_text())
        return require_ended_well(ended, "the metadata agent")
