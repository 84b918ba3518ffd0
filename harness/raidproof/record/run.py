"""The schema of a run: crash tests, cells, suites. ``SCHEMA`` rises whenever a field changes its meaning.

What a field said of before in another form is read by `raidproof.record.older`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from raidproof.core.blame import Cause, Culprit, expected_blame
from raidproof.fault.effects import FaultEffects
from raidproof.record.cell import CellRecord, PlanRecord, Strict
from raidproof.record.environment import Environment
from raidproof.record.observation import Files, Observations
from raidproof.record.older import with_effects, with_observations
from raidproof.record.outcome import Outcome, Verdict
from raidproof.workload.suite.place import SuiteOutcome

SCHEMA = 2
BIN_MS = 100


class SuiteRecord(Strict):
    """One suite on one stack, and what its end is judged to mean."""

    name: str
    title: str
    suite: str
    asked: dict[str, Any]
    """Specification of the suite, and of every layer of the stack, by layer."""
    effective: dict[str, Any] = Field(default_factory=dict)
    """What was found on the machines, by layer."""
    client: str
    path: str | None = None
    """Of the suite in the client; the folder above carries the digest of what was copied."""
    commands: list[list[str]] = Field(default_factory=list)
    seconds: float | None = None
    outcomes: SuiteOutcome = SuiteOutcome()
    """Every test, by how it ended."""
    known: list[str] = Field(default_factory=list)
    """Tests whose failure was expected."""
    files: dict[str, str] = Field(default_factory=dict)
    """What each step printed, relative to the run's directory."""
    rig_error: str | None = None
    not_effective: str | None = None
    requirement_missing: str | None = None
    # Judged from the above.
    verdicts: list[Verdict] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"


class BlockClass(StrEnum):
    """What became of one block of the ledger."""

    DURABLE = "durable"
    UNSYNCED_KEPT = "unsynced-kept"
    UNSYNCED_LOST = "unsynced-lost"
    SYNCED_LOST = "synced-lost"
    STALE = "stale"
    GARBAGE = "garbage"
    OLD = "old data of the disk"
    """What the disk held before the run: it was never zeroed, nor written."""
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
    """The ledger's balance after a fault, at one place of observation."""

    acknowledged: dict[str, int] = Field(default_factory=dict)
    """Operations that had been acknowledged, by kind; a kind that no worker was to do is not there."""
    judged: dict[str, int] = Field(default_factory=dict)
    """How many of them could have shown a loss: the others were covered by later ones."""
    lost: dict[str, int] = Field(default_factory=dict)
    """How many of them are not there, by kind."""
    lost_bytes: int = 0
    lost_files: int = 0
    """Files of which nothing is left, not even the name."""
    lost_after_recovery: int = 0
    """How many of them were begun when clients were served again: no fault came after these."""
    across_restart: int = 0
    """Acknowledged `close`s that are not judged, as they were under way when the server restarted."""
    first_lost_ns: int | None = None
    """When the earliest lost operation had been acknowledged; all that was acknowledged before it survived."""
    blocks: dict[BlockClass, int] = Field(default_factory=dict)
    invented: list[str] = Field(default_factory=list)
    """What is there and was never written."""
    examples: list[str] = Field(default_factory=list)
    """The first broken things, in words."""

    @property
    def acknowledged_total(self) -> int:
        """Operations of all kinds that were acknowledged."""
        return sum(self.acknowledged.values())

    @property
    def lost_total(self) -> int:
        """Operations of all kinds that were acknowledged and are not there."""
        return sum(self.lost.values())

    @property
    def broken_blocks(self) -> int:
        """Blocks in a state that no promise allows."""
        return sum(count for kind, count in self.blocks.items() if kind in BROKEN)


class Throughput(Strict):
    """What the clients could do before anything went wrong."""

    sequential_write_mb_s: float | None = None
    """fio on one client, 1 MiB writes, fsync inside the timed region; 10^6 bytes a second; the median of all."""
    sequential_write_each: list[float] = Field(default_factory=list)
    """Each measurement of it; empty in a record of a single one."""
    fsyncs_per_s: float | None = None
    """Acknowledged write + fsync of 4 KiB, all clients together, over all of the ledger."""
    fsyncs_each_second: list[float] = Field(default_factory=list)
    """The same in each whole second of it."""
    acknowledged_per_s: float | None = None
    """Acknowledged operations of all kinds, all clients together."""


class Recovery(Strict):
    """From power back to work, in seconds of wall time, stage by stage; None for a stage that did not happen."""

    boot_s: float | None = None
    assemble_s: float | None = None
    mount_s: float | None = None
    first_io_s: float | None = None
    """From the start of the export to the first acknowledgement that a client got."""

    @property
    def total_s(self) -> float | None:
        """Sum of the stages; None if one is missing."""
        stages = (self.boot_s, self.assemble_s, self.mount_s, self.first_io_s)
        known = [stage for stage in stages if stage is not None]
        return sum(known) if len(known) == len(stages) else None


class Timeline(Strict):
    """Acknowledgements over time, around the fault. Times are seconds relative to the fault."""

    bin_ms: int = BIN_MS
    begin_s: float
    acknowledged: list[int]
    """Operations acknowledged in each bin, from ``begin_s`` on."""
    last_durable_s: float | None = None
    """Everything that was acknowledged before this survived; None when all did."""
    served_again_s: float | None = None
    """The first acknowledgement after the fault."""


class ControlSpec(Strict):
    """What a control must show for the rest of the run to count."""

    expects_loss: bool
    expects_blame: Annotated[Culprit | Cause | None, BeforeValidator(expected_blame)] = None
    """Which part of the system, or what it did, must be to blame for the loss."""


class FaultRecord(Strict):
    """Something that was wrong already when the clients began."""

    fault: str
    target: str
    proof: str
    lasted: str | None = None
    """The proof that it still was so when the fault came, where something could have ended it."""
    effects: FaultEffects = FaultEffects()


class CrashTestRecord(Strict):
    """One cycle: build, measure, write, break, recover, look. And what that is judged to mean."""

    name: str
    title: str
    asked: dict[str, Any]
    """Specification of every layer, by layer."""
    effective: dict[str, Any] = Field(default_factory=dict)
    """What was found on the machines, by layer; ``mounts`` has one for each client."""
    workload: dict[str, Any] = Field(default_factory=dict)
    """Specification of the ledger, its seconds, and fio's job."""
    cache_mode: str
    """The member disks' cache while the ledger ran."""
    during: list[FaultRecord] = Field(default_factory=list)
    """What was wrong already when the clients began."""
    fault: str
    effects: FaultEffects
    """What the fault does, by its own declaration: the judge goes by this, and never by its name."""
    fault_target: str | None = None
    """The machine or disk that it struck."""
    fault_begun_ns: int | None = None
    """When the fault began to be made: a shutdown takes time."""
    fault_at_ns: int | None = None
    fault_proof: str | None = None
    resumed_ns: int | None = None
    """When clients could be served again: an acknowledgement between the fault and this was still on its way."""
    seed: int
    control: ControlSpec | None = None
    files: Files = Field(default_factory=Files)
    """Raw observations."""
    workers: list[dict[str, Any]] = Field(default_factory=list)
    ledger_begun_ns: int | None = None
    ledger_seconds: float | None = None
    """From the ledger's beginning to the fault, or to its last acknowledgement."""
    throughput: Throughput = Field(default_factory=Throughput)
    recovery: Recovery = Field(default_factory=Recovery)
    verified_s: float | None = None
    """From the fault until everything had been checked."""
    disks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The engine's counters by member disk."""
    observed: Observations = Field(default_factory=Observations)
    """Everything else that was seen, unjudged."""
    rig_error: str | None = None
    not_effective: str | None = None
    """Where the system accepted a request and did something else."""
    not_recovered: str | None = None
    """Where array or file system did not come back after the fault."""
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
        """Effects of what was wrong from before the clients began, then of the fault."""
        return [*(one.effects for one in self.during), self.effects]

    @property
    def policy(self) -> str | None:
        """What the caches of the server's disks kept; None where they kept their power."""
        return None if self.effects.caches is None else self.effects.caches.value

    @property
    def lost_power(self) -> list[str]:
        """Clients that lost their memory: what they did last, they could not tell."""
        target = self.fault_target
        return [target] if target is not None and self.effects.client_memory_lost else []


class SchemaOnly(BaseModel):
    """What every record has, whatever its schema."""

    schema_version: int


class RunRecord(Strict):
    """A whole run."""

    schema_version: int = SCHEMA
    run: str
    started: datetime
    ended: datetime | None = None
    ended_early: str | None = None
    """Why the run did not come to its end; what it had not yet done, it does not prove."""
    command: list[str]
    environment: Environment | None = None
    topology: dict[str, Any] = Field(default_factory=dict)
    cycles: list[CrashTestRecord] = Field(default_factory=list)
    plan: PlanRecord | None = None
    cells: list[CellRecord] = Field(default_factory=list)
    suites: list[SuiteRecord] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"
