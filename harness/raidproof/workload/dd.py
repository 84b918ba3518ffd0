"""dd: copies one file from end to end; results from GNU dd's last line."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, State
from raidproof.core.units import KIB
from raidproof.workload.workload import (
    Access,
    Place,
    Sample,
    Tool,
    ToolSize,
    Work,
    WorkloadSpec,
    durable_of,
    empty_caches,
    on_all,
    own_directory,
    run_limited,
)

NAME = "raidproof-dd"
_LAST_LINE = re.compile(r"^(\d+) bytes (?:\([^)\n]*\) )?copied, ([0-9.]+(?:e[-+]?\d+)?) s, \S+ \S+$", re.MULTILINE)

Flag = Literal["direct", "sync", "dsync", "nonblock", "noatime"]


class DdSpec(WorkloadSpec):
    """One dd, with the options of dd(1)."""

    tool: Literal["dd"] = "dd"
    direction: Literal["write", "read"] = "write"
    """Write zeros to a file, or read a file, which is prepared before and not cached on its machine, to /dev/null."""
    bs: Annotated[ToolSize, Field(gt=0)] = 64 * KIB
    count: int = Field(default=1024, gt=0)
    conv: tuple[Literal["fsync", "fdatasync", "notrunc", "sparse"], ...] = ()
    """With fsync, the time includes it. Without, it still includes close, in which an NFS client writes back."""
    oflag: tuple[Flag, ...] = ()
    iflag: tuple[Flag, ...] = ()
    all_machines: bool = False
    """Run on all clients at the same time, each with its own file."""
    deadline_s: float = Field(default=600.0, gt=0)

    @model_validator(mode="after")
    def _flags_of_this_direction(self) -> Self:
        if self.direction == "write" and self.iflag:
            raise RequestError("iflag is for reading; what is written comes from /dev/zero")
        if self.direction == "read" and (self.oflag or self.conv):
            raise RequestError("oflag and conv are for writing; what is read goes to /dev/null")
        return self

    @property
    def total(self) -> int:
        """Bytes that are copied."""
        return self.bs * self.count

    def workload(self) -> "Dd":
        """Return the tool with these settings, ready to run."""
        return Dd(self)

    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""
        flags = {*self.oflag, *self.iflag}
        return Work(
            self.total,
            reads=self.direction == "read",
            writes=self.direction == "write",
            durable=durable_of(
                bool(flags & {"sync", "dsync"}), 0, self.total, at_end=bool({"fsync", "fdatasync"} & {*self.conv})
            ),
            direct="direct" in flags,
            closes=True,
            everywhere=self.all_machines,
        )

    def access(self, *, clients: int = 1) -> Access:
        """Return the storage requests of the timed part, on this number of clients."""
        clients = clients if self.all_machines else 1
        flags = {*self.oflag, *self.iflag}
        return Access(
            size=self.bs,
            read_share=1.0 if self.direction == "read" else 0.0,
            streams=clients,
            clients=clients,
            sync_every=self.bs if flags & {"sync", "dsync"} else None,
            working_set=self.total * clients,
            direct="direct" in flags,
        )


class DdState(State):
    """What dd reported."""

    bytes: int
    seconds: float


def dd_command(spec: DdSpec, path: str) -> list[str]:
    """Return the command that writes or reads one file."""
    writes = spec.direction == "write"
    words = ["dd", *(["if=/dev/zero", f"of={path}"] if writes else [f"if={path}", "of=/dev/null"])]
    words += [f"bs={spec.bs}", f"count={spec.count}"]
    words += [f"{name}={','.join(of)}" for name in ("conv", "oflag", "iflag") if (of := getattr(spec, name))]
    return words


def parse_dd(text: str) -> DdState:
    """Parse GNU dd's last line, ``N bytes (..) copied, S s, R``; R is rounded, so it is not used.

    Raises:
        RigError: dd reported an error, the line is missing or not whole, or the time is 0.
    """
    if errors := [line for line in text.splitlines() if line.startswith("dd: ")]:
        raise RigError("; ".join(errors))
    if (match := _LAST_LINE.search(text)) is None:
        raise RigError(f"dd's last line is missing from: {text.strip()[-300:] or 'nothing'}")
    found = DdState(bytes=int(match.group(1)), seconds=float(match.group(2)))
    if not found.seconds:
        raise RigError(f"dd copied {found.bytes} bytes in no time")
    return found


class Dd(Tool[DdSpec]):
    """Runs dd on the first machine of a place, or on all at once."""

    programs = ("dd", "timeout")

    @property
    def working_set(self) -> int:
        """The file's bytes."""
        return self.spec.total

    def prepare(self, place: Place) -> None:
        """Remove the previous file; for reading, write the file durably, and empty this machine's caches."""
        self.clean(place)
        if self.spec.direction == "read":
            layout = DdSpec(bs=self.spec.bs, count=self.spec.count, conv=("fsync",), deadline_s=self.spec.deadline_s)
            on_all(self._machines(place), lambda machine: self._dd(layout, machine, place))

    def run(self, place: Place) -> Sample:
        """Copy, on all machines at once if requested: the rate is all bytes over the longest time.

        Raises:
            RigError: dd failed, ran too long, copied less than requested, or its output cannot be parsed.
        """
        machines, verb = self._machines(place), self.spec.direction
        if verb == "read":
            on_all(machines, empty_caches)
        ran = on_all(machines, lambda machine: self._dd(self.spec, machine, place))
        seconds = max(state.seconds for state, _ in ran.values())
        moved = sum(state.bytes for state, _ in ran.values())
        return Sample(
            primary=f"{verb}_mb_s",
            values={f"{verb}_mb_s": moved / 1e6 / seconds},
            seconds=seconds,
            read_bytes=moved if verb == "read" else 0,
            written_bytes=moved if verb == "write" else 0,
            output={name: ended.stderr for name, (_, ended) in ran.items()},
        )

    def clean(self, place: Place) -> None:
        """Remove the file."""
        on_all(self._machines(place), lambda machine: machine.succeed(["rm", "-f", _path(machine, place)]))

    def _dd(self, spec: DdSpec, machine: Machine, place: Place) -> tuple[DdState, Completed]:
        ended = run_limited(machine, dd_command(spec, _path(machine, place)), spec.deadline_s)
        return read_ended(spec, ended), ended

    def _machines(self, place: Place) -> list[Machine]:
        return list(place.machines if self.spec.all_machines else place.machines[:1])


def read_ended(spec: DdSpec, ended: Completed) -> DdState:
    """Return the result of a dd that ended.

    Raises:
        RigError: dd failed, or copied less than requested.
    """
    try:
        state = parse_dd(ended.stderr)
    except RigError as error:
        raise RigError(f"{ended.where}: {error}") from error
    if not ended.ok:
        raise RigError(f"{ended.where}: dd ended with status {ended.status}: {ended.stderr.strip()[-300:]}")
    if state.bytes != spec.total:
        raise RigError(f"{ended.where}: dd copied {state.bytes} bytes, not {spec.total}")
    return state


def _path(machine: Machine, place: Place) -> str:
    return own_directory(machine, place.directory, NAME)
