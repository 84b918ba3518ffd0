"""What one run of a workload measured, and where it ran: the words that all tools share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from raidproof.core.layer import Machine


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
