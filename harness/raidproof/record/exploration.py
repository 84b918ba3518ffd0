"""The record schema of an exploration of the crash states of one recorded crash test, and of the check of a state."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from statistics import median

from pydantic import BaseModel, ConfigDict, Field

from raidproof.core.blame import Blame
from raidproof.guest import check_agent
from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.workload.ledger import Found

SCHEMA = 1


class End(StrEnum):
    """The last stage that a check of a crash state reached."""

    READ = check_agent.READ
    NOT_ASSEMBLED = check_agent.NOT_ASSEMBLED
    NOT_MOUNTED = check_agent.NOT_MOUNTED
    WEDGED = "wedged"
    """The kernel died, logged a bug, or did not answer in time."""


class ThroughNfsd(StrEnum):
    """Whether nfsd serves the same content as a scan of the mounted file system."""

    SAME = check_agent.SAME
    DIFFERENT = check_agent.DIFFERENT
    """The content differs, or nfsd served none: see `Observation.said`."""
    NOT_TRIED = "not tried"


class Rows(BaseModel):
    """The array's redundancy in one crash state, computed from the members' contents, in rows of 4 KiB per member."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    differ: int = 0
    """Rows whose copies or parity do not agree."""
    unmarked: int = 0
    """Differing rows that md would not resync: no bitmap marks them, or the superblock marks all as in sync."""
    uneven: int = 0
    """Differing rows that only some members' bitmaps mark: the resync depends on the member whose bitmap md reads."""
    changed: int = 0
    """Rows whose copies differ because their page changed while md wrote it (under write-back), which md allows."""
    all_marked: bool = False
    """Whether every region of the bitmap was marked, as on a new array: then no row can be unmarked."""
    first: str = ""
    """The first row that md would not resync."""
    unchecked: str | None = None
    """Why redundancy was not checked; None if it was."""


class Observation(BaseModel):
    """The result of a check of one crash state. A second check of the same state differs in ``ms`` only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: End
    said: str = ""
    """The failing tool's message; for a wedged checker, the stage."""
    found: Found | None = None
    """The result of the ledger scan; None if no scan completed."""
    console: tuple[str, ...] = ()
    """Alarming kernel log lines, each with the sign that it is of, without time stamps."""
    silent: bool = False
    """Whether the checker wedged without a known cause: a timeout or a leftover, and no sign in the kernel log."""
    hung: str = ""
    """The message of an earlier, silent check of the same state, which this one replaces."""
    degraded: dict[str, int] = Field(default_factory=dict)
    """The number of missing members of each degraded array; complete arrays are left out."""
    through_nfsd: ThroughNfsd = ThroughNfsd.NOT_TRIED
    filesystem: FilesystemCheck | None = None
    """The result of the file system's checker, run after the unmount; None where it was not run."""
    rows: Rows | None = None
    """Computed from the members' contents, not by the checker machine; None where it was not computed."""
    ms: dict[str, float] = Field(default_factory=dict)
    """Duration of each stage in ms: switch, assemble, mount, verify; of the check through nfsd mount (nfsd), look
    (read there), leave (unmount) and forget (nfsd releases the file system); unmount, stop."""

    def same_as(self, other: "Observation") -> bool:
        """Return whether two checks observed the same; a check that only one of them made is no difference.

        Messages of tools are not compared: they may name the device, whose name depends on how the disks are served.
        """
        tried = {self.through_nfsd, other.through_nfsd} - {ThroughNfsd.NOT_TRIED}
        checked = {one.filesystem.outcome for one in (self, other) if one.filesystem is not None}
        seen = [(one.end, one.found, one.console, one.degraded) for one in (self, other)]
        return seen[0] == seen[1] and len(tried) < 2 and len(checked) < 2


class StageTime(Strict):
    """Durations of one stage of a crash state check, over all checks, in milliseconds."""

    stage: str
    count: int
    median: float
    p90: float
    p99: float
    greatest: float

    @classmethod
    def of(cls, stage: str, values: Sequence[float]) -> "StageTime":
        """Return the statistics of the durations, of which there must be at least one."""
        ordered = sorted(values)
        p90, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.9, 0.99))
        return cls(stage=stage, count=len(ordered), median=median(ordered), p90=p90, p99=p99, greatest=ordered[-1])


def stage_times(checks: Iterable[Mapping[str, float]]) -> list[StageTime]:
    """Return the statistics of each stage over all checks, in the order of first appearance."""
    by_stage: dict[str, list[float]] = {}
    for ms in checks:
        for stage, value in ms.items():
            by_stage.setdefault(stage, []).append(value)
    return [StageTime.of(stage, values) for stage, values in by_stage.items()]


class WriteRecord(Strict):
    """An unflushed request, or a part of one, that survived the cut."""

    request: int
    """Index of the request in the write log, counted as in crash states."""
    kind: str
    member: str
    """Serial."""
    lba: int
    """First sector on the member, in units of 512 bytes."""
    sectors: int
    stripe: int | None = None
    """Stripe of the array; None outside of stripes, as in a superblock."""
    owner: str | None = None
    """The file or the metadata to which the request belongs."""


class MissingRecord(Strict):
    """An acknowledged operation that is missing in a crash state."""

    client: str
    kind: str
    path: str
    """Path of the worker's files, relative to the ledger's directory."""
    place: int
    """Number of the block in the file, or of the directory."""
    generation: int
    acknowledged_before_s: float
    """Seconds from the acknowledgement to the cut."""
    instead: str
    """What was found instead."""


class ShrunkRecord(Strict):
    """The smallest crash state that shows a failure, as far as shrinking went."""

    state: str
    dump: str
    survivors: list[WriteRecord] = Field(default_factory=list)
    not_there: int
    """Number of requests that were unflushed at the cut and are lost in the state."""
    tried: int
    """Number of states that shrinking checked."""
    whole: bool = True
    """Whether shrinking finished within its time budget."""
    lost: list[WriteRecord] = Field(default_factory=list)
    """The fewest requests whose loss shows the failure while all others survive."""
    lost_state: str | None = None
    """The state in which only these requests are lost."""
    lost_dump: str | None = None


class ShortestRecord(Strict):
    """The earliest cut found that shows a failure, and its state; a time limit may have ended the search."""

    state: str
    dump: str
    cut: int
    """Number of completed requests of the log at the cut."""
    of: int
    """Number of requests in the log."""
    at_s: float
    """Time of the cut, in seconds since the beginning of the write log."""
    earlier: int
    """Number of requests between this cut and the smallest state's; 0: no earlier tried cut shows the failure."""
    earlier_s: float
    after_word_s: float | None = None
    """Seconds from the earliest missing operation's acknowledgement to the cut."""
    acknowledged: int
    """Number of operations that were acknowledged by the cut."""
    of_acknowledged: int
    """Number of acknowledged operations in the whole recording."""
    not_at: int | None = None
    """The last earlier cut that was tried and does not show the failure; None if no earlier cut could show it."""
    tried: int
    """Number of states that were checked in the search."""


class StoppedBy(StrEnum):
    """What ended an exploration early."""

    RIG = "the rig"
    USER = "the user"
    TIME = "the time"


class FailureRecord(Strict):
    """One kind of failure, and the first crash state that shows it."""

    promise: str
    damage: str
    end: str
    states: int
    """Number of judged states that show the failure."""
    examples: list[str] = Field(default_factory=list)
    """Names of the first such states."""
    state: str
    dump: str
    policy: str
    cut: int
    at_s: float
    """Time of the cut, in seconds since the beginning of the write log."""
    reason: str
    blame: Blame | None = None
    said: list[str] = Field(default_factory=list)
    repeated: int = 0
    confirmed: int = 0
    """Number of repetitions that showed the failure again."""
    shrunk: ShrunkRecord | None = None
    shortest: ShortestRecord | None = None
    """The same losses at an earlier cut."""
    missing: MissingRecord | None = None
    """The earliest acknowledged operation that is missing, in the smallest state if there is one."""
    missing_total: int = 0
    acknowledged: int = 0
    replay: list[str] = Field(default_factory=list)
    """The command that shows the failure in a kept lab: the smallest state of the shortest history."""


class StateMark(Strict):
    """A judged state as a point of the figure."""

    name: str
    policy: str
    at_s: float
    checked: bool
    """Whether this state was checked on a machine; else another state with equal content was."""
    broken: bool


class LossRecord(Strict):
    """The greatest excused loss of any state."""

    operations: int
    of: int
    bytes: int
    seconds: float
    state: str


class UndecidedRecord(Strict):
    """States with missing acknowledged operations for which it is undecided whether a promise was broken."""

    states: int = 0
    state: str
    """Name of the first such state."""
    reason: str


class ColdRecord(Strict):
    """States that were checked again on a freshly booted machine (cold check)."""

    checked: int = 0
    differing: list[str] = Field(default_factory=list)
    """Names of the states with a different result in the cold check: the reused checker was wrong."""


class RedundancyRecord(Strict):
    """Numbers of judged states by the consistency of the array's redundancy, computed from the members' contents."""

    checked: int = 0
    differing: int = 0
    """States in which rows (stripes) are inconsistent and need a resync."""
    unmarked: int = 0
    """Those of the differing states in which md would not resync all inconsistent rows."""
    uneven: int = 0
    """Those in which some members' bitmaps mark an inconsistent row and others do not."""
    changed: int = 0
    """States in which copies differ as a page changed during write-back, which md allows."""
    all_marked: int = 0
    """States whose bitmap marks every region, as on a new array, so that no row can be missed."""
    unchecked: dict[str, int] = Field(default_factory=dict)
    """Numbers of states that were not compared, by reason."""


class Possible(Strict):
    """The number of possible crash states of the run, without torn ones."""

    log10: float
    exact: int | None = None
    """The exact number; None where it is very large."""


class ExplorationRecord(Strict):
    """An exploration of one crash test."""

    schema_version: int = SCHEMA
    run: str
    cycle: str
    title: str
    control: ControlSpec | None = None
    """What the crash test had to show; None if it is no control."""
    started: datetime
    ended: datetime | None = None
    ended_early: str | None = None
    """Why the exploration ended early, as text."""
    stopped_by: StoppedBy | None = None
    """What ended the exploration early."""
    """None if it used up its budget."""
    command: list[str] = Field(default_factory=list)
    log: str
    """The write log, relative to the run's directory."""
    log_digest: str
    seed: int
    tear: int
    """Unit of atomic writes of a disk, in bytes."""
    asked: int | None = None
    """Requested number of states; None: as many as the time budget permits."""
    requests: int = 0
    """Number of records of the log: writes, discards, flushes."""
    cuts: int = 0
    possible: Possible
    candidates: int = 0
    """Number of states that the policies propose."""
    judged: int = 0
    distinct: int = 0
    """Number of different contents of the judged states."""
    checked: int = 0
    """Number of checks on machines, without cold checks and repetitions."""
    broken: int = 0
    """Number of judged states in which a promise is broken."""
    failures: list[FailureRecord] = Field(default_factory=list)
    loss: LossRecord | None = None
    undecided: UndecidedRecord | None = None
    tested: dict[str, int] = Field(default_factory=dict)
    """By kind, the most operations at any cut whose loss a judged state could show; 0 for kinds never executed."""
    acknowledged_s: list[float] = Field(default_factory=list)
    """Times of the acknowledgements, in seconds since the beginning of the write log."""
    span_s: tuple[float, float] = (0.0, 0.0)
    """Times of the first and last cut to be explored, in seconds since the beginning of the write log."""
    marks: list[StateMark] = Field(default_factory=list)
    policies: dict[str, int] = Field(default_factory=dict)
    """Number of judged states by policy."""
    stages: list[StageTime] = Field(default_factory=list)
    seconds: float = 0.0
    """Seconds spent checking in all recorded attempts, without booting and shrinking."""
    timed: int = 0
    """Number of states judged in these seconds."""
    states_per_minute: float | None = None
    """Judged states per minute of checking."""
    checked_per_minute: float | None = None
    """States checked on machines per minute of checking."""
    checkers: int = 1
    cold: ColdRecord = Field(default_factory=ColdRecord)
    through_nfsd: int = 0
    """Number of checks that also read the ledger through nfsd, without cold checks, which all do."""
    filesystems: int = 0
    """Number of checks that also ran the file system's checker (fsck)."""
    wedged: int = 0
    redundancy: RedundancyRecord = Field(default_factory=RedundancyRecord)
    notes: list[str] = Field(default_factory=list)
    cannot_prove: list[str] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "nothing was explored"

    @property
    def loses(self) -> bool:
        """Whether any crash state lost an acknowledged operation, by design or not."""
        return self.loss is not None or self.broken > 0
