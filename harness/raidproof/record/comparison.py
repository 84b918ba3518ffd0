"""The record schema of a comparison of two sides: base and new."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, model_validator

from raidproof.record.cell import Strict
from raidproof.record.known import KnownRecord
from raidproof.record.older import with_findings
from raidproof.record.outcome import Outcome
from raidproof.record.sensitivity import Noticed

BASE, NEW = "base", "new"
COMPARISON_SCHEMA: Literal[2] = 2
"""Version of the schema. A record of version 1 is converted when it is read."""
MARGIN = 0.03
"""Default margin, as a share: two sides whose ratio certainly lies within 1 - 0.03 to 1 + 0.03 are the same."""
CONFIDENCE = 0.95
"""Confidence level of the interval of each ratio."""
ERROR_RATE = 0.04
"""Greatest probability that a comparison of equal sides calls any of its cells faster or slower.

It is below 5 %, so that the bound of wrong calls in 5 % of comparisons is kept with a reserve.
"""


class PairFinding(StrEnum):
    """The result of the comparison of the values of one cell on both sides."""

    FASTER = "faster"
    """The new side is faster, by a test that is corrected over all cells of the comparison."""
    SLOWER = "slower"
    """The new side is slower, by a test that is corrected over all cells of the comparison."""
    SAME = "same"
    """The confidence interval of the ratio lies within the margin."""
    UNDECIDED = "undecided"
    """The values show neither a difference nor that there is none: more repetitions are needed."""
    BIMODAL = "bimodal"
    """The values of a side form two separate groups, so that neither a median nor a mean describes them."""
    NOT_COMPARABLE = "not comparable"
    """The value of a side is a measure of the rig or of a cache, and not of the requested hardware."""
    ONE_SIDED = "not measured"
    """At least one side has no value."""


class Method(StrEnum):
    """How the findings of a comparison were made."""

    PERMUTATION = "permutation test"
    """By `raidproof.verdict.change.statistics`, corrected by Hochberg's method."""
    RANGES = "ranges"
    """By raidproof's schema version 1: two sides differ if the ranges of their values do not overlap; not a test."""


class Change(Strict):
    """The change of a cell's value from base to new, as a ratio with its confidence interval."""

    ratio: float
    """New divided by base: the ratio of the geometric means of the repetitions."""
    low: float | None
    """Lower limit of the ratio's confidence interval; None if there are too few repetitions for a limit."""
    high: float | None
    """Upper limit of the ratio's confidence interval; None if there are too few repetitions for a limit."""
    p: float
    """Probability of a difference at least as great between equal sides, from 0 to 1, for this cell alone."""
    corrected: float
    """``p`` corrected for the number of the comparison's cells, by Hochberg's method."""
    blocks: list[int]
    """Number of rounds in each block of the test, which are consecutive rounds of one worker.

    One block, if the rounds of the sides are no pairs.
    """
    least: float | None = None
    """The smallest change, as a share, that this number of repetitions finds in 95 % of cases; None if none."""


class Modes(Strict):
    """Two separate groups of the values of one side."""

    low: list[float]
    high: list[float]


class SideCell(Strict):
    """The values and the verdict of one cell on one side."""

    values: list[float]
    """The value of each repetition without an error, in `Pair.unit`."""
    rounds: list[int] = Field(default_factory=list)
    """The round of each value; empty in a record of schema version 1."""
    workers: list[str | None] = Field(default_factory=list)
    """The worker of each value; empty if no worker of a cluster measured any."""
    between_workers: float | None = None
    """As `raidproof.record.cell.CellRecord.between_workers`."""
    within_workers: float | None = None
    """As `raidproof.record.cell.CellRecord.within_workers`."""
    modes: Modes | None = None
    """The two groups of the values, if they are bimodal; None if they are not, or if too few values are known."""
    median: float | None
    spread: tuple[float, float] | None
    """The least and the greatest value."""
    failed: int
    """Number of repetitions in which the rig failed."""
    limit: str
    """The resource that limited most repetitions."""
    cause: str
    """The limit as a sentence."""
    flag: str | None
    """Caveats about the value; None without any."""
    lost: str | None
    """The loss by a power cut, as text; None without a power cut."""
    outcome: Outcome
    reason: str


class HostChange(Strict):
    """The speed of the host on new divided by that on base, by the reference measurements of two stored runs."""

    ratio: float
    low: float | None = None
    """Lower limit of the ratio's confidence interval; None if there are too few measurements for a limit."""
    high: float | None = None
    """Upper limit of the ratio's confidence interval; None if there are too few measurements for a limit."""

    @property
    def differs(self) -> bool:
        """Whether the interval excludes that the host had the same speed on both sides."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


class Pair(Strict):
    """One cell of the plan on both sides."""

    name: str
    workload: str
    """Key of the cell's workload; only cells with the same key can be compared."""
    unit: str
    """Name of the compared value, which ends with its unit: ``write_mb_s``."""
    base: SideCell
    new: SideCell
    lower_is_better: bool = False
    """Whether a smaller value is faster, as of a latency."""
    ratio: float | None
    """Median of new divided by median of base; None if one of them is missing or 0, or if a side is bimodal."""
    change: Change | None = None
    """The result of the test; None if the sides were not compared."""
    finding: PairFinding
    more: int | None = None
    """Of an undecided cell: number of further repetitions of each side that would decide it; None if not known."""
    why: str = ""
    """The reason for the finding, as a clause; empty for FASTER, SLOWER and SAME."""
    host: HostChange | None = None
    """Of stored runs: how the host's speed differs; None if the sides were measured in turn, or if it is not known."""
    drift_unknown: bool = False
    """Whether the sides are stored runs without comparable reference measurements, so that nothing can be decided."""

    def not_slower(self, margin: float) -> bool:
        """Return whether the confidence interval excludes that new is slower by more than the margin."""
        if self.drift_unknown:
            return False
        if self.finding in {PairFinding.FASTER, PairFinding.SAME}:
            return True
        if self.finding is not PairFinding.UNDECIDED or self.change is None:
            return False
        low, high = self.change.low, self.change.high
        if self.lower_is_better:
            return high is not None and high <= 1 + margin
        return low is not None and low >= 1 - margin


class SideCut(Strict):
    """The verdict on a power cut on one side, and its loss."""

    outcome: Outcome
    reason: str
    lost_words: str
    """The loss as text, such as ``0 of 1,417`` operations."""
    acknowledged: int | None = None
    """Number of acknowledged operations; None if the storage could not be read."""
    lost: int | None = None
    """Number of acknowledged operations that were lost; None if the storage could not be read."""
    loss_window_s: float | None = None
    """Time in seconds from the earliest lost acknowledgement to the cut."""
    recovery_s: float | None = None
    """Time in seconds from power on to the first acknowledgement; None if a stage was not measured."""
    noticed: Noticed | None = None
    """The missing flushes that the power cut or its crash states would have shown; None if not known."""
    states: int | None = None
    """Number of judged crash states; None if no crash states were explored."""
    broken_states: int | None = None
    """Number of judged crash states in which a promise is broken."""


class PromiseChange(Strict):
    """A promise whose verdict differs between the sides."""

    checker: str
    """Name of the check that judged the promise."""
    kind: str | None
    """The kind of operation that the promise is about; None if the check is not about one kind."""
    base: Outcome
    new: Outcome
    doubt: str = ""
    """Why the difference is not called a change, as a clause; empty if it is one."""

    @property
    def newly_broken(self) -> bool:
        """Whether base kept the promise and new broke it."""
        return not self.doubt and (self.base, self.new) == (Outcome.PASS, Outcome.FAIL)

    @property
    def newly_kept(self) -> bool:
        """Whether base broke the promise and new kept it."""
        return not self.doubt and (self.base, self.new) == (Outcome.FAIL, Outcome.PASS)


class RateChange(Strict):
    """The shares of crash states with a broken promise on both sides, compared by an exact test."""

    p: float
    """Probability of a difference at least as great between equal sides (Fisher's exact test, two-sided)."""
    corrected: float
    """``p`` corrected for the number of power cuts in the comparison, by Hochberg's method."""

    @property
    def differs(self) -> bool:
        """Whether the shares differ by more than chance explains."""
        return self.corrected <= ERROR_RATE


class CutPair(Strict):
    """The power cut of one configuration on both sides."""

    title: str
    base: SideCut | None
    """The power cut on the base side; None if none was made."""
    new: SideCut | None
    """The power cut on the new side; None if none was made."""
    promises: list[PromiseChange] = Field(default_factory=list)
    """The promises whose verdicts differ: newly broken, newly kept, or in doubt."""
    rate: RateChange | None = None
    """The comparison of the shares of broken crash states; None if one of the sides explored none."""


class Version(Strict):
    """The effective version of one component of a machine on each side."""

    machine: str
    what: str
    """The component: ``kernel``, ``kernel's build``, or the name of a package."""
    base: str | None
    """The version on the base side; None if it is not installed, or not known."""
    new: str | None
    """The version on the new side; None if it is not installed, or not known."""

    @property
    def differs(self) -> bool:
        """Whether the versions of the sides differ."""
        return self.base != self.new


class Built(Strict):
    """A field of the configuration whose effective values differ between the two sides."""

    field: str
    """Dotted path, the layer first: ``filesystem.features``."""
    base: str
    """Value on the base side; of a list, only the elements that the new side lacks."""
    new: str
    """Value on the new side; of a list, only the elements that the base side lacks."""
    cells: list[str]
    """Names of the cells in which the values differ."""


class Alone(Strict):
    """A cell of one run that was compared with no cell of the other run."""

    cell: str
    why: str
    """The reason, as a clause."""


class AxisValues(Strict):
    """The values of an axis that only one of two plans has."""

    axis: str
    values: list[str]


class Matching(Strict):
    """How the cells of two stored runs were matched: by their workload, and by the axes that both plans have."""

    axes: list[str]
    """The axes that both plans have."""
    axes_of_base: list[AxisValues]
    """The axes that only the plan of base has."""
    axes_of_new: list[AxisValues]
    """The axes that only the plan of new has."""
    renamed: dict[str, str] = Field(default_factory=dict)
    """The name of the cell of new by that of the cell of base, if the names differ."""
    only_base: list[Alone] = Field(default_factory=list)
    only_new: list[Alone] = Field(default_factory=list)
    requested: list[Built] = Field(default_factory=list)
    """The requested hardware and configuration that differ between the runs."""
    apart_s: float = 0.0
    """Time from the begin of base to the begin of new, in seconds; negative if new is the older run."""


class Side(Strict):
    """The run of one side."""

    run: str
    """The name of the run, which has a record and a report."""
    asked: dict[str, str]
    """The requested software by machine, as on the command line."""
    outcome: Outcome
    reason: str
    visits_s: float = 0.0
    """Wall time of all repetitions, in seconds."""


class ComparisonRecord(Strict):
    """The stored comparison of two sides."""

    schema_version: Literal[2] = COMPARISON_SCHEMA
    name: str
    plan: str = ""
    """The plan's path."""
    command: list[str] = Field(default_factory=list)
    provider: str = ""
    base: Side
    new: Side
    alike: bool
    """Whether both sides requested the same software (A/A run), so that differences are due to chance."""
    versions: list[Version]
    """The versions of all components of all machines."""
    built: list[Built]
    """The fields whose effective values differ, although both sides requested the same configuration."""
    pairs: list[Pair]
    cuts: list[CutPair]
    method: Method = Method.PERMUTATION
    margin: float = MARGIN
    """Margin of the finding SAME, as a share."""
    confidence: float = CONFIDENCE
    """Confidence level of the interval of each ratio."""
    matching: Matching | None = None
    """How the cells were matched, if the sides are stored runs; None if they were measured in turn."""
    known: KnownRecord | None = None
    """The known differences that the comparison was judged with; None without any."""
    looks: int = 1
    """How often the sides could be compared while repetitions were added; the looks share the error rate."""
    notes: list[str] = Field(default_factory=list)
    """Notes for the reader about how the machines ran."""
    cannot_prove: list[str] = Field(default_factory=list)
    """What a run on this provider cannot prove."""
    outcome: Outcome
    reason: str

    @model_validator(mode="before")
    @classmethod
    def _from_version_1(cls, data: Any) -> Any:
        return with_findings(data) if isinstance(data, dict) and data.get("schema_version") == 1 else data

    @property
    def different(self) -> list[Version]:
        """The components whose effective versions differ between the sides."""
        return [one for one in self.versions if one.differs]
