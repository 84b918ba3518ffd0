"""The record schema of `raidproof advise`: the search, the judged configurations, the recommended one, its lines."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome
from raidproof.storage.deployment import Line, Work

ADVICE_SCHEMA = 1


class PickedBy(StrEnum):
    """Why a configuration was measured in a rung."""

    CURRENT = "current"
    """The current configuration is in each rung: every other one is compared with it."""
    MODEL = "model"
    """The model of the hardware expects it to be fast."""
    CHANCE = "chance"
    """By a seeded random choice, so that a wrong model is found out."""
    REGRESSION = "regression"
    """A regression of the speeds measured until then predicts it to be fast."""
    PLAINER = "plainer"
    """It is the leader without changes for which the regression predicts no effect."""
    RESULTS = "results"
    """It was among the fastest of the rung before."""
    WITHOUT = "without"
    """It is the fastest safe configuration without one of its changes."""
    UNSAFE = "unsafe"
    """It gives up a promise: it is measured for comparison, and is never recommended."""


class Drop(StrEnum):
    """Why a configuration is not in the next rung."""

    SLOWER = "slower"
    """Others were faster."""
    FAILED = "failed"
    """A repetition failed: the configuration is not effective, or the rig failed."""
    BUDGET = "budget"
    """The time did not suffice."""


class Picked(Strict):
    """One configuration of a rung."""

    name: str
    """Name of the cell."""
    by: PickedBy
    expected: float | None = None
    """The speed in MB/s that the model expects before the measurement; None if no formula applies."""


class Dropped(Strict):
    """One configuration that was in the rung before and is not in this one."""

    name: str
    why: Drop


class RungRecord(Strict):
    """One round of the search: one repetition of each of its configurations."""

    round: int
    """Number of the round, from 1."""
    picked: list[Picked]
    dropped: list[Dropped] = Field(default_factory=list)
    final: bool = False
    """Whether the round belongs to the comparison after the power cuts, and not to the search."""
    left: int | None = None
    """Number of repetitions that the time of the search still allowed when the round was chosen; None: final."""
    seconds: float = 0.0

    @property
    def names(self) -> list[str]:
        """The names of the configurations of the rung."""
        return [one.name for one in self.picked]


class FreeAxisRecord(Strict):
    """One setting that was varied."""

    name: str
    values: list[str]
    """The values in the notation of plan files, the current one first."""
    assumed: bool
    """Whether the plan does not state the current value, so that the usual default is assumed."""
    work: Work
    """What a change of this setting takes on a server that exists."""
    note: str = ""
    """What a change of this setting costs besides speed; empty if nothing is known."""


class ModelRecord(Strict):
    """How well the model of the hardware ordered the configurations."""

    expected: int
    """Number of candidates for which a formula applies."""
    compared: int
    """Number of measured configurations with an expected value."""
    correlation: float | None = None
    """Spearman's rank correlation of expected and measured speed; None if it has no value."""
    compared_random: int = 0
    """Number of those that were chosen at random."""
    correlation_random: float | None = None
    """The same correlation of the configurations that were chosen at random, which the model did not select."""


class RatioRecord(Strict):
    """The ratio of two speeds of configurations that were measured in the same rounds."""

    ratio: float
    low: float | None = None
    """Lower limit of the 95 % interval; None with fewer than two rounds of the last comparison."""
    high: float | None = None
    rounds: int
    """Number of rounds from which the ratio is."""

    @property
    def is_above_one(self) -> bool:
        """Whether the whole interval is above 1."""
        return self.low is not None and self.low > 1


class Configuration(Strict):
    """One configuration whose power was cut, or that was compared in the last rounds."""

    name: str
    """Name of the cell in the run."""
    settings: dict[str, str]
    """The values of the varied axes."""
    changes: dict[str, str]
    """The values of the varied axes that differ from the current ones."""
    median: float | None
    """Median of the workload's primary value, in `AdviceRecord.unit`."""
    least: float | None = None
    """The least repetition, in the same unit; None in records of older versions."""
    greatest: float | None = None
    """The greatest repetition, in the same unit; None in records of older versions."""
    repetitions: int
    against_current: RatioRecord | None = None
    """Speed divided by that of the current configuration; above 1 is faster.

    The 95 % holds for the intervals of all configurations of the last comparison at once.
    """
    latency_ms: float | None = None
    """Median of the 99th percentile of the latency, in ms; None if the workload does not report it."""
    safety: str
    """SAFE, LOSES DATA or NOT SHOWN."""
    lost: int | None = None
    """Number of acknowledged operations that the power cut lost; None if it is not known."""
    acknowledged: int | None = None
    """Number of acknowledged operations before the cut; None if it is not known."""
    lost_s: float | None = None
    """Seconds of acknowledged work that were lost; None if it is not known."""
    cycle: str | None = None
    """Name of the crash test in the run."""
    why_not: str | None = None
    """Why this configuration cannot be recommended; None if it can."""
    on_front: bool = False
    """Whether no other configuration is better in one of throughput, latency and loss, and not worse in the others."""


class LeftOut(Strict):
    """The cost of leaving one change out of the recommended configuration."""

    axis: str
    value: str
    """The recommended value."""
    current: str
    cell: str
    """Name of the cell without the change."""
    ratio: RatioRecord | None = None
    """Speed without the change divided by the speed with it; None if the time did not suffice."""


class AdvisedLine(Strict):
    """One line of the recommended configuration, with the measurement that supports it."""

    line: Line
    run: str
    """Name of the run."""
    cell: str
    """Name of the cell in the run."""
    repetitions: int
    """Number of repetitions of the cell."""
    cycle: str | None
    """Name of the crash test that cut the power of this configuration."""


class AdviceRecord(Strict):
    """The answer of `raidproof advise`, complete or not; ``--resume`` continues from this record."""

    schema_version: int = ADVICE_SCHEMA
    run: str
    """Name of the run, whose record has every repetition and every power cut."""
    plan: str
    """Name of the plan."""
    digest: str
    """Digest of candidates, hardware and options; only the same request can continue the search."""
    command: list[str]
    started: datetime
    ended: datetime | None = None
    """None as long as the search is not complete."""
    budget_s: float
    """Requested seconds."""
    spent_s: float = 0.0
    """Seconds spent until now, without those between an interruption and its continuation."""
    seed: int
    workload: str
    unit: str = ""
    """Unit of the primary value; empty before the first repetition."""
    current: str
    """Name of the cell with the current configuration."""
    fixed: dict[str, str] = Field(default_factory=dict)
    """The settings that were not varied."""
    axes: list[FreeAxisRecord]
    candidates: int
    """Number of possible combinations of the axes' values."""
    expected: int = 0
    """Number of candidates for which the model of the hardware has a formula."""
    rungs: list[RungRecord] = Field(default_factory=list)
    # The following fields are computed from those above and the run's record.
    model: ModelRecord | None = None
    configurations: list[Configuration] = Field(default_factory=list)
    """The configurations whose power was cut, the fastest first."""
    leader: str | None = None
    """Name of the safe cell with the best speed in all rounds, which the last comparison tests; None without one."""
    recommended: str | None = None
    """Name of the recommended cell; None if none can be recommended."""
    left_out: list[LeftOut] = Field(default_factory=list)
    lines: list[AdvisedLine] = Field(default_factory=list)
    """The lines of the recommended configuration."""
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"

    @property
    def final_rounds(self) -> list[int]:
        """The numbers of the rounds of the last comparison."""
        return [rung.round for rung in self.rungs if rung.final]

    @property
    def compared(self) -> list[str]:
        """The names of the configurations that the last comparison may show to be faster than the current one."""
        picked = [one for rung in self.rungs if rung.final for one in rung.picked if one.by is not PickedBy.UNSAFE]
        return list(dict.fromkeys(one.name for one in picked if one.name != self.current))

    @property
    def comparisons(self) -> int:
        """The number of these configurations."""
        return len(self.compared)

    @property
    def chosen(self) -> Configuration | None:
        """The recommended configuration; None if none can be recommended."""
        return next((one for one in self.configurations if one.name == self.recommended), None)
