"""Several clients write their parts of one file at the same time; another client checks each part."""

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
AGENT = "/run/raidproof/shared_agent.py"
SHARE = 0.5
"""Share of the shortest writer's time during which all must have been writing."""


class WrongContent(ProductError):
    """A client reads other data than another one wrote, made durable, and closed."""


class SharedFileSpec(WorkloadSpec):
    """One file, a part for each client."""

    tool: Literal["shared_file"] = "shared_file"
    layout: Literal["interleaved", "blocks"] = "interleaved"
    """A part is every n-th record of the file, or one contiguous region."""
    record: Annotated[ToolSize, Field(gt=0)] = 64 * KIB
    """Bytes of one write: whole pages, because a client may write back whole pages."""
    size: Annotated[ToolSize, Field(gt=0)] = 32 * MIB
    """Bytes of one client's part."""
    rounds: int = Field(default=2, ge=1)
    """How often each part is written, each time with fsync; from 2 on, data of an earlier round is recognised."""
    seed: int = Field(default=1, ge=1, lt=2**63)
    deadline_s: float = Field(default=600.0, gt=0)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.record % PAGE_SIZE:
            raise RequestError(
                f"a record of {self.record} bytes: NFS keeps no promise to clients that write to one page",
                remedy=f"a multiple of {PAGE_SIZE}",
            )
        if self.size % self.record:
            raise RequestError(f"{self.size} bytes are no whole number of records of {self.record}")
        return self

    def workload(self) -> "SharedFile":
        """Return the tool with these settings, ready to run."""
        return SharedFile(self)

    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""
        # Every round ends with fsync; the check is not timed.
        return Work(self.size, reads=False, writes=True, durable="each", everywhere=True)


class WriterState(State):
    """The report of one writer: durations on its own clock, instants on the server's."""

    seconds: float
    begun_ns: int
    """The server's time before the first write."""
    ended_ns: int
    """The server's time after the file was closed."""
    bytes: int


class CheckState(State):
    """The result of the check of one writer's part."""

    bytes: int
    wrong: dict[str, int]
    """Number of wrong units of 32 bytes, by kind."""
    first: tuple[int, str] | None
    """Offset in the file, and kind, of the first wrong unit."""


def orders(spec: SharedFileSpec, path: str, writer: int, writers: int) -> dict[str, str | int | bool]:
    """Return the agent's orders for one writer's part."""
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
    """Return the command that writes or checks one part."""
    return ["python3", AGENT, verb, json.dumps(orders(spec, path, part, of))]


S = TypeVar("S", bound=State)


def parse_said(model: type[S], text: str) -> S:
    """Parse the agent's output.

    Raises:
        RigError: the output is not whole.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise RigError(f"the shared file's agent should say JSON: {text[-300:]!r}") from error


def overlap_s(writers: Sequence[WriterState]) -> float:
    """Return for how many seconds all were certainly writing; negative if there was a gap.

    Both stamps of a writer lie outside of its writing, by the duration of a call to the server. A writer that took s
    seconds between them had begun s before the later stamp, and had not ended until s after the earlier one.
    """
    begun = max(one.ended_ns / 1e9 - one.seconds for one in writers)
    ended = min(one.begun_ns / 1e9 + one.seconds for one in writers)
    return ended - begun


def require_overlap(writers: Sequence[WriterState]) -> None:
    """Check that the writers wrote at the same time.

    Raises:
        RigError: they did not, or it is not certain.
    """
    together, shortest = overlap_s(writers), min(one.seconds for one in writers)
    if not shortest or together < SHARE * shortest:
        raise RigError(
            f"the writers were together for {max(0.0, together):.2f} s, the shortest took {shortest:.2f} s: "
            "they did not share the file",
            remedy="a larger size, or more rounds",
        )


def require_content(found: CheckState, spec: SharedFileSpec, writer: str, reader: str) -> None:
    """Check that a part holds what its writer wrote last.

    Raises:
        WrongContent: it does not.
        RigError: not all of it was read.
    """
    if found.bytes != spec.size:
        raise RigError(f"{reader}: {found.bytes} bytes of {writer}'s part were checked, not {spec.size}")
    if found.first is not None or found.wrong:
        offset, kind = found.first or (-1, "unknown")
        counts = ", ".join(f"{count} x {what}" for what, count in found.wrong.items())
        raise WrongContent(
            f"{reader} reads {kind} at offset {offset}, which {writer} wrote and closed; "
            f"in all, units of {shared_agent.UNIT} bytes: {counts}"
        )


class SharedFile(Tool[SharedFileSpec]):
    """Runs writers on all machines of a place, and then readers, each on its neighbour's part."""

    programs = ("python3", "timeout")

    @property
    def working_set(self) -> int:
        """Bytes of one client's part."""
        return self.spec.size

    def prepare(self, place: Place) -> None:
        """Create the empty file and the writers' markers, and put the agent into the machines.

        Raises:
            RequestError: there are fewer than two machines.
        """
        if len(place.machines) < 2:
            raise RequestError("a file is shared by two clients or more", remedy="more clients")
        self.clean(place)
        place.machines[0].succeed(["touch", *_paths(place)])
        source = Path(shared_agent.__file__).read_text()
        on_all(place.machines, lambda machine: machine.succeed(["mkdir", "-p", AGENT.rpartition("/")[0]]))
        on_all(place.machines, lambda machine: machine.put(source, AGENT))

    def run(self, place: Place) -> Sample:
        """Write on all machines at the same time; when all have closed the file, check every byte.

        Raises:
            RigError: a writer failed, ran too long, or it is not certain that they wrote at the same time.
            WrongContent: a client reads other data than was written.
        """
        names = [machine.name for machine in place.machines]
        said = self._on_all("write", place, dict(zip(names, range(len(names)), strict=True)))
        writers = {name: parse_said(WriterState, text) for name, text in said.items()}
        require_overlap([*writers.values()])
        neighbours = {name: (turn + 1) % len(names) for turn, name in enumerate(names)}
        found = self._on_all("check", place, neighbours)
        for reader, text in found.items():
            require_content(parse_said(CheckState, text), self.spec, names[neighbours[reader]], reader)
        seconds = max(one.seconds for one in writers.values())
        written = sum(one.bytes for one in writers.values())
        return Sample(
            primary="write_mb_s",
            values={"write_mb_s": written / 1e6 / seconds},
            seconds=seconds,
            read_bytes=self.spec.size * len(names),
            written_bytes=written,
            output={name: said[name] + found[name] for name in names},
        )

    def clean(self, place: Place) -> None:
        """Remove the file and the markers."""
        place.machines[0].succeed(["rm", "-f", *_paths(place)])

    def _on_all(self, verb: Literal["write", "check"], place: Place, parts: dict[str, int]) -> dict[str, str]:
        path = _paths(place)[0]

        def one(machine: Machine) -> str:
            command = shared_command(verb, self.spec, path, parts[machine.name], len(parts))
            return require_ended_well(run_limited(machine, command, self.spec.deadline_s), f"the {verb}")

        return on_all(place.machines, one)


def _paths(place: Place) -> list[str]:
    """Return the shared file and a marker file for each writer."""
    path = f"{place.directory}/{NAME}"
    return [path, *(shared_agent.marker({"path": path}, turn) for turn in range(len(place.machines)))]
