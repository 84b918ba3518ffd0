"""The record schema of a plan's cell: one configuration under one workload, measured in several repetitions."""

from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raidproof.record.outcome import Outcome

UNSTABLE = 0.2
"""Range over median of the repetitions above which the median is unreliable."""


class Strict(BaseModel):
    """Base of all record models: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Repetition(Strict):
    """One repetition of a cell: the workload's values, and what was observed below the workload meanwhile."""

    round: int
    """Round number, from 1; each round has one repetition of every cell."""
    value: float | None = None
    """The workload's primary value; None where nothing was measured."""
    values: dict[str, float] = Field(default_factory=dict)
    series: list[tuple[float, float]] = Field(default_factory=list)
    """Pairs of a time (seconds from the beginning) and the primary value over the interval that ends there."""
    timed_s: float = 0.0
    """Duration of the timed part of the workload, in seconds."""
    visit_s: float = 0.0
    """Duration of the whole repetition, in seconds: building, preparing, measuring, reading back."""
    built: str = ""
    """The lowest layer that had to be rebuilt for this repetition."""
    steady: dict[str, Any] | None = None
    regime: dict[str, Any] | None = None
    """Cache regime: the memory into which the working set fits, if any."""
    derived: dict[str, Any] | None = None
    """Values derived from the monitors; None where they failed."""
    engine: dict[str, Any] | None = None
    """Utilization of the disk engine and of the disks that it simulates."""
    limit: str = "unknown"
    """The resource that limited the value, as measured."""
    cause: str = ""
    """The limit as a sentence."""
    caveat: str | None = None
    """What makes this repetition's value unreliable."""
    rig_error: str | None = None
    files: dict[str, str] = Field(default_factory=dict)


class Explored(Strict):
    """The result of the exploration of a cell's power cut."""

    file: str | None
    """File of the exploration's record, beside the run's; None if the cut could not be explored (see ``reason``)."""
    judged: int
    broken: int
    outcome: Outcome
    reason: str


class CellRecord(Strict):
    """One configuration under one workload."""

    name: str
    settings: dict[str, str]
    """The cell's value on each axis of the plan."""
    workload: dict[str, Any]
    workload_name: str = ""
    """Name of the workload's table in the plan, whose settings an axis may vary; empty in an older record."""
    unit: str
    """Name of the primary value, which ends with its unit: ``write_mb_s``."""
    asked: dict[str, Any]
    effective: dict[str, Any] = Field(default_factory=dict)
    resync: Literal["waited for", "skipped: blank members agree"] = "waited for"
    expected: dict[str, Any] | None = None
    """The value expected of the hardware, with the formula; None where no formula applies."""
    repeats: list[Repetition] = Field(default_factory=list)
    cycle: str | None = None
    """Name of the crash test that cut the power of this configuration."""
    explored: Explored | None = None
    """The result of the exploration of this crash test's crash states; None where they were not explored."""
    not_effective: str | None = None
    """How the effective configuration differs from the request, or data read back from data written."""
    # Judged from the above.
    rankable: bool = False
    why_not: str | None = None
    """Why this cell has no rank."""
    rank: int | None = None
    limit: str = "unknown"
    cause: str = ""
    flag: str | None = None
    """Caveats about the value: far below the expected value, unstable, measures a cache."""
    lost: str | None = None
    """The loss by a power cut, by design or not; None without a power cut."""
    lost_operations: int | None = None
    """Number of lost acknowledged operations; None: not known, or nothing was left to read."""
    lost_everything: bool = False
    """Whether nothing was left to read after a power cut."""
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not measured"

    @property
    def compared_with(self) -> str:
        """Key of the cells that can be compared: those of the same workload of the plan."""
        return self.workload_name or str(self.workload)

    @property
    def measured(self) -> list[float]:
        """The primary values of all repetitions that worked."""
        return [repeat.value for repeat in self.repeats if repeat.value is not None]

    @property
    def median(self) -> float | None:
        """The median of the primary value."""
        return median(self.measured) if self.measured else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the greatest primary value."""
        return (min(self.measured), max(self.measured)) if self.measured else None

    @property
    def unstable(self) -> bool:
        """Whether the repetitions vary so much that their median is unreliable."""
        if len(self.measured) < 2 or not self.median:
            return False
        return (max(self.measured) - min(self.measured)) / self.median > UNSTABLE

    @property
    def ratio(self) -> float | None:
        """The median over the expected value."""
        expected = (self.expected or {}).get("value")
        return self.median / expected if self.median is not None and expected else None


class FigureRecord(Strict):
    """A published figure, and the cell that re-enacts it."""

    name: str
    cell: str
    published: float
    unit: str
    source: str = ""
    places_limit: bool = False
    """Whether the figure calibrated the hardware, so that agreement proves nothing."""
    note: str = ""


class PlanRecord(Strict):
    """A plan as it was run."""

    path: str
    text: str
    """The content of the plan's file."""
    digest: str = ""
    """Digest of everything in the plan that a value depends on."""
    seed: int
    repeats: int
    cut: str | None = None
    figures: list[FigureRecord] = Field(default_factory=list)
    order: list[tuple[int, str]] = Field(default_factory=list)
    """Round and cell of each repetition, in order of execution."""
    impossible: list[tuple[str, str]] = Field(default_factory=list)
    """Names of impossible cells, each with the reason."""
    timed_s: float = 0.0
    visits_s: float = 0.0
    """Wall time of all repetitions in seconds, including the timed parts."""

    @property
    def overhead(self) -> float | None:
        """Share of the repetitions' wall time in which nothing was measured."""
        return 1 - self.timed_s / self.visits_s if self.visits_s else None
