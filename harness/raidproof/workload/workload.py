"""What every workload has to offer: a request that registers its tool, the tool ready to run, and what it does."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from raidproof.core.layer import Machine, Spec
from raidproof.core.registry import OneOf, Registry

CLIENTS, SERVER = "clients", "server"
Durable = Literal["each", "end", "no"]
"""When the timed part makes what it writes durable: each write before the next ones, all at its end, or not at all."""


class Point(BaseModel):
    """The primary value over one interval of a run; ``at_s`` is the interval's end, from the run's beginning."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_s: float
    value: float


class Sample(BaseModel):
    """What a tool measured in one run. The names of values carry their unit: ``write_mb_s``, ``read_iops``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    primary: str
    """The value that this workload is about; configurations are ranked by it, more is better."""
    values: dict[str, float]
    seconds: float
    """The timed part."""
    read_bytes: int = 0
    """What the application read, over all machines; 0 where the tool does not say."""
    written_bytes: int = 0
    series: tuple[Point, ...] = ()
    """The primary value over time, where the tool says it."""
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
    """Where its files go, the same on each machine."""
    device: str | None = None
    """The array (or disk) below, for tools that read raw devices; only on the server."""


class Workload(Protocol):
    """One tool with its settings, ready to run. ``prepare`` and ``clean`` are not timed."""

    @property
    def programs(self) -> tuple[str, ...]:
        """What the machines must have."""

    @property
    def working_set(self) -> int:
        """Bytes that one machine touches; against caches this says what is measured."""

    @property
    def timed_s(self) -> float | None:
        """How long the timed part takes; None where the amount of work is fixed instead."""

    def prepare(self, place: Place) -> None:
        """Lay out what the timed part needs, and leave it on disk and out of caches where that matters."""

    def run(self, place: Place) -> Sample:
        """Run the timed part.

        Raises:
            RigError: the tool failed, looped beyond its deadline, or printed what cannot be read.
        """

    def clean(self, place: Place) -> None:
        """Remove what it wrote."""


@dataclass(frozen=True)
class Work:
    """What the timed part of a workload does, as far as caches care."""

    working_set: int | None
    """Bytes that one machine touches; None where nobody knows before."""
    reads: bool
    writes: bool
    durable: Durable = "no"
    direct: bool = False
    """O_DIRECT: past the page cache of the machine that it runs on."""
    once: bool = True
    """Nothing is touched twice in the timed part."""
    closes: bool = False
    """The time includes closing each file, or names are made and removed: an NFS client makes that durable."""
    warm: bool = False
    """What is read has been read just before, on purpose: no one may empty caches in between."""
    everywhere: bool = False
    """On all machines at the same time, each on files of its own; else on one."""


@dataclass(frozen=True)
class Access:
    """A stream of requests in its steady state, as the application makes them."""

    size: int
    """Bytes of one request."""
    read_share: float = 0.0
    """Of the requests, 0 to 1; the rest are writes."""
    sequential: bool = True
    depth: int = 1
    """Requests that one stream has outstanding; where not ``direct`` the page cache has more of them."""
    streams: int = 1
    """Over all clients; each has a file, or a part of one, of its own."""
    clients: int = 1
    sync_every: int | None = None
    """Bytes after which a stream waits until they are durable (fsync, or O_SYNC with the request's size)."""
    span: float = 1.0
    """Share of the array, from its beginning, over which the requests are spread: it bounds the seeks."""
    working_set: int | None = None
    """Bytes that are written in all, or again and again; a write cache that holds them hides the disks."""
    direct: bool = False
    """Past the page cache of the client."""
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
    """What a plan may ask of one tool. A subclass with a default for ``tool`` registers itself."""

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
        """Return what the timed part does, as far as caches care."""

    def access(self, *, clients: int = 1) -> Access | None:
        """Return what the timed part asks of the storage, on so many clients; None where no formula holds.

        Tools with files of many sizes, or with phases, have none: their figure is compared with others' only.
        """


AnyWorkload = Annotated[WorkloadSpec, OneOf(WORKLOADS, key="tool")]
"""A field that holds a workload of any kind; its ``tool`` names the kind."""


def durable_of(synchronous: bool, interval: int, size: int, *, at_end: bool) -> Durable:
    """Say when writes become durable: fsync comes after ``interval`` bytes (0: never), or only at the end."""
    if synchronous or 0 < interval < size:
        return "each"
    return "end" if interval or at_end else "no"
