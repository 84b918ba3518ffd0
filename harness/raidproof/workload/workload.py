"""The interface of every workload: the request, which registers its tool; the tool; its access pattern.

And what tools need on their machines: a deadline, empty caches, sizes, free space.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.core.layer import Machine, Spec
from raidproof.core.registry import OneOf, Registry
from raidproof.core.units import GIB, KIB, MIB, parse_size

CLIENTS, SERVER = "clients", "server"
_LETTERS = {"k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}

KILL_AFTER_S = 5
"""Seconds between SIGTERM and SIGKILL of a tool."""
GRACE_S = 20.0
"""Seconds that the harness waits beyond that, for a tool that hangs in the kernel."""
TIMED_OUT, KILLED = 124, 137
CACHES_DEADLINE_S = 300.0
"""Seconds; the dirty pages of a client with much memory may take this long to reach a slow server."""
T = TypeVar("T")
M = TypeVar("M", bound=Machine)
S = TypeVar("S", bound="WorkloadSpec")
Durable = Literal["each", "end", "no"]
"""When the timed part makes its writes durable: each write before the next ones, all at its end, or not at all."""


class Point(BaseModel):
    """The primary value over one interval; ``at_s`` is its end, in seconds from the beginning of the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_s: float
    value: float


class Sample(BaseModel):
    """What a tool measured in one run. The names of values carry their unit: ``write_mb_s``, ``read_iops``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    primary: str
    """Name of the value by which configurations are ranked; more is better."""
    values: dict[str, float]
    seconds: float
    """Duration of the timed part."""
    read_bytes: int = 0
    """Bytes that the application read, over all machines; 0 if the tool does not report them."""
    written_bytes: int = 0
    series: tuple[Point, ...] = ()
    """The primary value over time, if the tool reports it."""
    output: dict[str, str] = Field(default_factory=dict, exclude=True)
    """The tool's own output, by machine; kept as files beside the record."""

    @property
    def value(self) -> float:
        """The primary value."""
        return self.values[self.primary]


@dataclass(frozen=True)
class Place:
    """Where a workload runs: the clients on their mounts, or the server on its own directory or device."""

    machines: Sequence[Machine]
    directory: str
    """Directory of the workload's files, the same on each machine."""
    device: str | None = None
    """The array (or disk) below, for tools that read raw devices; only on the server."""


class Workload(Protocol):
    """One tool with its settings, ready to run. ``prepare`` and ``clean`` are not timed."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that the machines must have."""

    @property
    def working_set(self) -> int:
        """Bytes that one machine accesses; compared with cache sizes to find out what is measured."""

    @property
    def timed_s(self) -> float | None:
        """Seconds of the timed part; None if the amount of work is fixed instead."""

    def prepare(self, place: Place) -> None:
        """Lay out the files that the timed part needs, on disk, and outside of caches where that matters."""

    def run(self, place: Place) -> Sample:
        """Run the timed part.

        Raises:
            RigError: the tool failed, exceeded its deadline, or its output cannot be parsed.
        """

    def clean(self, place: Place) -> None:
        """Remove the files that the workload wrote."""


@dataclass(frozen=True)
class Work:
    """The requests of the timed part of a workload that matter to caches."""

    working_set: int | None
    """Bytes that one machine accesses; None if not known before."""
    reads: bool
    writes: bool
    durable: Durable = "no"
    direct: bool = False
    """O_DIRECT: bypasses the page cache of the machine that runs the workload."""
    once: bool = True
    """Whether the timed part accesses no byte twice."""
    closes: bool = False
    """The time includes closing each file, or names are created and removed: an NFS client makes that durable."""
    warm: bool = False
    """The data was read just before, on purpose: caches must not be emptied in between."""
    everywhere: bool = False
    """Runs on all machines at the same time, each with its own files; else on one."""


@dataclass(frozen=True)
class Access:
    """A stream of requests in its steady state, as the application issues them."""

    size: int
    """Bytes of one request."""
    read_share: float = 0.0
    """Share of the requests, 0 to 1; the rest are writes."""
    sequential: bool = True
    depth: int = 1
    """Outstanding requests of one stream; without ``direct`` the page cache issues more of them."""
    streams: int = 1
    """Streams of all clients together; each has its own file, or part of one."""
    clients: int = 1
    sync_every: int | None = None
    """Bytes after which a stream waits until they are durable (fsync, or O_SYNC with the request's size)."""
    span: float = 1.0
    """Share of the array, from its beginning, over which the requests are spread; limits the seek distance."""
    working_set: int | None = None
    """Bytes that are written in total, or again and again; a write cache that holds them hides the disks."""
    direct: bool = False
    """Bypasses the page cache of the client."""
    remote: bool = True
    """Over NFS; otherwise on the server itself."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.depth < 1 or self.streams < 1 or self.clients < 1:
            raise ValueError("size, depth, streams and clients are at least 1")
        if not 0 <= self.read_share <= 1 or not 0 < self.span <= 1:
            raise ValueError("read_share is 0 to 1, span more than 0 and at most 1")
        if self.sync_every is not None and self.sync_every < 1:
            raise ValueError("sync_every is at least 1")


WORKLOADS: Registry[type["WorkloadSpec"]] = Registry("workload", "raidproof.workload", "raidproof.workloads")
"""Every kind of workload by the name of its tool."""


class WorkloadSpec(Spec):
    """The settings of one tool in a plan. A subclass with a default for ``tool`` registers itself."""

    on_files: ClassVar[bool] = True
    """Whether the tool works on files in a directory."""
    on_devices: ClassVar[bool] = False
    """Whether the tool works on a bare device of the server."""

    tool: str

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register the kind."""
        WORKLOADS.add(cls.model_fields["tool"].default, cls)

    @abstractmethod
    def workload(self) -> Workload:
        """Return the tool with these settings, ready to run."""

    @abstractmethod
    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""

    def access(self, *, clients: int = 1) -> Access | None:
        """Return the storage requests of the timed part, on this number of clients; None if no formula applies.

        Tools with files of many sizes, or with phases, have none: their results are only compared with each other.
        """


AnyWorkload = Annotated[WorkloadSpec, OneOf(WORKLOADS, key="tool")]
"""A field that holds a workload of any kind; its ``tool`` names the kind."""


def durable_of(synchronous: bool, interval: int, size: int, *, at_end: bool) -> Durable:
    """Return when writes become durable: fsync comes after ``interval`` bytes (0: never), or only at the end."""
    if synchronous or 0 < interval < size:
        return "each"
    return "end" if interval or at_end else "no"


def parse_tool_size(text: str | int) -> int:
    """Parse ``4k``, ``1M`` or ``4g`` as the tools do, and anything else as a size of raidproof (``64KiB``, ``64kB``).

    Raises:
        RequestError: the text is not a size.
    """
    if isinstance(text, str) and (match := re.fullmatch(r"(\d+)([kmgt])", text.strip(), re.IGNORECASE)):
        return int(match.group(1)) * _LETTERS[match.group(2).lower()]
    # pydantic ignores a trailing rest: fio's 50% would be 50 bytes.
    if isinstance(text, str) and not re.fullmatch(r"[\w.\s]+", text):
        raise RequestError(f"not a size: {text!r}", remedy="write for example 4k or 64KiB")
    return parse_size(text)


ToolSize = Annotated[int, BeforeValidator(parse_tool_size)]
"""A pydantic field in bytes that reads ``4k`` as 4096."""


def run_limited(machine: Machine, argv: Sequence[str], deadline_s: float, *, stdin: str | None = None) -> Completed:
    """Run a tool with a deadline that its machine enforces: a leftover tool would disturb the next measurement.

    Its messages are in English whatever the machine's language.

    Raises:
        DeadlineExceeded: the tool ran too long.
    """
    seconds = ceil(deadline_s)
    limit = ["timeout", f"--kill-after={KILL_AFTER_S}", str(seconds)]
    waited_s = seconds + KILL_AFTER_S + GRACE_S
    ended = machine.run(["env", "LC_ALL=C", *limit, *argv], stdin=stdin, deadline_s=waited_s)
    if ended.status in {TIMED_OUT, KILLED}:
        said = (ended.stderr.strip() or ended.stdout.strip())[-300:]
        raise DeadlineExceeded(f"{machine.name}: {argv[0]} was still running after {seconds} s: {said or 'silent'}")
    return ended


def on_all(machines: Sequence[M], action: Callable[[M], T]) -> dict[str, T]:
    """Run an action on all machines at the same time; return the results by name, in the order of the machines.

    Raises:
        ExceptionGroup: the action failed on several; a single failure is raised as it is.
    """
    with ThreadPoolExecutor(max(1, len(machines))) as pool:
        running = {machine.name: pool.submit(action, machine) for machine in machines}
    failed = [error for future in running.values() if isinstance(error := future.exception(), Exception)]
    if len(failed) > 1:
        raise ExceptionGroup("failed on several machines", failed)
    return {name: future.result() for name, future in running.items()}


def empty_caches(machine: Machine) -> None:
    """Write back dirty pages and drop clean ones, so that the next read does not come from this machine's caches."""
    machine.succeed(["sync"], deadline_s=CACHES_DEADLINE_S)
    machine.succeed(["sysctl", "-q", "-w", "vm.drop_caches=3"], deadline_s=CACHES_DEADLINE_S)


def require_ended_well(ended: Completed, tool: str) -> str:
    """Return the standard output of a tool that ended with status 0.

    Raises:
        RigError: the status is not 0; 128 and above is a signal.
    """
    if ended.ok:
        return ended.stdout
    said = (ended.stderr.strip() or ended.stdout.strip()).rpartition("\n")[2][-300:]
    raise RigError(f"{ended.where}: {tool} ended with status {ended.status}: {said or 'no output'}")


def own_directory(machine: Machine, root: str, tool: str) -> str:
    """Return the directory of one machine: clients that share an export must not share names."""
    return f"{root}/{tool}-{machine.name}"


def free_bytes(machine: Machine, directory: str) -> int:
    """Return the free bytes of the file system.

    Raises:
        RigError: stat printed something else.
    """
    return parse_free(machine.succeed(["stat", "--file-system", "--format=%a %S", directory]))


def parse_free(text: str) -> int:
    """Parse ``stat --file-system --format='%a %S'``: free blocks and the block size."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not text.endswith("\n"):
        raise RigError(f"stat --file-system should print two numbers: {text!r}")
    return int(words[0]) * int(words[1])


def require_room(machine: Machine, directory: str, needed: int, tool: str) -> None:
    """Check that the workload fits into the file system.

    Raises:
        RigError: there is not enough room.
    """
    if (free := free_bytes(machine, directory)) < needed:
        raise RigError(
            f"{tool} on {machine.name} needs {needed} bytes below {directory}, where {free} are free",
            remedy="fewer or smaller files, or larger disks",
        )


def added(of_machines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of the values of several machines, without a value that one of them lacks."""
    everywhere = [name for name in of_machines[0] if all(name in values for values in of_machines)]
    return {name: sum(values[name] for values in of_machines) for name in everywhere}


class Tool(Generic[S]):
    """A workload that runs a program with the settings of a plan; by default its amount of work is fixed."""

    programs: tuple[str, ...] = ()

    def __init__(self, spec: S) -> None:
        self.spec = spec

    @property
    def timed_s(self) -> float | None:
        """None: the amount is fixed."""
        return None


class DirectoryTool(Tool[S], ABC):
    """A tool that runs on all machines at the same time, on each in its own directory."""

    @property
    def clean_deadline_s(self) -> float:
        """Seconds to remove a directory."""
        return DEFAULT_DEADLINE_S

    @abstractmethod
    def room(self) -> int:
        """Return the bytes that one machine needs in the file system."""

    @abstractmethod
    def run_on(self, machine: Machine, directory: str) -> str:
        """Run the tool on one machine, and return its output."""

    def prepare(self, place: Place) -> None:
        """Create the directories, and check the free space."""
        needed = self.room() * len(place.machines)
        for machine in place.machines:
            machine.succeed(["mkdir", "-p", self._directory(machine, place)])
            require_room(machine, place.directory, needed, self.spec.tool)
        on_all(place.machines, lambda machine: machine.succeed(["sync"], deadline_s=CACHES_DEADLINE_S))

    def run_everywhere(self, place: Place) -> dict[str, str]:
        """Return the output of the tool by machine."""
        return on_all(place.machines, lambda machine: self.run_on(machine, self._directory(machine, place)))

    def clean(self, place: Place) -> None:
        """Remove what an interrupted run has left."""

        def remove(machine: Machine) -> None:
            machine.succeed(["rm", "-rf", self._directory(machine, place)], deadline_s=self.clean_deadline_s)

        on_all(place.machines, remove)

    def _directory(self, machine: Machine, place: Place) -> str:
        return own_directory(machine, place.directory, self.spec.tool)
