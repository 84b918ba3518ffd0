"""The workload metadata: rates at which files are created, looked up and removed.

No tool of the Linux distributions does only this for a given time, so raidproof has its own agent.
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
"""Minimum duration of a phase in seconds, of which the 10 ms resolution of the guest's clock is 2 %."""
DEFAULT_S = 6.0
"""Seconds of all phases together if the plan sets neither ``seconds`` nor ``files``."""
PHASES = 3
"""Number of phases: create, stat, remove."""
CLUSTER = 4 * KIB
"""Minimum number of bytes that a file occupies in the file system, including its inode."""
RATES = {"create": "creates_s", "stat": "stats_s", "remove": "removes_s"}
"""Name of the rate of each phase."""
PRIMARY = "creates_s"
"""Name of the primary value."""


class MetadataSpec(WorkloadSpec):
    """Settings: the number of files, or the time for creating files. The files are distributed over directories."""

    tool: Literal["metadata"] = "metadata"
    files: int | None = Field(default=None, ge=1)
    """Number of files on each machine. None: as many files as can be created in a third of ``seconds``."""
    seconds: float | None = Field(default=None, gt=0, le=3600)
    """Seconds of all three phases together, a third for each. None: 6 seconds, unless ``files`` is set."""
    directories: int = Field(default=10, ge=1, le=500)
    """Number of directories on each machine; the agent keeps each directory open."""
    size: Annotated[ToolSize, Field(ge=0, le=1024 * KIB)] = 0
    """Bytes of each file."""
    fsync_file: bool = False
    """Whether the agent calls fsync on each file before it closes the file."""
    fsync_directory: bool = False
    """Whether the agent calls fsync on the directory after it creates or removes a file."""
    cold: bool = True
    """Whether the agent drops cached names and attributes before each round of stat, so that a client asks the server.

    The time for dropping is not part of the measured time.
    """
    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds that the agent may take in addition to the timed part."""

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.files is not None and self.seconds is not None:
            raise RequestError(
                f"metadata: files = {self.files} and seconds = {self.seconds:g} exclude each other",
                remedy="set only files or only seconds",
            )
        if self.seconds is not None and self.seconds < PHASES * SHORTEST_S:
            raise RequestError(
                f"metadata: seconds = {self.seconds:g} is too short: the guest's clock has a resolution of 10 ms",
                remedy=f"set seconds to at least {PHASES * SHORTEST_S:g}",
            )
        return self

    @property
    def timed_s(self) -> float | None:
        """Seconds of all phases together; None if the number of files is set."""
        return None if self.files else self.seconds or DEFAULT_S

    def workload(self) -> "Metadata":
        """Return the workload that runs the metadata agent with these settings."""
        return Metadata(self)

    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""
        # Of the phase with the primary value, which creates files.
        return Work(
            self.files * (self.size + CLUSTER) if self.files else None,
            reads=False,
            writes=True,
            durable="each" if self.fsync_file or self.fsync_directory else "no",
            closes=True,
            everywhere=True,
        )


class Phase(State):
    """The result of one phase of the agent: the number of operations, and the time."""

    done: int = Field(ge=0)
    """Number of operations."""
    seconds: float = Field(ge=0)

    @property
    def rate(self) -> float | None:
        """Operations per second; None if the phase was shorter than `SHORTEST_S`."""
        return self.done / self.seconds if self.seconds >= SHORTEST_S else None


class MetadataState(State):
    """The results of the agent on one machine: one field for each phase."""

    create: Phase
    stat: Phase
    remove: Phase

    @property
    def phases(self) -> dict[str, Phase]:
        """The phases, by the name of their rate."""
        return {RATES[name]: getattr(self, name) for name in RATES}

    @property
    def values(self) -> dict[str, float]:
        """The rates of the phases that lasted at least `SHORTEST_S`, by name."""
        return {name: rate for name, phase in self.phases.items() if (rate := phase.rate) is not None}


def metadata_command(spec: MetadataSpec, directory: str) -> list[str]:
    """Return the command that runs the agent in a directory; the agent's source comes through standard input."""
    config = {
        "directory": directory,
        "phase_s": spec.timed_s and spec.timed_s / PHASES,
        **spec.model_dump(include={"files", "directories", "size", "fsync_file", "fsync_directory", "cold"}),
    }
    return ["python3", "-", json.dumps(config)]


def parse_metadata(text: str) -> MetadataState:
    """Return the results in the agent's output.

    Raises:
        RigError: the output is truncated or malformed, or counts more removed than created files.
    """
    try:
        state = MetadataState.model_validate_json(text)
    except ValidationError as error:
        raise RigError(f"the output of the metadata agent is malformed: {text[-300:]!r}") from error
    if state.remove.done > state.create.done or not text.endswith("\n"):
        raise RigError(
            "the output of the metadata agent is truncated, or counts more removed than created files: "
            f"{text[-300:]!r}"
        )
    return state


def metadata_sample(states: dict[str, MetadataState], size: int, output: dict[str, str]) -> Sample:
    """Return the sums of the rates of all machines; leave out a rate that one of the machines lacks.

    Raises:
        RigError: a machine lacks the primary rate.
    """
    values = added([state.values for state in states.values()])
    if PRIMARY not in values:
        raise RigError(f"metadata: the phase create took less than {SHORTEST_S:g} s", remedy="set more files")
    return Sample(
        primary=PRIMARY,
        values=values,
        seconds=max(sum(phase.seconds for phase in state.phases.values()) for state in states.values()),
        written_bytes=size * sum(state.create.done for state in states.values()),
        output=output,
    )


class Metadata(DirectoryTool[MetadataSpec]):
    """Runs guest/metadata_agent.py on all machines at the same time, each in its own directory."""

    programs = ("python3", "timeout")

    @property
    def working_set(self) -> int:
        """Bytes of all files of one machine; 0 if the number of files is not known before the run."""
        return (self.spec.files or 0) * self.spec.size

    @property
    def clean_deadline_s(self) -> float:
        """Time limit in seconds for the removal of one machine's files."""
        return self.spec.deadline_s

    @property
    def timed_s(self) -> float | None:
        """Seconds of all phases together; None if the number of files is set."""
        return self.spec.timed_s

    def room(self) -> int:
        """Return the bytes that the files of one machine occupy; 0 if their number is not known before the run."""
        return (self.spec.files or 0) * (self.spec.size + CLUSTER)

    def prepare(self, place: Place) -> None:
        """Create an empty directory on each machine, and check the free space.

        Raises:
            RigError: the file system has too little free space.
        """
        self.clean(place)
        super().prepare(place)

    def run(self, place: Place) -> Sample:
        """Run the phases create, stat and remove on all machines at the same time.

        Raises:
            DeadlineExceeded: the agent did not end within its deadline.
            RigError: the agent failed, its output is malformed, or the phase create was too short.
        """
        output = self.run_everywhere(place)
        states = {name: parse_metadata(text) for name, text in output.items()}
        return metadata_sample(states, self.spec.size, output)

    def run_on(self, machine: Machine, directory: str) -> str:
        """Run the agent on one machine, and return its output."""
        command = metadata_command(self.spec, directory)
        limit_s = self.spec.deadline_s + (self.timed_s or 0)
        ended = run_limited(machine, command, limit_s, stdin=Path(metadata_agent.__file__).read_text())
        return require_ended_well(ended, "the metadata agent")
