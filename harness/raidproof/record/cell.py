"""The record schema of a plan's cell: one configuration under one workload, measured in several repetitions."""

from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raidproof.monitor.chart import Moment
from raidproof.record.outcome import Outcome
from raidproof.record.reference import ReferenceRecord
from raidproof.record.worker import WorkerRecord
from raidproof.record.write_hole import HoleRecord

UNSTABLE = 0.2
"""Range of a cell's values divided by their median; above this limit the median is unreliable."""
DURATIONS = ("_ns", "_us", "_ms", "_seconds")
"""Endings of the names of values of which a smaller one is faster; ``creates_s`` is a rate per second."""


class Strict(BaseModel):
    """Base class of all record models: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class Repetition(Strict):
    """One repetition of a cell: the values of the workload, and those of the monitors during the workload."""

    round: int
    """Number of the round, from 1; each round has one repetition of every cell."""
    worker: str | None = None
    """Name of the worker that made the repetition; None: the host of the run, without a cluster."""
    reference: ReferenceRecord | None = None
    """The speed of the host just before the repetition; None if it was not measured."""
    value: float | None = None
    """The workload's primary value, in the unit of `CellRecord.unit`; None if the workload was not measured."""
    values: dict[str, float] = Field(default_factory=dict)
    """All values of the workload by name; each name ends with the unit: ``write_mb_s``."""
    series: list[tuple[float, float]] = Field(default_factory=list)
    """Pairs of the end of an interval (seconds from the workload's begin) and the primary value in this interval."""
    timed_s: float = 0.0
    """Duration of the timed part of the workload, in seconds."""
    visit_s: float = 0.0
    """Duration of the whole repetition, in seconds: building, preparing, measuring, reading back."""
    built: str = ""
    """The lowest layer that was rebuilt for this repetition; empty if no layer was rebuilt."""
    steady: dict[str, Any] | None = None
    """Whether the workload reached a steady state, with the figures of this check; None without the check."""
    regime: dict[str, Any] | None = None
    """Cache regime: the cache into which the working set fits, if any."""
    derived: dict[str, Any] | None = None
    """Values derived from the monitors; None if the monitors failed."""
    moments: list[Moment] = Field(default_factory=list)
    """What the monitors measured over time, in at most `raidproof.monitor.chart.MOST_MOMENTS` intervals."""
    engine: dict[str, Any] | None = None
    """Utilization of the disk engine and of the disks that it simulates."""
    limit: str = "unknown"
    """The resource that limited the value, a value of `raidproof.monitor.bottleneck.Limit`."""
    cause: str = ""
    """The limit as a sentence."""
    caveat: str | None = None
    """Why this repetition's value is unreliable; None if it is reliable."""
    rig_error: str | None = None
    """The message of the rig's error that ended this repetition; None without an error."""
    files: dict[str, str] = Field(default_factory=dict)
    """Files with raw output, relative to the run's directory, by the file's title in the HTML report."""


class Explored(Strict):
    """The result of an exploration of the crash states of a crash test."""

    file: str | None
    """File of the exploration's record, in the run's directory; None if no state could be explored: see ``reason``."""
    judged: int
    """Number of judged crash states."""
    broken: int
    """Number of judged crash states in which a promise is broken."""
    lost: int = 0
    """Greatest number of acknowledged operations that a state lacks although the export's options excuse the loss."""
    noticed: int | None = None
    """Number of missing flushes of one member that the checked states would have shown; None if not known."""
    outcome: Outcome
    reason: str


class CellRecord(Strict):
    """One configuration of a plan under one workload."""

    name: str
    settings: dict[str, str]
    """The cell's value on each axis of the plan."""
    workload: dict[str, Any]
    """Specification of the workload."""
    workload_name: str = ""
    """Name of the workload's table in the plan, whose settings an axis may vary; empty in an older record."""
    unit: str
    """Name of the primary value, which ends with its unit: ``write_mb_s``."""
    asked: dict[str, Any]
    """The requested configuration, by layer."""
    effective: dict[str, Any] = Field(default_factory=dict)
    """The configuration as read back from the machines, by layer."""
    resync: Literal["waited for", "skipped: blank members agree"] = "waited for"
    expected: dict[str, Any] | None = None
    """The value expected of the hardware, with the formula; None if no formula applies."""
    repeats: list[Repetition] = Field(default_factory=list)
    cycle: str | None = None
    """Name of the crash test that cut the power of this configuration."""
    explored: Explored | None = None
    """The result of the exploration of the crash states of ``cycle``; None if they were not explored."""
    holes: list[HoleRecord] = Field(default_factory=list)
    """The explored crash states for the table of the write hole; empty if the plan does not request it."""
    not_effective: str | None = None
    """How the effective configuration differs from the requested one, or the data read back from the data written."""
    # `raidproof judge` computes the following fields again from those above.
    rankable: bool = False
    why_not: str | None = None
    """Why this cell has no rank; None if it has one."""
    rank: int | None = None
    """Rank among the cells of the same workload, from 1, the fastest; None without a rank.

    Cells whose difference is not settled share a rank.
    """
    tied_with: str | None = None
    """Name of the next faster cell, if it has the same rank; else None."""
    parts_at: int | None = None
    """About how many repetitions of each would part this cell from ``tied_with``; None if not known, or too many."""
    limit: str = "unknown"
    """The resource that limited most repetitions."""
    cause: str = ""
    """The limit as a sentence."""
    between_workers: float | None = None
    """Standard deviation of the workers' levels, as a share of the value; None with one worker, or if not known."""
    within_workers: float | None = None
    """Standard deviation of the values of one worker, as a share of the value; None as above."""
    flag: str | None = None
    """Caveats about the value: far below the expected value, unstable, measures a cache; None without any."""
    lost: str | None = None
    """The loss by a power cut, by design or not, as text: ``0 of 1,417``; None without a power cut."""
    lost_operations: int | None = None
    """Number of lost acknowledged operations; None if not known: no power cut, or the storage could not be read."""
    lost_everything: bool = False
    """Whether the storage did not recover after the power cut."""
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not measured"

    @property
    def compared_with(self) -> str:
        """Key of the cell's workload in the plan; only cells with the same key can be compared."""
        return self.workload_name or str(self.workload)

    @property
    def measured(self) -> list[float]:
        """The primary values of all repetitions that have one."""
        return [repeat.value for repeat in self.repeats if repeat.value is not None]

    @property
    def by_worker(self) -> dict[str | None, list[float]]:
        """The primary values by the worker that measured them, in the order of the repetitions."""
        found: dict[str | None, list[float]] = {}
        for repeat in self.repeats:
            if repeat.value is not None:
                found.setdefault(repeat.worker, []).append(repeat.value)
        return found

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller value is faster, by the name of the value, which ends with its unit."""
        return self.unit.endswith(DURATIONS)

    @property
    def median(self) -> float | None:
        """The median of the primary values; None without any."""
        return median(self.measured) if self.measured else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the greatest primary value; None without any."""
        return (min(self.measured), max(self.measured)) if self.measured else None

    @property
    def unstable(self) -> bool:
        """Whether the repetitions of a worker vary so much that their median is unreliable."""
        return any(
            len(values) > 1 and median(values) and (max(values) - min(values)) / median(values) > UNSTABLE
            for values in self.by_worker.values()
        )

    @property
    def ratio(self) -> float | None:
        """The median divided by the expected value; None if one of them is not known."""
        expected = (self.expected or {}).get("value")
        return self.median / expected if self.median is not None and expected else None


class FigureRecord(Strict):
    """A published measurement, and the cell of the plan that repeats the measurement."""

    name: str
    cell: str
    """Name of the cell."""
    published: float
    """The published value, in ``unit``."""
    unit: str
    """Name of the published value, which ends with its unit: ``write_mb_s``."""
    source: str = ""
    """Where the value was published."""
    places_limit: bool = False
    """Whether the value calibrated the simulated hardware: then agreement of the measured value proves nothing."""
    note: str = ""


class PlanRecord(Strict):
    """The plan of a run."""

    path: str
    text: str
    """The content of the plan's file."""
    digest: str = ""
    """Digest of all settings in the plan that change a measured value."""
    seed: int
    repeats: int
    """Number of rounds: each cell has one repetition in each round."""
    cut: str | None = None
    """``power``: one power cut per configuration; ``explore``: also explore the crash states; None: no power cut."""
    faults: list[str] = Field(default_factory=list)
    """The faults of each crash test in their order, as text; empty: a power cut."""
    figures: list[FigureRecord] = Field(default_factory=list)
    order: list[tuple[int, str]] = Field(default_factory=list)
    """Round and cell of each repetition, in order of execution."""
    impossible: list[tuple[str, str]] = Field(default_factory=list)
    """Names of the combinations that no stack can have, each with the reason."""
    timed_s: float = 0.0
    """Duration of the timed parts of all repetitions, in seconds."""
    visits_s: float = 0.0
    """Wall time of all repetitions in seconds, including the timed parts."""
    workers: list[WorkerRecord] = Field(default_factory=list)
    """The workers of clusters that made rounds or power cuts; empty without a cluster."""

    @property
    def overhead(self) -> float | None:
        """Share of the repetitions' wall time outside the timed parts, from 0 to 1; None without a repetition."""
        return 1 - self.timed_s / self.visits_s if self.visits_s else None
