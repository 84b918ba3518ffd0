"""The interface of every workload: the request, which registers its tool; the tool; its access pattern."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from raidproof.core.layer import Machine, Spec
from raidproof.core.registry import OneOf, Registry

CLIENTS, SERVER = "clients", "server"
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
