"""The record schema of an exploration of one recorded crash test, and of the check of one crash state."""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from statistics import median

from pydantic import BaseModel, ConfigDict, Field

from raidproof.core.blame import Blame
from raidproof.guest import check_agent
from raidproof.record.cell import Strict
from raidproof.record.failure import FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.record.recovery import PhaseCount, RecoveryRecord
from raidproof.record.run import ControlSpec
from raidproof.record.sensitivity import Sensitivity, noticed_in
from raidproof.record.worker import WorkerRecord
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.workload.ledger import Found

SCHEMA = 1


class End(StrEnum):
    """How the check of a crash state ended."""

    READ = check_agent.READ
    """The array was assembled, the file system was mounted, and the ledger was read."""
    NOT_ASSEMBLED = check_agent.NOT_ASSEMBLED
    """mdadm could not assemble the array."""
    NOT_MOUNTED = check_agent.NOT_MOUNTED
    """mount could not mount the file system."""
    WEDGED = "wedged"
    """The checker's kernel died, logged a bug, or did not reply in time."""


class ThroughNfsd(StrEnum):
    """Whether the NFS server serves the same content as a scan of the mounted file system."""

    SAME = check_agent.SAME
    DIFFERENT = check_agent.DIFFERENT
    """The server serves other content, or no content: see `Observation.said`."""
    NOT_TRIED = "not tried"
    """The ledger was not read through the NFS server."""


class Rows(BaseModel):
    """The array's redundancy in one crash state, computed from the members' contents.

    A row is one 4 KiB block of each member at the same offset.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    differ: int = 0
    """Number of inconsistent rows: their copies differ, or the parity does not fit the data."""
    unmarked: int = 0
    """Number of inconsistent rows that md would not resync: no bitmap marks the row, or the superblock is clean."""
    uneven: int = 0
    """Number of inconsistent rows that only some members' bitmaps mark: md may not resync them."""
    settled: int = 0
    """Number of inconsistent rows whose last write had ended long before the cut: a copy or parity was not written."""
    changed: int = 0
    """Number of rows whose copies differ because the page changed while md wrote it: md allows this difference."""
    all_marked: bool = False
    """Whether the bitmap marks every region, as on a new array: then every row is marked."""
    first: str = ""
    """Description of the first row that md would not resync; empty without one."""
    unchecked: str | None = None
    """Why the redundancy was not checked; None if it was checked."""


class Observation(BaseModel):
    """The result of a check of one crash state. A repeated check of the same state may differ in ``ms`` only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: End
    said: str = ""
    """The message of the program that failed; for `End.WEDGED`, the stage that did not end; empty without failure."""
    found: Found | None = None
    """The result of the ledger scan; None if no scan completed."""
    console: tuple[str, ...] = ()
    """Suspicious kernel messages without time stamps, each preceded by the name of its sign (`kernel_log.SIGNS`)."""
    silent: bool = False
    """Whether the check ended with `End.WEDGED` (timeout, or mount or array not released) and no kernel message."""
    hung: str = ""
    """``said`` of an earlier check of the same state if the earlier check was ``silent``; else empty.

    This observation replaces the earlier one.
    """
    degraded: dict[str, int] = Field(default_factory=dict)
    """The number of missing members of each degraded array, by md device; complete arrays have no entry."""
    refused: str = ""
    """The message with which the kernel refused to start the array, before it was permitted (``--starts-dirty``).

    Empty if the array started at once, or in no case."""
    through_nfsd: ThroughNfsd = ThroughNfsd.NOT_TRIED
    filesystem: FilesystemCheck | None = None
    """The result of the file system's checker (fsck) after the unmount; None if fsck did not run."""
    scrubbed: dict[str, int] | None = None
    """512-byte sectors that differ after the resync, by device, as the kernel counts them; None without a scrub."""
    rows: Rows | None = None
    """The redundancy as the harness computes it from the members' contents; None if it was not computed."""
    ms: dict[str, float] = Field(default_factory=dict)
    """Duration of each stage in milliseconds.

    Stages: switch (to the disks of this state), assemble, mount, verify (read the ledger); with a read by NFS:
    nfsd (start of the server, mount), look (read the ledger), leave (unmount), forget (the server releases
    the files); unmount; fsck; stop (the arrays).
    """

    def without_scan(self) -> "Observation":
        """Return the observation without the result of the ledger scan, which is most of its size."""
        return self.model_copy(update={"found": None})

    def brief(self) -> "Observation":
        """Return the observation without the result of the ledger scan and without durations."""
        return self.model_copy(update={"found": None, "ms": {}})

    def same_as(self, other: "Observation") -> bool:
        """Return whether two checks of a state have the same result, as far as both made the same checks.

        Messages of programs are not compared: they can contain device names, which differ between machines.
        """
        tried = {self.through_nfsd, other.through_nfsd} - {ThroughNfsd.NOT_TRIED}
        checked = {one.filesystem.outcome for one in (self, other) if one.filesystem is not None}
        seen = [(one.end, one.found, one.console, one.degraded, bool(one.refused)) for one in (self, other)]
        return seen[0] == seen[1] and len(tried) < 2 and len(checked) < 2


class StageTime(Strict):
    """The distribution of the durations of one stage of a crash state check, over all checks, in milliseconds."""

    stage: str
    count: int
    """Number of checks with this stage."""
    median: float
    p90: float
    p99: float
    greatest: float

    @classmethod
    def of(cls, stage: str, values: Sequence[float]) -> "StageTime":
        """Return the distribution of the durations of a stage; ``values``: at least one duration in milliseconds."""
        ordered = sorted(values)
        p90, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.9, 0.99))
        return cls(stage=stage, count=len(ordered), median=median(ordered), p90=p90, p99=p99, greatest=ordered[-1])


def stage_times(by_stage: Mapping[str, Sequence[float]]) -> list[StageTime]:
    """Return the distribution of the durations of each stage, which are in milliseconds."""
    return [StageTime.of(stage, values) for stage, values in by_stage.items()]


class StoppedBy(StrEnum):
    """What ended an exploration before it used up its budget of states or time."""

    RIG = "the rig"
    """An error of the rig."""
    USER = "the user"
    """SIGINT or another signal."""
    TIME = "the time"
    """A time limit."""
    BROKEN = "broken states"
    """The number of broken states that was requested."""


class StateMark(Strict):
    """A judged state as a point in the figure of the HTML report."""

    name: str
    policy: str
    """The policy that chose which unflushed requests survive in this state."""
    at_s: float
    """Time of the cut, in seconds since the beginning of the write log."""
    checked: bool
    """Whether a machine checked this state; if not, a machine checked another state with the same disk contents."""
    broken: bool
    """Whether a promise is broken in the state."""


class LossRecord(Strict):
    """The greatest loss in a crash state for which the export's options excuse the loss."""

    operations: int
    """Number of missing acknowledged operations."""
    of: int
    """Number of operations acknowledged before the cut."""
    bytes: int
    """Size of the missing operations' data."""
    seconds: float
    """Time from the earliest lost acknowledgement to the cut, in seconds."""
    state: str
    """Name of the state."""


class UndecidedRecord(Strict):
    """The states without a verdict: for example a loss without proof that it breaks a promise."""

    states: int = 0
    """Number of these states."""
    state: str
    """Name of the first of these states."""
    reason: str
    """Why the first state has no verdict."""


class ColdRecord(Strict):
    """The result of the cold checks: repeated checks of a state on a freshly booted machine."""

    checked: int = 0
    """Number of cold checks."""
    differing: list[str] = Field(default_factory=list)
    """Names of the states whose cold check has another result: the result of the reused checker was wrong."""


class SecondCutsRecord(Strict):
    """The second power cuts of an exploration, each during the recovery of one crash state."""

    asked: int
    """Requested number of crash states with a recorded recovery."""
    states_each: int
    """Requested number of states of a second cut during each recovery."""
    recoveries: list[RecoveryRecord] = Field(default_factory=list)
    judged: int = 0
    """Number of judged states of a second cut."""
    distinct: int = 0
    """Number of them with different disk contents."""
    checked: int = 0
    """Number of them that a machine checked."""
    broken: int = 0
    """Number of judged states of a second cut in which a promise is broken."""
    phases: list[PhaseCount] = Field(default_factory=list)
    """Numbers of states by the phase of the recovery."""
    cold: ColdRecord = Field(default_factory=ColdRecord)
    undecided: UndecidedRecord | None = None
    """The states of a second cut without a verdict."""
    unchecked: UndecidedRecord | None = None
    """The states of a second cut in which the check command of an application gave no result."""
    seconds: float = 0.0
    """Time spent on recoveries and on checks of states of a second cut, in seconds."""


class RedundancyRecord(Strict):
    """Numbers of judged states by the consistency of the array's redundancy, computed from the members' contents."""

    checked: int = 0
    """States whose redundancy was computed."""
    differing: int = 0
    """States with inconsistent rows, which need a resync; see `Rows`."""
    unmarked: int = 0
    """States with inconsistent rows that md would not resync."""
    uneven: int = 0
    """States with an inconsistent row that only some members' bitmaps mark, and none that md would not resync."""
    changed: int = 0
    """States with copies that differ because a page changed while md wrote it, which md allows."""
    all_marked: int = 0
    """States whose bitmap marks every region, as on a new array: md would resync every row."""
    unchecked: dict[str, int] = Field(default_factory=dict)
    """Numbers of states whose redundancy was not computed, by reason."""


class Possible(Strict):
    """The number of possible crash states of one crash test, without states with torn writes."""

    log10: float
    """Decimal logarithm of the number."""
    exact: int | None = None
    """The exact number; None if it is very large."""


class AllLossesRecord(Strict):
    """The states of an exhaustive exploration: all crash states with at most a given number of lost requests.

    A request is lost in a state if it does not survive and was issued before the last surviving request.
    """

    most: int
    """Greatest number of lost requests of a state."""
    first_epoch: int
    """The first flush epoch of the states; a state belongs to the epoch in which its last survivor was issued."""
    last_epoch: int
    """The last flush epoch of the states."""
    of_epochs: int
    """Number of flush epochs of the recording, from the first cut on."""
    states: list[int]
    """Number of states that there are, by number of lost requests: 0, 1, ... ``most``."""
    judged: list[int] = Field(default_factory=list)
    """Number of judged states, by number of lost requests; empty before an exploration."""

    @property
    def epochs(self) -> int:
        """Number of flush epochs of the states."""
        return self.last_epoch - self.first_epoch + 1

    @property
    def total(self) -> int:
        """Number of states that there are."""
        return sum(self.states)

    @property
    def complete(self) -> bool:
        """Whether all of the states were judged."""
        return self.judged == self.states


class CounterfactualRecord(Strict):
    """Numbers of counterfactual states of one kind of operation.

    A counterfactual state lacks all requests from the reply to one solo operation to the reply to the next one. It is
    the control of the exploration: the next operation must be missing.
    """

    states: int = 0
    """States that were checked."""
    reported: int = 0
    """States in which the check reported the operation as missing."""


class ScrubRecord(Strict):
    """Numbers of checked states by the kernel's own comparison of copies or parity with the data, after its resync."""

    states: int = 0
    """States whose array was scrubbed."""
    differing: int = 0
    """States with sectors that still differ after the resync."""
    most_sectors: int = 0
    """Greatest number of differing 512-byte sectors in one of these states."""


class ExplorationDryRun(Strict):
    """The crash states that `raidproof explore` would check."""

    schema_version: int = SCHEMA
    run: str
    """Name of the run."""
    cycle: str
    """Name of the crash test in the run."""
    requests: int
    """Number of requests in the log: writes, discards, flushes."""
    possible: Possible
    candidates: int
    """Number of crash states that the exploration would check without limits of time and number."""
    asked: int | None = None
    """Requested number of states; None: as many states as the time budget permits, or all."""
    all_losses: AllLossesRecord | None = None
    """The states of an exhaustive exploration; None: the exploration is a sample."""
    second_cuts: int = 0
    """Requested number of crash states whose recovery gets a second power cut."""
    second_states: int = 0
    """Requested number of states of a second cut during each recovery."""
    refused: str | None = None
    """What to choose instead if there are too many states for one exploration; None if there are not."""


MOST_KNOWN, FEW_KNOWN = 0.05, 4
"""Greatest share of the judged states, and number of states, that a known finding explains."""


class ExplorationRecord(Strict):
    """An exploration of the crash states of one recorded crash test."""

    schema_version: int = SCHEMA
    run: str
    """Name of the run."""
    cycle: str
    """Name of the crash test in the run."""
    title: str
    """Title of the crash test."""
    control: ControlSpec | None = None
    """The expected result of the crash test if it is a control; else None."""
    started: datetime
    ended: datetime | None = None
    ended_early: str | None = None
    """Why the exploration ended early, as text; None if it used up its budget."""
    stopped_by: StoppedBy | None = None
    """What ended the exploration early; None if it used up its budget."""
    command: list[str] = Field(default_factory=list)
    log: str
    """Path of the write log, relative to the run's directory."""
    log_digest: str
    """Digest of the write log's content."""
    seed: int
    tear: int
    """Unit of atomic writes of a disk, in bytes."""
    asked: int | None = None
    """Requested number of states; None: as many states as the time budget permits."""
    requests: int = 0
    """Number of requests in the log: writes, discards, flushes."""
    cuts: int = 0
    """Number of instants at which the exploration could cut the power."""
    possible: Possible
    candidates: int = 0
    """Number of crash states that the exploration would check without limits of time and number."""
    all_losses: AllLossesRecord | None = None
    """The states of an exhaustive exploration; None: the exploration is a sample."""
    second_cuts: SecondCutsRecord | None = None
    """The second power cuts; None: none was requested. The numbers of states below do not include theirs."""
    judged: int = 0
    """Number of judged states."""
    distinct: int = 0
    """Number of judged states with different disk contents."""
    checked: int = 0
    """Number of states checked on machines, without cold checks and repeated checks."""
    broken: int = 0
    """Number of judged states in which a promise is broken."""
    failures: list[FailureRecord] = Field(default_factory=list)
    loss: LossRecord | None = None
    unchecked: UndecidedRecord | None = None
    """The states in which the check command of an application gave no result; None without any."""
    undecided: UndecidedRecord | None = None
    tested: dict[str, int] = Field(default_factory=dict)
    """The greatest number of operations, by kind, whose loss a judged state could have shown; 0: never executed."""
    counterfactual: dict[str, CounterfactualRecord] = Field(default_factory=dict)
    """The counterfactual states by kind of operation; empty without solo operations, and in an older record."""
    sensitivity: list[Sensitivity] = Field(default_factory=list)
    """How many instances of each defect of a stack the checked states would have shown; empty in an older record, of a
    control, and without a member."""
    idle: list[str] = Field(default_factory=list)
    """Kinds of worker on a client (``fsync on client1``) of which no judged state could have shown a loss."""
    acknowledged_s: list[float] = Field(default_factory=list)
    """Times of the acknowledgements, in seconds since the beginning of the write log."""
    span_s: tuple[float, float] = (0.0, 0.0)
    """Times of the first and last cut of the exploration, in seconds since the beginning of the write log."""
    marks: list[StateMark] = Field(default_factory=list)
    """Every judged state."""
    policies: dict[str, int] = Field(default_factory=dict)
    """Number of judged states by the policy that chose which unflushed requests survive."""
    stages: list[StageTime] = Field(default_factory=list)
    seconds: float = 0.0
    """Time spent on checks in seconds, without booting and shrinking, over all invocations of this exploration."""
    timed: int = 0
    """Number of states judged in the time ``seconds``."""
    states_per_minute: float | None = None
    """Judged states per minute of checking."""
    checked_per_minute: float | None = None
    """States checked on machines per minute of checking."""
    workers: list[WorkerRecord] = Field(default_factory=list)
    """The workers of the cluster that checked states; empty if this host checked all states."""
    checkers: int = 1
    """Number of checker machines in parallel."""
    cold: ColdRecord = Field(default_factory=ColdRecord)
    through_nfsd: int = 0
    """Number of checks that also read the ledger by NFS, as each cold check does; cold checks do not count."""
    filesystems: int = 0
    """Number of checks that also ran the file system's checker (fsck)."""
    wedged: int = 0
    """Number of checks that ended with `End.WEDGED`."""
    redundancy: RedundancyRecord = Field(default_factory=RedundancyRecord)
    lost_member: str | None = None
    """Serial of the member that is lost with the power cut; None: all members survive."""
    counts: bool = True
    """Whether the result counts for the crash test and its run; False if a member is lost with the power cut."""
    starts_dirty: bool = False
    """Whether an array that the kernel refused to start, as it was dirty and degraded, was started nevertheless."""
    refused: int = 0
    """Number of judged states whose array the kernel refused to start; see `Observation.refused`."""
    losing: int = 0
    """Number of broken states that lack acknowledged operations; the others have another failure only."""
    silent: int = 0
    """Number of states that lack acknowledged operations without an error of kernel, file system or array."""
    scrub: ScrubRecord | None = None
    """The scrubs; None: none was requested."""
    notes: list[str] = Field(default_factory=list)
    """Remarks for the reader on single checks."""
    cannot_prove: list[str] = Field(default_factory=list)
    """Sentences on what an exploration cannot prove."""
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "no crash state was checked"

    @property
    def noticed(self) -> int | None:
        """Number of missing flushes of one member that the checked states would have shown; None if not known."""
        return noticed_in(self.sensitivity)

    @property
    def blind(self) -> list[str]:
        """The kinds of operation that no counterfactual state showed as missing: their loss would not be noticed."""
        return [kind for kind, of in self.counterfactual.items() if of.states and not of.reported]

    def failures_beyond(self, findings: Collection[str], most_share: float = MOST_KNOWN) -> list[FailureRecord]:
        """Return the failures that agree with none of the named findings, or that too many states show.

        A finding explains ``most_share`` of the judged states, and always `FEW_KNOWN` of them.
        """
        judged = self.judged + (0 if self.second_cuts is None else self.second_cuts.judged)
        most = max(FEW_KNOWN, most_share * judged)
        return [one for one in self.failures if one.finding not in findings or one.states > most]

    @property
    def loses(self) -> bool:
        """Whether an acknowledged operation is lost in any crash state, by design or not."""
        return self.loss is not None or self.broken > 0 or any(one.recovery is not None for one in self.failures)


class StateRecord(Strict):
    """The result of a repeated check of one crash state."""

    schema_version: int = SCHEMA
    run: str
    cycle: str
    """Name of the crash test."""
    state: str
    """Name of the crash state."""
    kernel: str = ""
    """Release of the kernel that recovered an exported state; empty for a state of a stored run."""
    recorded_on: str = ""
    """Release of the kernel that had written the disks of an exported state; empty if not known."""
    outcome: Outcome
    reason: str
    blame: Blame | None = None
    examples: list[str] = Field(default_factory=list)
    """Descriptions of the first missing operations, damaged blocks, and content that no client wrote."""
