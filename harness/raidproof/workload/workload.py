"""The interface of every workload: its settings in a plan, its tool (a program like fio), and the requests it issues.

Also the functions that several tools use: run with a deadline, empty caches, parse sizes, check free space.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError, nearest
from raidproof.core.layer import Machine, Spec
from raidproof.core.registry import OneOf, Registry, register_default
from raidproof.core.units import GIB, KIB, MIB, SIZE_SCHEMA, parse_size
from raidproof.workload.application import ApplicationSpec

CLIENTS, SERVER = "clients", "server"
_LETTERS = {"k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}

KILL_AFTER_S = 5
"""Seconds between SIGTERM and SIGKILL for a tool that exceeds its deadline."""
GRACE_S = 20.0
"""Seconds that the harness waits after SIGKILL for a tool that hangs in the kernel."""
TIMED_OUT, KILLED = 124, 137
"""Exit statuses of timeout(1) after SIGTERM and after SIGKILL."""
CACHES_DEADLINE_S = 300.0
"""Time limit in seconds for emptying caches: a client may have many dirty pages to send to a slow server."""
T = TypeVar("T")
M = TypeVar("M", bound=Machine)
S = TypeVar("S", bound="WorkloadSpec")
Durable = Literal["each", "end", "no"]
"""When writes become durable: each before the next write, all at the end of the timed part, or later (``no``)."""


class Point(BaseModel):
    """The primary value in one interval of a workload; ``at_s``: end of the interval in s since the workload began."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_s: float
    value: float


class Sample(BaseModel):
    """The measurements of a tool in one run. The name of a value ends with its unit: ``write_mb_s``, ``read_iops``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    primary: str
    """Name of the value by which configurations are ranked; a larger value is better."""
    values: dict[str, float]
    seconds: float
    """Duration of the timed part in seconds."""
    read_bytes: int = 0
    """Bytes that the application read, over all machines; 0 if the tool does not report them."""
    written_bytes: int = 0
    """Bytes that the application wrote, over all machines; 0 if the tool does not report them."""
    series: tuple[Point, ...] = ()
    """The primary value over time; empty if the tool does not report a series."""
    output: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Output of the tool by name of the machine; stored as files beside the record."""

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
    """Path of the server's array or disk, for tools that read raw devices; None on clients."""


class Workload(Protocol):
    """One tool with its settings, ready to run. Only ``run`` is timed, not ``prepare`` and ``clean``."""

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of the programs that each machine must have."""

    @property
    def working_set(self) -> int:
        """Bytes that one machine accesses. If they fit into a cache, a run may measure the cache, not the disks."""

    @property
    def timed_s(self) -> float | None:
        """Duration of the timed part in seconds; None if a fixed amount of work ends the timed part."""

    def prepare(self, place: Place) -> None:
        """Write the files that the timed part reads or overwrites to the disks; empty the machines' caches."""

    def run(self, place: Place) -> Sample:
        """Run the timed part.

        Raises:
            RigError: the tool failed, exceeded its deadline, or its output cannot be parsed.
        """

    def clean(self, place: Place) -> None:
        """Remove the files that the workload has written."""


@dataclass(frozen=True)
class Work:
    """The properties of a workload's timed part that decide which caches can serve its reads and writes."""

    working_set: int | None
    """Bytes that one machine accesses; None if the number is not known before the run."""
    reads: bool
    writes: bool
    durable: Durable = "no"
    direct: bool = False
    """Whether requests bypass the page cache of the machine that runs the workload (O_DIRECT)."""
    once: bool = True
    """Whether the timed part accesses each byte at most once."""
    closes: bool = False
    """Whether the timed part closes files, or creates and removes names: an NFS client makes both durable."""
    warm: bool = False
    """Whether the data is read just before the timed part, on purpose; the caches are not emptied in between."""
    everywhere: bool = False
    """Whether all machines run the workload at the same time, each with its own files; otherwise only the first."""


@dataclass(frozen=True)
class Access:
    """The storage requests of a workload in steady state, as the application issues them."""

    size: int
    """Bytes of one request."""
    read_share: float = 0.0
    """Share of reads among the requests, 0 to 1; the other requests are writes."""
    sequential: bool = True
    depth: int = 1
    """Requests that one stream keeps outstanding; without ``direct``, the page cache issues additional requests."""
    streams: int = 1
    """Number of request streams of all clients together; each has its own file, or its own part of a shared file."""
    clients: int = 1
    sync_every: int | None = None
    """Bytes between two fsyncs of a stream; with O_SYNC, the size of a request. None: no fsync."""
    span: float = 1.0
    """Share of the array, from its beginning, over which the requests are spread. A small share means short seeks."""
    working_set: int | None = None
    """Bytes that all streams together access; a write cache of at least this size hides the disks. None: not known."""
    direct: bool = False
    """Whether requests bypass the page cache of the client (O_DIRECT)."""
    remote: bool = True
    """Whether requests go over NFS; otherwise the workload runs on the server."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.depth < 1 or self.streams < 1 or self.clients < 1:
            raise ValueError(
                f"size {self.size}, depth {self.depth}, streams {self.streams}, clients {self.clients}: "
                "each must be at least 1"
            )
        if not 0 <= self.read_share <= 1 or not 0 < self.span <= 1:
            raise ValueError(
                f"read_share must be from 0 to 1, not {self.read_share:g}; "
                f"span must be more than 0 and at most 1, not {self.span:g}"
            )
        if self.sync_every is not None and self.sync_every < 1:
            raise ValueError(f"sync_every must be at least 1 byte, not {self.sync_every}")


WORKLOADS: Registry[type["WorkloadSpec"]] = Registry("workload", "raidproof.workload", "raidproof.workloads")
"""Registry of all kinds of workload, by the name of their tool."""


class WorkloadSpec(Spec):
    """The settings of one tool in a plan. A subclass is a kind of workload, and registers its default for ``tool``."""

    on_files: ClassVar[bool] = True
    """Whether this workload can use files in a directory."""
    on_devices: ClassVar[bool] = False
    """Whether this workload can use a raw device of the server."""

    tool: str
    """Name of the kind of workload, in plans and records."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register the subclass by the name of its tool."""
        register_default(WORKLOADS, cls, key="tool")

    @classmethod
    def lacks(cls, field: str) -> str:
        """Return a message that the tool has no setting of this name, with the nearest valid name."""
        valid = [name for name in cls.model_fields if name != "tool"]
        return f"tool {cls.model_fields['tool'].default} has no setting {field!r}; {nearest(field, valid)}"

    @abstractmethod
    def workload(self) -> Workload:
        """Return the workload that runs the tool with these settings."""

    @abstractmethod
    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""

    def refuse_files(self) -> None:
        """Verify that the files of this host that the tool needs can be read.

        Raises:
            RequestError: a file cannot be read; the message names it.
        """

    def application(self, on: str) -> ApplicationSpec | None:  # noqa: ARG002  of the subclasses that have one
        """Return the application whose acknowledgements the power cut of a cell checks; None: the ledger's own ones.

        ``on``: where the cell runs the workload, ``clients`` or ``server``.
        """
        return None

    def access(self, *, clients: int = 1) -> Access | None:
        """Return the storage requests if the workload runs on ``clients`` clients; None if no formula predicts rates.

        No formula applies to a tool that has files of many sizes, or several phases. The results of such a tool are
        compared only with each other.
        """


AnyWorkload = Annotated[WorkloadSpec, OneOf(WORKLOADS, key="tool")]
"""A field that holds a workload of any kind; its ``tool`` names the kind."""


def durable_of(synchronous: bool, interval: int, size: int, *, at_end: bool) -> Durable:
    """Return when the writes to a file of ``size`` bytes become durable.

    ``synchronous``: the file is opened with O_SYNC or O_DSYNC. ``interval``: bytes between two fsyncs, 0 if there are
    none. ``at_end``: an fsync follows the last write.
    """
    if synchronous or 0 < interval < size:
        return "each"
    return "end" if interval or at_end else "no"


def parse_tool_size(text: str | int) -> int:
    """Return a size in bytes: ``4k``, ``1M`` and ``4g`` are powers of 1024, as for the tools.

    Other texts are sizes as elsewhere in raidproof: ``64KiB`` (65536), ``64kB`` (64000).

    Raises:
        RequestError: the text is not a size.
    """
    if isinstance(text, str) and (match := re.fullmatch(r"(\d+)([kmgt])", text.strip(), re.IGNORECASE)):
        return int(match.group(1)) * _LETTERS[match.group(2).lower()]
    # pydantic ignores trailing characters: fio's 50% would be 50 bytes.
    if isinstance(text, str) and not re.fullmatch(r"[\w.\s]+", text):
        raise RequestError(f"not a size: {text!r}", remedy="set the size for example to 4k or 64KiB")
    return parse_size(text)


ToolSize = Annotated[int, BeforeValidator(parse_tool_size), WithJsonSchema(SIZE_SCHEMA, mode="validation")]
"""A pydantic field of a number of bytes; it accepts the tools' notation, ``4k`` for 4096."""


def run_limited(machine: Machine, argv: Sequence[str], deadline_s: float, *, stdin: str | None = None) -> Completed:
    """Run a tool under timeout(1), in the C locale (English messages), and return its output and status.

    timeout(1) ends the tool in the machine: a tool that kept running would disturb the next measurement.

    Raises:
        DeadlineExceeded: the tool did not end within ``deadline_s``.
    """
    seconds = ceil(deadline_s)
    limit = ["timeout", f"--kill-after={KILL_AFTER_S}", str(seconds)]
    waited_s = seconds + KILL_AFTER_S + GRACE_S
    ended = machine.run(["env", "LC_ALL=C", *limit, *argv], stdin=stdin, deadline_s=waited_s)
    if ended.status in {TIMED_OUT, KILLED}:
        said = (ended.stderr.strip() or ended.stdout.strip())[-300:]
        raise DeadlineExceeded(f"{machine.name}: {argv[0]} was still running after {seconds} s: {said or 'no output'}")
    return ended


def on_all(machines: Sequence[M], action: Callable[[M], T]) -> dict[str, T]:
    """Run an action on all machines at the same time; return the results by machine name, in the machines' order.

    Raises:
        ExceptionGroup: the action failed on more than one machine. The error of a single machine is raised unchanged.
    """
    with ThreadPoolExecutor(max(1, len(machines))) as pool:
        running = {machine.name: pool.submit(action, machine) for machine in machines}
    failed = [error for future in running.values() if isinstance(error := future.exception(), Exception)]
    if len(failed) > 1:
        raise ExceptionGroup(f"errors on {len(failed)} of {len(machines)} machines", failed)
    return {name: future.result() for name, future in running.items()}


def empty_caches(machine: Machine) -> None:
    """Write back a machine's dirty pages and drop its clean pages, so that its caches do not serve the next read."""
    machine.succeed(["sync"], deadline_s=CACHES_DEADLINE_S)
    machine.succeed(["sysctl", "-q", "-w", "vm.drop_caches=3"], deadline_s=CACHES_DEADLINE_S)


def require_ended_well(ended: Completed, tool: str) -> str:
    """Return the standard output of a tool that ended with status 0.

    Raises:
        RigError: the tool ended with another status; 128 and above stands for a signal.
    """
    if ended.ok:
        return ended.stdout
    said = (ended.stderr.strip() or ended.stdout.strip()).rpartition("\n")[2][-300:]
    raise RigError(f"{ended.where}: {tool} ended with status {ended.status}: {said or 'no output'}")


def own_directory(machine: Machine, root: str, tool: str) -> str:
    """Return the path of one machine's directory below ``root``: clients of one export must use different names."""
    return f"{root}/{tool}-{machine.name}"


def free_bytes(machine: Machine, directory: str) -> int:
    """Return the free bytes of the file system that contains a directory.

    Raises:
        RigError: stat(1) failed, or did not print two numbers.
    """
    return parse_free(machine.succeed(["stat", "--file-system", "--format=%a %S", directory]))


def parse_free(text: str) -> int:
    """Return the free bytes in the output of ``stat --file-system --format='%a %S'``: free blocks and the block size.

    Raises:
        RigError: the output is not two numbers.
    """
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not text.endswith("\n"):
        raise RigError(f"stat --file-system printed {text!r} instead of two numbers")
    return int(words[0]) * int(words[1])


def require_room(machine: Machine, directory: str, needed: int, tool: str) -> None:
    """Check that the file system of a directory has the free bytes that a tool needs.

    Raises:
        RigError: fewer bytes are free.
    """
    if (free := free_bytes(machine, directory)) < needed:
        raise RigError(
            f"{tool} on {machine.name} needs {needed} bytes below {directory}, where {free} bytes are free",
            remedy="set fewer or smaller files for the workload, or larger disks",
        )


def added(of_machines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of each value over several machines; leave out a value that a machine lacks."""
    everywhere = [name for name in of_machines[0] if all(name in values for values in of_machines)]
    return {name: sum(values[name] for values in of_machines) for name in everywhere}


class Tool(Generic[S]):
    """Base class of the workloads that run a program with the settings of a plan."""

    programs: tuple[str, ...] = ()

    def __init__(self, spec: S) -> None:
        self.spec = spec

    @property
    def timed_s(self) -> float | None:
        """None: a fixed amount of work ends the timed part. Classes of tools with a run time override this."""
        return None


class DirectoryTool(Tool[S], ABC):
    """Base class of the tools that run on all machines at the same time, on each in its own directory."""

    @property
    def clean_deadline_s(self) -> float:
        """Time limit in seconds for the removal of one machine's directory."""
        return DEFAULT_DEADLINE_S

    @abstractmethod
    def room(self) -> int:
        """Return the bytes that the files of one machine occupy at most."""

    @abstractmethod
    def run_on(self, machine: Machine, directory: str) -> str:
        """Run the tool on one machine, and return the tool's output."""

    def prepare(self, place: Place) -> None:
        """Create the directory of each machine, and check the free space.

        Raises:
            RigError: the file system has too little free space.
        """
        needed = self.room() * len(place.machines)
        for machine in place.machines:
            machine.succeed(["mkdir", "-p", self._directory(machine, place)])
            require_room(machine, place.directory, needed, self.spec.tool)
        on_all(place.machines, lambda machine: machine.succeed(["sync"], deadline_s=CACHES_DEADLINE_S))

    def run_everywhere(self, place: Place) -> dict[str, str]:
        """Run the tool on all machines at the same time, and return its output by machine name."""
        return on_all(place.machines, lambda machine: self.run_on(machine, self._directory(machine, place)))

    def clean(self, place: Place) -> None:
        """Remove the directory of each machine, with the files of an interrupted run."""

        def remove(machine: Machine) -> None:
            machine.succeed(["rm", "-rf", self._directory(machine, place)], deadline_s=self.clean_deadline_s)

        on_all(place.machines, remove)

    def _directory(self, machine: Machine, place: Place) -> str:
        return own_directory(machine, place.directory, self.spec.tool)
