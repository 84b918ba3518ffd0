"""The record schema of a run: crash tests, cells, suites.

``SCHEMA`` increases whenever a field changes its meaning. `raidproof.record.older` converts older forms of fields.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from raidproof.core.blame import Cause, Culprit, expected_blame
from raidproof.fault.fault import FaultEffects
from raidproof.record.cell import CellRecord, PlanRecord, Strict
from raidproof.record.environment import Environment
from raidproof.record.observation import Files, Observations
from raidproof.record.older import with_effects, with_observations
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.suite import SuiteRecord

SCHEMA = 2
BIN_MS = 100


class BlockClass(StrEnum):
    """The state of one block of the ledger after a fault."""

    DURABLE = "durable"
    UNSYNCED_KEPT = "unsynced-kept"
    UNSYNCED_LOST = "unsynced-lost"
    SYNCED_LOST = "synced-lost"
    STALE = "stale"
    GARBAGE = "garbage"
    OLD = "old data of the disk"
    """Content from before the run: the block was neither zeroed nor written."""
    MISPLACED = "misplaced"
    UNREADABLE = "unreadable"


BROKEN = frozenset(
    {
        BlockClass.SYNCED_LOST,
        BlockClass.STALE,
        BlockClass.GARBAGE,
        BlockClass.OLD,
        BlockClass.MISPLACED,
        BlockClass.UNREADABLE,
    }
)


class Evidence(BaseModel):
    """Counts of acknowledged, judged and lost operations after a fault, at one place of observation."""

    acknowledged: dict[str, int] = Field(default_factory=dict)
    """Number of acknowledged operations by kind; kinds that no worker executes are absent."""
    judged: dict[str, int] = Field(default_factory=dict)
    """Number of these whose loss could have been seen: later operations hide the others."""
    lost: dict[str, int] = Field(default_factory=dict)
    """Number of acknowledged operations that are missing, by kind."""
    lost_bytes: int = 0
    lost_files: int = 0
    """Number of files of which even the name is missing."""
    lost_after_recovery: int = 0
    """Number of lost operations that began after service resumed, so that no fault followed them."""
    across_restart: int = 0
    """Number of acknowledged `close`s that are not judged, as they were in progress at the server's restart."""
    first_lost_ns: int | None = None
    """Time of the earliest lost acknowledgement; everything acknowledged before survived."""
    blocks: dict[BlockClass, int] = Field(default_factory=dict)
    invented: list[str] = Field(default_factory=list)
    """Descriptions of what was found but never written."""
    examples: list[str] = Field(default_factory=list)
    """Descriptions of the first lost operations and damaged blocks."""

    @property
    def acknowledged_total(self) -> int:
        """Number of acknowledged operations of all kinds."""
        return sum(self.acknowledged.values())

    @property
    def lost_total(self) -> int:
        """Number of lost acknowledged operations of all kinds."""
        return sum(self.lost.values())

    @property
    def broken_blocks(self) -> int:
        """Number of blocks in a state that no promise allows."""
        return sum(count for kind, count in self.blocks.items() if kind in BROKEN)


class Throughput(Strict):
    """The clients' performance before the fault."""

    sequential_write_mb_s: float | None = None
    """Median of fio on one client, 1 MiB writes, fsync inside the timed region; MB/s (10^6 bytes per second)."""
    sequential_write_each: list[float] = Field(default_factory=list)
    """Each measurement; empty in an older record with a single one."""
    fsyncs_per_s: float | None = None
    """Acknowledged 4 KiB writes with fsync per second, all clients together, over the whole ledger."""
    fsyncs_each_second: list[float] = Field(default_factory=list)
    """The same rate in each whole second of the ledger."""
    acknowledged_per_s: float | None = None
    """Acknowledged operations of all kinds per second, all clients together."""


class Recovery(Strict):
    """Recovery after power returns, in seconds of wall time by stage; None for a stage that did not happen."""

    boot_s: float | None = None
    assemble_s: float | None = None
    mount_s: float | None = None
    first_io_s: float | None = None
    """From the start of the export to the first acknowledgement to a client."""

    @property
    def total_s(self) -> float | None:
        """Sum of the stages in seconds; None if one is missing."""
        stages = (self.boot_s, self.assemble_s, self.mount_s, self.first_io_s)
        known = [stage for stage in stages if stage is not None]
        return sum(known) if len(known) == len(stages) else None


class Timeline(Strict):
    """Acknowledgements over time around the fault; times in seconds relative to the fault."""

    bin_ms: int = BIN_MS
    begin_s: float
    acknowledged: list[int]
    """Number of operations acknowledged in each bin, from ``begin_s`` on."""
    last_durable_s: float | None = None
    """Everything acknowledged before this time survived; None if nothing was lost."""
    served_again_s: float | None = None
    """Time of the first acknowledgement after service resumed."""


class ControlSpec(Strict):
    """What a control must show for the rest of the run to count."""

    expects_loss: bool
    expects_blame: Annotated[Culprit | Cause | None, BeforeValidator(expected_blame)] = None
    """The culprit or the cause that must be blamed for the loss."""


class FaultRecord(Strict):
    """A fault that was in effect already when the clients began."""

    fault: str
    target: str
    proof: str
    lasted: str | None = None
    """The proof that it was still in effect at the main fault, where something could have ended it."""
    effects: FaultEffects = FaultEffects()


class CrashTestRecord(Strict):
    """One crash test (build, measure, write, inject the fault, recover, observe) with its verdicts."""

    name: str
    title: str
    asked: dict[str, Any]
    """Specification of every layer, by layer."""
    effective: dict[str, Any] = Field(default_factory=dict)
    """The effective configuration of the machines, by layer; ``mounts`` has one for each client."""
    workload: dict[str, Any] = Field(default_factory=dict)
    """Specification of the ledger, its duration in seconds, and the fio job."""
    cache_mode: str
    """The cache mode of the member disks while the ledger ran."""
    during: list[FaultRecord] = Field(default_factory=list)
    """The faults that were in effect already when the clients began."""
    fault: str
    effects: FaultEffects
    """The effects that the fault declares; verdicts depend on these and never on the fault's name."""
    fault_target: str | None = None
    """The machine or disk that the fault affected."""
    fault_begun_ns: int | None = None
    """When the injection of the fault began; a shutdown, for example, takes time."""
    fault_at_ns: int | None = None
    fault_proof: str | None = None
    resumed_ns: int | None = None
    """When service could resume; acknowledgements between the fault and this time were still in transit."""
    seed: int
    control: ControlSpec | None = None
    files: Files = Field(default_factory=Files)
    """Raw observations."""
    workers: list[dict[str, Any]] = Field(default_factory=list)
    ledger_begun_ns: int | None = None
    ledger_seconds: float | None = None
    """From the beginning of the ledger to the fault, or to the last acknowledgement."""
    throughput: Throughput = Field(default_factory=Throughput)
    recovery: Recovery = Field(default_factory=Recovery)
    verified_s: float | None = None
    """From the fault until the end of all checks."""
    disks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The disk engine's counters, by member disk."""
    observed: Observations = Field(default_factory=Observations)
    """All other observations, unjudged."""
    rig_error: str | None = None
    not_effective: str | None = None
    """How the effective configuration differs from the request."""
    not_recovered: str | None = None
    """How the array or file system failed to recover after the fault."""
    requirement_missing: str | None = None
    # Judged from the above, and judged anew by `raidproof judge`.
    on_server: Evidence | None = None
    on_client: Evidence | None = None
    timeline: Timeline | None = None
    loss_window_s: float | None = None
    """Seconds of acknowledged work lost: from the earliest lost acknowledgement to the fault."""
    verdicts: list[Verdict] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"

    @model_validator(mode="before")
    @classmethod
    def _of_an_older_record(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return with_observations(value if "effects" in value else with_effects(value))

    @property
    def all_effects(self) -> list[FaultEffects]:
        """The effects of the faults in effect from the beginning, then those of the main fault."""
        return [*(one.effects for one in self.during), self.effects]

    @property
    def policy(self) -> str | None:
        """The policy by which the disks' caches were resolved at the cut; None without a cut of their power."""
        return None if self.effects.caches is None else self.effects.caches.value

    @property
    def lost_power(self) -> list[str]:
        """Clients that lost their memory and thus could not report their last operations."""
        target = self.fault_target
        return [target] if target is not None and self.effects.client_memory_lost else []


class SchemaOnly(BaseModel):
    """The part of a record that all schema versions share."""

    schema_version: int


class RunRecord(Strict):
    """A whole run."""

    schema_version: int = SCHEMA
    run: str
    started: datetime
    ended: datetime | None = None
    ended_early: str | None = None
    """Why the run ended early; None if it did not."""
    command: list[str]
    environment: Environment | None = None
    topology: dict[str, Any] = Field(default_factory=dict)
    cycles: list[CrashTestRecord] = Field(default_factory=list)
    plan: PlanRecord | None = None
    cells: list[CellRecord] = Field(default_factory=list)
    suites: list[SuiteRecord] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"
