"""The workload shared_file: clients write parts of one file together; then each checks the part of another client."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from raidproof.core.errors import ProductError, RequestError, RigError
from raidproof.core.layer import PAGE_SIZE, Machine, State
from raidproof.core.units import KIB, MIB
from raidproof.guest import shared_file_agent as shared_agent
from raidproof.workload.workload import (
    Place,
    Sample,
    Tool,
    ToolSize,
    Work,
    WorkloadSpec,
    on_all,
    require_ended_well,
    run_limited,
)

NAME = "raidproof-shared"
"""Name of the shared file."""
AGENT = "/run/raidproof/shared_agent.py"
"""Path of the agent (guest/shared_file_agent.py) in a client."""
SHARE = 0.5
"""Minimum time in which all clients write at the same time, as a share of the writing time of the fastest client."""
ATTEMPTS = 5
"""Number of times that the clients write at most: another load of the host can delay one of them."""


class WrongContent(ProductError):
    """A client reads other data than another client wrote with fsync and closed."""


class NotTogether(RigError):
    """The clients wrote at the same time for too short a time."""


class SharedFileSpec(WorkloadSpec):
    """Settings of the workload shared_file: one file, of which each client writes its own part."""

    tool: Literal["shared_file"] = "shared_file"
    layout: Literal["interleaved", "blocks"] = "interleaved"
    """The part of a client: every n-th record of the file for n clients, or one contiguous region."""
    record: Annotated[ToolSize, Field(gt=0)] = 64 * KIB
    """Bytes of one write: a multiple of the page size, because a client may write back whole pages."""
    size: Annotated[ToolSize, Field(gt=0)] = 32 * MIB
    """Bytes of one client's part."""
    rounds: int = Field(default=2, ge=1)
    """Number of times that each client writes its part and calls fsync. From 2 on, the check detects stale data."""
    seed: int = Field(default=1, ge=1, lt=2**63)
    """Number in each unit of the data, which distinguishes this run's data from older data."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Time limit in seconds for the writers, and again for the readers."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.record % PAGE_SIZE:
            raise RequestError(
                f"shared_file: record is {self.record} bytes; NFS promises nothing if clients write to the same page",
                remedy=f"set record to a multiple of {PAGE_SIZE} bytes",
            )
        if self.size % self.record:
            raise RequestError(f"shared_file: size ({self.size} bytes) is no multiple of record ({self.record} bytes)")
        return self

    def workload(self) -> "SharedFile":
        """Return the workload that runs the agent of shared_file with these settings."""
        return SharedFile(self)

    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""
        # Each round ends with fsync; the check is not timed.
        return Work(self.size, reads=False, writes=True, durable="each", everywhere=True)


class WriterState(State):
    """The report of one writer, with a duration by the client's clock, and times by the server's clock."""

    seconds: float
    """Duration from the first write to the close."""
    begun_ns: int
    """Time before the first write (ns since the epoch)."""
    ended_ns: int
    """Time after the file was closed (ns since the epoch)."""
    bytes: int
    """Bytes written, over all rounds."""


class CheckState(State):
    """The result of the check of one writer's part."""

    bytes: int
    """Bytes that were checked."""
    wrong: dict[str, int]
    """Number of wrong units of 32 bytes, by kind of error."""
    first: tuple[int, str] | None
    """Offset in the file of the first wrong unit, and its kind of error; None if all units are correct."""


def agent_config(spec: SharedFileSpec, path: str, writer: int, writers: int) -> dict[str, str | int | bool]:
    """Return the agent's configuration for the part of one writer."""
    return {
        "path": path,
        "writer": writer,
        "writers": writers,
        "interleaved": spec.layout == "interleaved",
        "record": spec.record,
        "count": spec.size // spec.record,
        "rounds": spec.rounds,
        "seed": spec.seed,
    }


def shared_command(verb: Literal["write", "check"], spec: SharedFileSpec, path: str, part: int, of: int) -> list[str]:
    """Return the command that writes or checks part number ``part`` of ``of`` parts."""
    return ["python3", AGENT, verb, json.dumps(agent_config(spec, path, part, of))]


S = TypeVar("S", bound=State)


def parse_agent(model: type[S], text: str) -> S:
    """Return the agent's output as an object of the class ``model``.

    Raises:
        RigError: the output is truncated or malformed.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise RigError(f"the output of the agent of shared_file is malformed: {text[-300:]!r}") from error


def overlap_s(writers: Sequence[WriterState]) -> float:
    """Return the seconds in which all writers were certainly writing; negative if the writers did not overlap.

    A writer gets its two times from the server shortly before and shortly after it writes. A writer that wrote for s
    seconds therefore began at the latest s seconds before the later time, and ended at the earliest s seconds after
    the earlier time.
    """
    begun = max(one.ended_ns / 1e9 - one.seconds for one in writers)
    ended = min(one.begun_ns / 1e9 + one.seconds for one in writers)
    return ended - begun


def require_overlap(writers: Sequence[WriterState]) -> None:
    """Check that all writers wrote at the same time for at least the share `SHARE` of the fastest writer's time.

    Raises:
        NotTogether: the time in which all writers wrote is shorter.
    """
    together, shortest = overlap_s(writers), min(one.seconds for one in writers)
    if not shortest or together < SHARE * shortest:
        raise NotTogether(
            f"shared_file: all clients wrote at the same time for {max(0.0, together):.2f} s only; "
            f"the fastest client wrote for {shortest:.2f} s",
            remedy="set a larger size, or more rounds",
        )


def require_content(found: CheckState, spec: SharedFileSpec, writer: str, reader: str) -> None:
    """Check that a part contains the data of its writer's last round.

    Raises:
        WrongContent: a unit of the part has other data.
        RigError: the reader did not check the whole part.
    """
    if found.bytes != spec.size:
        raise RigError(f"{reader}: {found.bytes} bytes of the part of {writer} were checked instead of {spec.size}")
    if found.first is not None or found.wrong:
        offset, kind = found.first or (-1, "unknown")
        counts = ", ".join(f"{count} x {what}" for what, count in found.wrong.items())
        raise WrongContent(
            f"{reader} reads wrong data ({kind}) at offset {offset}, which {writer} wrote and closed; "
            f"number of wrong units of {shared_agent.UNIT} bytes: {counts}"
        )


class SharedFile(Tool[SharedFileSpec]):
    """Runs a writer on each client; then a reader on each client checks the part of the next client."""

    programs = ("python3", "timeout")

    @property
    def working_set(self) -> int:
        """Bytes of one client's part."""
        return self.spec.size

    def prepare(self, place: Place) -> None:
        """Create the empty file and the writers' marker files, and copy the agent to the machines.

        Raises:
            RequestError: the workload runs on fewer than two machines.
        """
        if len(place.machines) < 2:
            raise RequestError(
                f"shared_file needs at least 2 clients, not {len(place.machines)}", remedy="use more clients"
            )
        self.clean(place)
        place.machines[0].succeed(["touch", *_paths(place)])
        source = Path(shared_agent.__file__).read_text()
        on_all(place.machines, lambda machine: machine.succeed(["mkdir", "-p", AGENT.rpartition("/")[0]]))
        on_all(place.machines, lambda machine: machine.put(source, AGENT))

    def run(self, place: Place) -> Sample:
        """Run all writers at the same time; when all have closed the file, check every byte.

        Raises:
            RigError: a writer or a reader failed or exceeded its deadline.
            NotTogether: the writers did not overlap enough in any of the attempts.
            WrongContent: a client reads other data than another client wrote.
        """
        names = [machine.name for machine in place.machines]
        written_by, writers = self._write_together(place)
        neighbours = {name: (turn + 1) % len(names) for turn, name in enumerate(names)}
        found = self._on_all("check", place, neighbours)
        for reader, text in found.items():
            require_content(parse_agent(CheckState, text), self.spec, names[neighbours[reader]], reader)
        seconds = max(one.seconds for one in writers.values())
        written = sum(one.bytes for one in writers.values())
        return Sample(
            primary="write_mb_s",
            values={"write_mb_s": written / 1e6 / seconds},
            seconds=seconds,
            read_bytes=self.spec.size * len(names),
            written_bytes=written,
            output={name: written_by[name] + found[name] for name in names},
        )

    def _write_together(self, place: Place) -> tuple[dict[str, str], dict[str, WriterState]]:
        """Let all clients write; again, in a new file, until they wrote at the same time, or for `ATTEMPTS` times."""
        parts = {machine.name: turn for turn, machine in enumerate(place.machines)}
        for attempt in range(1, ATTEMPTS + 1):
            written_by = self._on_all("write", place, parts)
            writers = {name: parse_agent(WriterState, text) for name, text in written_by.items()}
            try:
                require_overlap([*writers.values()])
                break
            except NotTogether:
                if attempt == ATTEMPTS:
                    raise
            self.prepare(place)
        return written_by, writers

    def clean(self, place: Place) -> None:
        """Remove the shared file and the marker files."""
        place.machines[0].succeed(["rm", "-f", *_paths(place)])

    def _on_all(self, verb: Literal["write", "check"], place: Place, parts: dict[str, int]) -> dict[str, str]:
        path = _paths(place)[0]

        def one(machine: Machine) -> str:
            command = shared_command(verb, self.spec, path, parts[machine.name], len(parts))
            return require_ended_well(
                run_limited(machine, command, self.spec.deadline_s), f"the {verb} of shared_file"
            )

        return on_all(place.machines, one)


def _paths(place: Place) -> list[str]:
    """Return the paths of the shared file and of a marker file for each writer."""
    path = f"{place.directory}/{NAME}"
    return [path, *(shared_agent.marker({"path": path}, turn) for turn in range(len(place.machines)))]
