"""The schema of a plan's cell: one configuration under one workload, visited several times."""

from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raidproof.record.outcome import Outcome

UNSTABLE = 0.2
"""Range of the repeats over their median from which a figure says little."""


class Strict(BaseModel):
    """A part of the record."""

    model_config = ConfigDict(extra="forbid")


class Repetition(Strict):
    """One visit to a cell: what the workload measured, and what was seen of everything below it meanwhile."""

    round: int
    """From 1 on; in each round every cell is visited once."""
    value: float | None = None
    """The primary value of the workload; None where nothing was measured."""
    values: dict[str, float] = Field(default_factory=dict)
    series: list[tuple[float, float]] = Field(default_factory=list)
    """Seconds from the beginning, and the primary value over the interval that ends there."""
    timed_s: float = 0.0
    """The workload's own seconds."""
    visit_s: float = 0.0
    """Everything that this visit took: building, preparing, measuring, reading back."""
    built: str = ""
    """The lowest layer that had to be built anew for this visit."""
    steady: dict[str, Any] | None = None
    regime: dict[str, Any] | None = None
    """Which memory the working set fits into, if any."""
    derived: dict[str, Any] | None = None
    """What the monitors saw; None where they failed."""
    engine: dict[str, Any] | None = None
    """How busy the disk engine was, and the disks that it plays."""
    limit: str = "unknown"
    """What kept the cell from being faster, as measured."""
    cause: str = ""
    """The same in a sentence."""
    caveat: str | None = None
    """What keeps this visit's figure from saying much."""
    rig_error: str | None = None
    files: dict[str, str] = Field(default_factory=dict)


class Explored(Strict):
    """What the exploration of a cell's cut came to."""

    file: str | None
    """Its record, beside the run's; None where the cut could not be explored, which ``reason`` says."""
    judged: int
    broken: int
    outcome: Outcome
    reason: str


class CellRecord(Strict):
    """One configuration under one workload."""

    name: str
    settings: dict[str, str]
    """The axes of the plan, and this cell's place on them."""
    workload: dict[str, Any]
    workload_name: str = ""
    """Of the plan's table, whose settings an axis may vary; empty in a record that does not say."""
    unit: str
    """What is measured, by the workload's name for it: ``write_mb_s``."""
    asked: dict[str, Any]
    effective: dict[str, Any] = Field(default_factory=dict)
    resync: Literal["waited for", "skipped: blank members agree"] = "waited for"
    expected: dict[str, Any] | None = None
    """What the hardware should have given, with the formula; None where no formula is honest."""
    repeats: list[Repetition] = Field(default_factory=list)
    cycle: str | None = None
    """Name of the cycle in which this configuration lost its power."""
    explored: Explored | None = None
    """What the crashes that this cycle could have had showed; None where they were not looked at."""
    not_effective: str | None = None
    """Where the system did something else than it was asked, or kept something else than was written."""
    # Judged from the above.
    rankable: bool = False
    why_not: str | None = None
    """Why this cell has no rank."""
    rank: int | None = None
    limit: str = "unknown"
    cause: str = ""
    flag: str | None = None
    """What is odd about the figure: far below what was expected, unstable, a cache's."""
    lost: str | None = None
    """What a power cut cost this configuration, by design or not; None where none was made."""
    lost_operations: int | None = None
    """How many acknowledged operations that were; None: not known, or nothing was left to read."""
    lost_everything: bool = False
    """Whether nothing was left to read after a power cut."""
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not measured"

    @property
    def compared_with(self) -> str:
        """Cells for which this is the same can be compared: those of one workload of the plan."""
        return self.workload_name or str(self.workload)

    @property
    def measured(self) -> list[float]:
        """The primary values of all visits that worked."""
        return [repeat.value for repeat in self.repeats if repeat.value is not None]

    @property
    def median(self) -> float | None:
        """The median of the primary value."""
        return median(self.measured) if self.measured else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the greatest."""
        return (min(self.measured), max(self.measured)) if self.measured else None

    @property
    def unstable(self) -> bool:
        """Whether the repeats are too far apart for their median to say much."""
        if len(self.measured) < 2 or not self.median:
            return False
        return (max(self.measured) - min(self.measured)) / self.median > UNSTABLE

    @property
    def ratio(self) -> float | None:
        """Measured over expected."""
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
    """It set a limit of the hardware, so it proves nothing that it agrees."""
    note: str = ""


class PlanRecord(Strict):
    """A plan as it was run."""

    path: str
    text: str
    """The plan's own words."""
    digest: str = ""
    """Differs if the plan does in anything that a figure depends on."""
    seed: int
    repeats: int
    cut: str | None = None
    figures: list[FigureRecord] = Field(default_factory=list)
    order: list[tuple[int, str]] = Field(default_factory=list)
    """Round and cell of each visit, in the order in which they are made."""
    impossible: list[tuple[str, str]] = Field(default_factory=list)
    """Cells that cannot be, and why."""
    timed_s: float = 0.0
    visits_s: float = 0.0
    """Wall time of all visits, the timed seconds included."""

    @property
    def overhead(self) -> float | None:
        """Share of the visits' wall time in which nothing was measured."""
        return 1 - self.timed_s / self.visits_s if self.visits_s else None
