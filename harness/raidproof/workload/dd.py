"""The workload dd: it writes or reads one file sequentially; the results come from the last line of GNU dd."""

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
"""Beginning of the names of the files that dd writes or reads."""
_LAST_LINE = re.compile(r"^(\d+) bytes (?:\([^)\n]*\) )?copied, ([0-9.]+(?:e[-+]?\d+)?) s, \S+ \S+$", re.MULTILINE)

Flag = Literal["direct", "sync", "dsync", "nonblock", "noatime"]


class DdSpec(WorkloadSpec):
    """Settings of the workload dd: the options of one run of dd(1)."""

    tool: Literal["dd"] = "dd"
    direction: Literal["write", "read"] = "write"
    """``write``: copy zeros to a file. ``read``: copy a file, which its machine has not cached, to /dev/null."""
    bs: Annotated[ToolSize, Field(gt=0)] = 64 * KIB
    """Bytes of one block."""
    count: int = Field(default=1024, gt=0)
    """Number of blocks."""
    conv: tuple[Literal["fsync", "fdatasync", "notrunc", "sparse"], ...] = ()
    """Conversions of dd(1). dd's time includes fsync, fdatasync, and always close, at which NFS clients write back."""
    oflag: tuple[Flag, ...] = ()
    iflag: tuple[Flag, ...] = ()
    all_machines: bool = False
    """Whether all clients run dd at the same time, each with its own file; otherwise the first client runs it."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Time limit of dd in seconds."""

    @model_validator(mode="after")
    def _flags_of_this_direction(self) -> Self:
        if self.direction == "write" and self.iflag:
            raise RequestError(f"dd: iflag {','.join(self.iflag)} needs direction = read: a write copies /dev/zero")
        if self.direction == "read" and (self.oflag or self.conv):
            options = ",".join([*self.oflag, *self.conv])
            raise RequestError(f"dd: oflag and conv ({options}) need direction = write: a read copies to /dev/null")
        return self

    @property
    def total(self) -> int:
        """Bytes that dd copies."""
        return self.bs * self.count

    def workload(self) -> "Dd":
        """Return the workload that runs dd with these settings."""
        return Dd(self)

    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""
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
        """Return the storage requests of dd if the workload runs on ``clients`` clients."""
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
    """The last line of dd: the bytes that it copied, and the time."""

    bytes: int
    seconds: float


def dd_command(spec: DdSpec, path: str) -> list[str]:
    """Return the dd command that writes or reads the file ``path``."""
    writes = spec.direction == "write"
    words = ["dd", *(["if=/dev/zero", f"of={path}"] if writes else [f"if={path}", "of=/dev/null"])]
    words += [f"bs={spec.bs}", f"count={spec.count}"]
    words += [f"{name}={','.join(of)}" for name in ("conv", "oflag", "iflag") if (of := getattr(spec, name))]
    return words


def parse_dd(text: str) -> DdState:
    """Return the bytes and seconds in GNU dd's last line, ``N bytes (..) copied, S s, R``; the rate R is ignored.

    Raises:
        RigError: dd reported an error, the last line is missing or incomplete, or the time is 0.
    """
    if errors := [line for line in text.splitlines() if line.startswith("dd: ")]:
        raise RigError("; ".join(errors))
    if (match := _LAST_LINE.search(text)) is None:
        raise RigError(f"the last line of dd is missing from its output: {text.strip()[-300:] or 'no output'}")
    found = DdState(bytes=int(match.group(1)), seconds=float(match.group(2)))
    if not found.seconds:
        raise RigError(f"dd reports {found.bytes} bytes copied in 0 s; a rate cannot be computed")
    return found


class Dd(Tool[DdSpec]):
    """Runs dd on the first of the workload's machines, or on all of them at the same time."""

    programs = ("dd", "timeout")

    @property
    def working_set(self) -> int:
        """Bytes of the file of one machine."""
        return self.spec.total

    def prepare(self, place: Place) -> None:
        """Remove the file of an earlier run; for direction ``read``, write the file that dd will read, with fsync."""
        self.clean(place)
        if self.spec.direction == "read":
            layout = DdSpec(bs=self.spec.bs, count=self.spec.count, conv=("fsync",), deadline_s=self.spec.deadline_s)
            on_all(self._machines(place), lambda machine: self._dd(layout, machine, place))

    def run(self, place: Place) -> Sample:
        """Run dd, and return its rate; for several machines, the sum of their bytes divided by the longest time.

        Raises:
            RigError: dd failed, exceeded its deadline, copied less than requested, or printed no valid last line.
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
        """Remove the file of dd on each machine."""
        on_all(self._machines(place), lambda machine: machine.succeed(["rm", "-f", _path(machine, place)]))

    def _dd(self, spec: DdSpec, machine: Machine, place: Place) -> tuple[DdState, Completed]:
        ended = run_limited(machine, dd_command(spec, _path(machine, place)), spec.deadline_s)
        return read_ended(spec, ended), ended

    def _machines(self, place: Place) -> list[Machine]:
        return list(place.machines if self.spec.all_machines else place.machines[:1])


def read_ended(spec: DdSpec, ended: Completed) -> DdState:
    """Return the bytes and seconds that an ended dd reports.

    Raises:
        RigError: dd failed, or copied another number of bytes than requested.
    """
    try:
        state = parse_dd(ended.stderr)
    except RigError as error:
        raise RigError(f"{ended.where}: {error}") from error
    if not ended.ok:
        raise RigError(f"{ended.where}: dd ended with status {ended.status}: {ended.stderr.strip()[-300:]}")
    if state.bytes != spec.total:
        raise RigError(f"{ended.where}: dd copied {state.bytes} bytes instead of {spec.total}")
    return state


def _path(machine: Machine, place: Place) -> str:
    return own_directory(machine, place.directory, NAME)
