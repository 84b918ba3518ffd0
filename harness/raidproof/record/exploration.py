"""The schema of an exploration: every crash that one recorded run could have had, as far as it was looked at."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from statistics import median

from pydantic import Field

from raidproof.core.blame import Blame
from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec

SCHEMA = 1


class StageTime(Strict):
    """How long one stage of a check took, over all checks; milliseconds."""

    stage: str
    count: int
    median: float
    p90: float
    p99: float
    greatest: float

    @classmethod
    def of(cls, stage: str, values: Sequence[float]) -> "StageTime":
        """Sum up what was measured; there must be something."""
        ordered = sorted(values)
        p90, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.9, 0.99))
        return cls(stage=stage, count=len(ordered), median=median(ordered), p90=p90, p99=p99, greatest=ordered[-1])


def stage_times(checks: Iterable[Mapping[str, float]]) -> list[StageTime]:
    """Sum up the stages of all checks, in the order in which they first appear."""
    by_stage: dict[str, list[float]] = {}
    for ms in checks:
        for stage, value in ms.items():
            by_stage.setdefault(stage, []).append(value)
    return [StageTime.of(stage, values) for stage, values in by_stage.items()]


class WriteRecord(Strict):
    """A request that survived the cut though nobody had waited for it, or a part of it."""

    request: int
    """Its number in the write log, counted as the crash states do."""
    kind: str
    member: str
    """Serial."""
    lba: int
    """First sector of 512 bytes on the member."""
    sectors: int
    stripe: int | None = None
    """Of the array; None where it is in none, as in a superblock."""
    owner: str | None = None
    """The file or the metadata that it belongs to."""


class MissingRecord(Strict):
    """An operation that its client had been told is done, and that is not there."""

    client: str
    kind: str
    path: str
    """Of its worker, below the ledger's directory."""
    place: int
    """Of the block in the file, or of the directory."""
    generation: int
    acknowledged_before_s: float
    """So long before the cut its client had the word."""
    instead: str
    """What is there."""


class ShrunkRecord(Strict):
    """The smallest state that shows a failure, as far as shrinking came."""

    state: str
    dump: str
    survivors: list[WriteRecord] = Field(default_factory=list)
    not_there: int
    """Requests that were open at its cut, too, and are not in it."""
    tried: int
    """States that shrinking has looked at."""
    whole: bool = True
    """Whether shrinking came to its end in its time."""
    lost: list[WriteRecord] = Field(default_factory=list)
    """The fewest requests that must be lost for it to show when all others survive."""
    lost_state: str | None = None
    """The state in which those alone are lost."""
    lost_dump: str | None = None


class ShortestRecord(Strict):
    """The shortest part of the recorded history that shows a failure, as far as it was looked for."""

    state: str
    dump: str
    cut: int
    """So many requests of the log had completed."""
    of: int
    """Requests in the log."""
    at_s: float
    """When the power went, in seconds since the write log began."""
    earlier: int
    """Requests between its cut and that of the smallest state; 0: no earlier cut that was tried shows it."""
    earlier_s: float
    after_word_s: float | None = None
    """From the word of the earliest acknowledged operation that is missing in it to its cut."""
    acknowledged: int
    """Operations that clients had been told are done by then."""
    of_acknowledged: int
    """In the whole recording."""
    not_at: int | None = None
    """The last cut before it that was tried and does not show it; None where it is the first that could."""
    tried: int
    """States that were looked at for it."""


class StoppedBy(StrEnum):
    """What ends an exploration before all is done."""

    RIG = "the rig"
    USER = "the user"
    TIME = "the time"


class FailureRecord(Strict):
    """One way in which states are broken, and the first state that shows it."""

    promise: str
    damage: str
    end: str
    states: int
    """How many judged states show it."""
    examples: list[str] = Field(default_factory=list)
    """Names of the first of them."""
    state: str
    dump: str
    policy: str
    cut: int
    at_s: float
    """When the power went, in seconds since the write log began."""
    reason: str
    blame: Blame | None = None
    said: list[str] = Field(default_factory=list)
    repeated: int = 0
    confirmed: int = 0
    """How many repetitions showed it again."""
    shrunk: ShrunkRecord | None = None
    shortest: ShortestRecord | None = None
    """The same losses earlier in the history."""
    missing: MissingRecord | None = None
    """The earliest acknowledged operation that is not there; in the smallest state, where there is one."""
    missing_total: int = 0
    acknowledged: int = 0
    replay: list[str] = Field(default_factory=list)
    """The command that shows it in a kept lab, in the smallest state of the shortest history."""


class StateMark(Strict):
    """A judged state, for the figure."""

    name: str
    policy: str
    at_s: float
    checked: bool
    """On a machine; else another state of equal content was."""
    broken: bool


class LossRecord(Strict):
    """The most that any state lost where the export's options excuse it."""

    operations: int
    of: int
    bytes: int
    seconds: float
    state: str


class UndecidedRecord(Strict):
    """States in which acknowledged operations are missing, and nothing says whether a promise was broken."""

    states: int = 0
    state: str
    """The name of the first that was judged."""
    reason: str


class ColdRecord(Strict):
    """States that were checked once more on a machine that had just booted."""

    checked: int = 0
    differing: list[str] = Field(default_factory=list)
    """Names of those that looked different then: reuse hid something."""


class RedundancyRecord(Strict):
    """Judged states by what the members' contents say of the array's redundancy."""

    checked: int = 0
    differing: int = 0
    """States in which rows differ: a resync is due."""
    unmarked: int = 0
    """Of these, states in which md would not put all of them right."""
    uneven: int = 0
    """Of these, states in which some are marked on some members only, and none is left out on all."""
    changed: int = 0
    """States in which copies differ where a page changed under write-back: md allows it, and nothing is broken."""
    all_marked: int = 0
    """States in which the bitmap marked every region, as on a new array: it could not have left a row out."""
    unchecked: dict[str, int] = Field(default_factory=dict)
    """States of which nothing is said, by the reason."""


class Possible(Strict):
    """How many crash states the run could have had, torn ones not counted."""

    log10: float
    exact: int | None = None
    """Where it is small enough to mean something."""


class ExplorationRecord(Strict):
    """An exploration of one cycle."""

    schema_version: int = SCHEMA
    run: str
    cycle: str
    title: str
    control: ControlSpec | None = None
    """What the cycle had to show, where it is a control."""
    started: datetime
    ended: datetime | None = None
    ended_early: str | None = None
    """Why it ended before all was done, for a reader."""
    stopped_by: StoppedBy | None = None
    """What ended it before all was done."""
    """Why it did not come to the end of its budget."""
    command: list[str] = Field(default_factory=list)
    log: str
    """The write log, relative to the run's directory."""
    log_digest: str
    seed: int
    tear: int
    """Bytes that a disk writes whole."""
    asked: int | None = None
    """States that were to be judged; None: as many as there was time for."""
    requests: int = 0
    """Records of the log: writes, discards, flushes."""
    cuts: int = 0
    possible: Possible
    candidates: int = 0
    """States that the policies propose."""
    judged: int = 0
    distinct: int = 0
    """Different contents among the judged states."""
    checked: int = 0
    """Checks on machines, cold ones and repetitions not counted."""
    broken: int = 0
    """Judged states in which a promise is broken."""
    failures: list[FailureRecord] = Field(default_factory=list)
    loss: LossRecord | None = None
    undecided: UndecidedRecord | None = None
    tested: dict[str, int] = Field(default_factory=dict)
    """Operations by kind whose loss a judged state could have shown: the most at any cut; 0 of what was never done."""
    acknowledged_s: list[float] = Field(default_factory=list)
    """When clients had their words, in seconds since the write log began."""
    span_s: tuple[float, float] = (0.0, 0.0)
    """From the first to the last cut that was to be looked at."""
    marks: list[StateMark] = Field(default_factory=list)
    policies: dict[str, int] = Field(default_factory=dict)
    """Judged states by policy."""
    stages: list[StageTime] = Field(default_factory=list)
    seconds: float = 0.0
    """Spent checking, all attempts that told of it together; booting the checkers and shrinking are not in it."""
    timed: int = 0
    """States judged in these."""
    states_per_minute: float | None = None
    """States judged in a minute of that."""
    checked_per_minute: float | None = None
    """States that machines looked at in a minute of that."""
    checkers: int = 1
    cold: ColdRecord = Field(default_factory=ColdRecord)
    through_nfsd: int = 0
    """Checks that read the ledger through nfsd too; the cold ones all do, and are not counted here."""
    filesystems: int = 0
    """Checks in which the file system's own checker looked for damage too."""
    wedged: int = 0
    redundancy: RedundancyRecord = Field(default_factory=RedundancyRecord)
    notes: list[str] = Field(default_factory=list)
    cannot_prove: list[str] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "nothing was explored"

    @property
    def loses(self) -> bool:
        """Whether any crash state lacks something acknowledged, by design or not."""
        return self.loss is not None or self.broken > 0
