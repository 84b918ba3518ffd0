"""The record schema of a run: crash tests, cells, suites.

``SCHEMA`` increases if a field changes its meaning. `raidproof.record.older` converts the fields of older records.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from raidproof.core.blame import Cause, Culprit, expected_blame
from raidproof.fault.fault import FaultEffects
from raidproof.record.block_life import BlockLife
from raidproof.record.cell import CellRecord, Explored, PlanRecord, Strict
from raidproof.record.environment import Environment
from raidproof.record.known import KnownRecord
from raidproof.record.observation import Files, Observations
from raidproof.record.older import with_effects, with_observations
from raidproof.record.outage import Outage
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.sensitivity import Sensitivity
from raidproof.record.suite import SuiteRecord

SCHEMA = 2
BIN_MS = 100
"""Width of a bin of a `Timeline`, in milliseconds."""


class BlockClass(StrEnum):
    """The state of one block of the ledger after a fault: the generation found against the acknowledged generation."""

    DURABLE = "durable"
    """The block has the newest acknowledged generation."""
    UNSYNCED_KEPT = "unsynced-kept"
    """The block has a newer generation than the newest acknowledged one."""
    UNSYNCED_LOST = "unsynced-lost"
    """The block is missing and had no acknowledged generation, or the cut tore the block during an overwrite."""
    SYNCED_LOST = "synced-lost"
    """The block had an acknowledged generation and is missing."""
    STALE = "stale"
    """The block has an older generation than the newest acknowledged one."""
    GARBAGE = "garbage"
    """The block has content that no client wrote; in older records also a torn block."""
    TORN = "torn"
    """The block is a mixture of several generations, or of one and zeros, that no cut explains."""
    OLD = "old data of the disk"
    """The block has content from before the run: it was neither zeroed nor written."""
    MISPLACED = "misplaced"
    """The block was written to another place or file."""
    UNREADABLE = "unreadable"
    """Reading the block failed with an error."""


BROKEN = frozenset(
    {
        BlockClass.SYNCED_LOST,
        BlockClass.STALE,
        BlockClass.GARBAGE,
        BlockClass.TORN,
        BlockClass.OLD,
        BlockClass.MISPLACED,
        BlockClass.UNREADABLE,
    }
)
"""The states of a block that no promise allows."""


class ScanResult(BaseModel):
    """The numbers of acknowledged, judged and lost operations after a fault, from one scan of the ledger.

    The scan ran on the server or on a client.
    """

    acknowledged: dict[str, int] = Field(default_factory=dict)
    """Number of acknowledged operations by kind, without the kinds that no worker executes."""
    judged: dict[str, int] = Field(default_factory=dict)
    """Number of acknowledged operations whose loss the scan could show, by kind: later operations hide the others."""
    lost: dict[str, int] = Field(default_factory=dict)
    """Number of acknowledged operations that are missing, by kind."""
    lost_bytes: int = 0
    """Size in bytes of the data of the missing operations."""
    lost_files: int = 0
    """Number of files whose names are missing."""
    lost_after_recovery: int = 0
    """Number of lost operations that began after service resumed; no fault explains their loss."""
    across_restart: int = 0
    """Number of acknowledged `close` operations in progress at the server's restart, which are not judged."""
    first_lost_ns: int | None = None
    """The instant (CLOCK_MONOTONIC, ns) of the earliest lost acknowledgement; None without a loss."""
    blocks: dict[BlockClass, int] = Field(default_factory=dict)
    """Number of blocks by state."""
    invented: list[str] = Field(default_factory=list)
    """Descriptions of content, files and names that no client wrote."""
    examples: list[str] = Field(default_factory=list)
    """Descriptions of the first lost operations and damaged blocks."""
    damaged: list[str] = Field(default_factory=list)
    """Descriptions of the damage that the check command of an application reported."""
    unchecked: list[str] = Field(default_factory=list)
    """Why the check command of an application gave no result; its operations are not judged."""

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
    """The speed of the clients before the fault."""

    sequential_write_mb_s: float | None = None
    """Median rate of sequential writes by fio on one client (1 MiB writes, fsync in the timed part); 10^6 bytes/s."""
    sequential_write_each: list[float] = Field(default_factory=list)
    """The rate in each measurement by fio; empty in an older record, which has a single measurement."""
    fsyncs_per_s: float | None = None
    """Acknowledged 4 KiB writes with fsync per second, all clients together, from the ledger's begin to the fault."""
    fsyncs_each_second: list[float] = Field(default_factory=list)
    """Acknowledged 4 KiB writes with fsync in each whole second of the ledger, all clients together."""
    acknowledged_per_s: float | None = None
    """Acknowledged operations of all kinds per second, all clients together."""


class Recovery(Strict):
    """Duration of each stage of the server's recovery after the fault, in seconds; None if the stage was omitted."""

    boot_s: float | None = None
    """Time from power on until the server's machine replies."""
    assemble_s: float | None = None
    """Time from boot until the array is online."""
    mount_s: float | None = None
    """Time from assembly until the file system is mounted."""
    first_io_s: float | None = None
    """Time from the start of the export to the first acknowledgement to a client."""

    @property
    def total_s(self) -> float | None:
        """Sum of all stages in seconds; None if a stage is missing."""
        stages = (self.boot_s, self.assemble_s, self.mount_s, self.first_io_s)
        known = [stage for stage in stages if stage is not None]
        return sum(known) if len(known) == len(stages) else None


class Timeline(Strict):
    """The number of acknowledgements over time, before and after the fault; times are in seconds from the fault."""

    bin_ms: int = BIN_MS
    """Width of a bin, in milliseconds."""
    begin_s: float
    """Begin of the first bin."""
    acknowledged: list[int]
    """Number of operations acknowledged in each bin."""
    last_durable_s: float | None = None
    """All operations acknowledged before this time survived; None if no operation was lost."""
    served_again_s: float | None = None
    """Time of the first acknowledgement after service resumed; None without one."""


class ControlSpec(Strict):
    """The expected result of a control; without it, the control is INVALID, or FAIL if it shows a defect."""

    expects_loss: bool
    """Whether the control must lose acknowledged operations."""
    expects_blame: Annotated[Culprit | Cause | None, BeforeValidator(expected_blame)] = None
    """The culprit or the cause that the verdict must blame for the loss; None: any."""


class FaultRecord(Strict):
    """One fault of a crash test. Instants (``_ns``) are those of `CrashTestRecord`."""

    fault: str
    """Name of the fault."""
    target: str
    """The machine or disk that the fault affected."""
    proof: str
    """The observation that proves that the fault took effect."""
    lasted: str | None = None
    """Proof that the fault lasted until the next cut; None if the fault cannot end by itself."""
    effects: FaultEffects = FaultEffects()
    begun_ns: int | None = 0
    """The instant at which its injection began; 0: before the clients began; None: not known."""
    at_ns: int | None = None
    """The instant of the fault: if it lost the server's memory, operations acknowledged earlier must be durable."""
    ended_ns: int | None = None
    """The instant at which the injection had ended: a server that it took down was off by then."""
    healed_ns: int | None = None
    """The instant at which a fault that stayed in effect was healed; None if it did not stay, or was not healed."""
    resumed_ns: int | None = None
    """The instant at which service could resume; None for a fault that lasts while the server serves."""
    after_stage: str | None = None
    """The stage of the server's recovery after which this fault followed; None outside a recovery."""
    recovery: Recovery = Field(default_factory=Recovery)
    """Duration of each stage of the server's recovery after this fault."""
    disks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The disk engine's counters at a power cut, by serial of the member disk."""
    on_server_file: str | None = None
    """The file of the scan on the server before service resumed; None if this fault did not take the server down."""
    # `raidproof judge` computes the following field again from those above.
    on_server: ScanResult | None = None
    """The evidence from that scan."""

    @property
    def seen_ns(self) -> int | None:
        """The instant that the server's scan shows if the fault took the server down; else None."""
        if self.recovery.assemble_s is None:
            return None
        return self.resumed_ns if self.ended_ns is None else self.ended_ns

    @property
    def served_until_ns(self) -> int | None:
        """The instant until which the server may have executed requests that had no reply.

        A server that the fault took down was off at the end of the injection, which older records lack.
        """
        return self.resumed_ns if self.seen_ns is None else self.seen_ns


class CrashTestRecord(Strict):
    """One crash test (build, measure, write, inject the fault, recover, observe) with its verdicts.

    Instants (``_ns``) are those of the host's CLOCK_MONOTONIC, in nanoseconds.
    """

    name: str
    """Name of the crash test, also that of its directory in the run's directory."""
    title: str
    asked: dict[str, Any]
    """The requested configuration, by layer."""
    effective: dict[str, Any] = Field(default_factory=dict)
    """The configuration as read back from the machines, by layer; ``mounts`` has an entry for each client."""
    workload: dict[str, Any] = Field(default_factory=dict)
    """Specification of the ledger, its duration in seconds, and the fio job."""
    cache_mode: str
    """The cache mode of the member disks while the ledger ran."""
    during: list[FaultRecord] = Field(default_factory=list)
    """The faults beside the main fault, in the order of their injection; some began before the clients."""
    fault: str
    """Name of the main fault."""
    effects: FaultEffects
    """The effects of the main fault. Verdicts depend on the effects, and never on the fault's name."""
    fault_target: str | None = None
    """The machine or disk that the main fault affected."""
    fault_begun_ns: int | None = None
    """The instant at which the injection of the main fault began; a shutdown, for example, takes time."""
    fault_at_ns: int | None = None
    """The instant of the main fault: operations acknowledged earlier must be durable."""
    fault_ended_ns: int | None = None
    """The instant at which the injection of the main fault had ended: a server that it took down was off by then."""
    fault_proof: str | None = None
    """The observation that proves that the main fault took effect."""
    resumed_ns: int | None = None
    """The instant at which service could resume; earlier acknowledgements after the fault were in transit."""
    seed: int
    control: ControlSpec | None = None
    files: Files = Field(default_factory=Files)
    """Files with raw observations."""
    workers: list[dict[str, Any]] = Field(default_factory=list)
    """Specification of each worker of the ledger, a `WorkerSpec`."""
    ledger_begun_ns: int | None = None
    """The instant at which the ledger began."""
    ledger_seconds: float | None = None
    """Time from the beginning of the ledger to the fault, or to the last acknowledgement."""
    throughput: Throughput = Field(default_factory=Throughput)
    recovery: Recovery = Field(default_factory=Recovery)
    verified_s: float | None = None
    """Time from the fault until the end of all checks, in seconds."""
    disks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The disk engine's counters at the fault, by serial of the member disk."""
    observed: Observations = Field(default_factory=Observations)
    """The observations that no other field of this record contains."""
    rig_error: str | None = None
    """The message of the rig's error that ended the crash test; None without an error."""
    not_effective: str | None = None
    """How the effective configuration differs from the requested one; None if it does not differ."""
    not_recovered: str | None = None
    """How the array or file system failed to recover after the fault; None if both recovered."""
    requirement_missing: str | None = None
    """The requirement of the crash test that this host or lab lacks; None if it lacks none."""
    agreements: dict[str, str] = Field(default_factory=dict)
    """The findings with whose crash states the crash test's own power cut agrees, by its damage.

    Empty if it did not fail, and if the state of the disks after the cut is not known."""
    explored: list[Explored] = Field(default_factory=list)
    """The results of the explorations of the crash states of this crash test, by the names of their files."""
    no_states: str = ""
    """Why crash states were not checked after the crash test although that was requested; empty if they were."""
    # `raidproof judge` computes the following fields again from those above.
    on_server: ScanResult | None = None
    """The evidence from the scan on the server, before service resumed."""
    on_client: ScanResult | None = None
    """The evidence from the scan through a client, at the end."""
    lives: list[BlockLife] | None = None
    """The lives of a few blocks that the server's scan did not find; None in an older record, or without a scan."""
    solo_operations: dict[str, int] = Field(default_factory=dict)
    """Number of acknowledged operations by kind that began while all other workers paused (`observed.solo`)."""
    sensitivity: list[Sensitivity] = Field(default_factory=list)
    """How many instances of each defect of a stack the write log could have shown.

    Empty in an older record, of a control, and without a write log that has the written data."""
    timeline: Timeline | None = None
    loss_window_s: float | None = None
    """Time in seconds from the earliest lost acknowledgement to the fault; 0 without a loss."""
    outages: list[Outage] = Field(default_factory=list)
    """The outages of the server, in the order of the faults that caused them; empty in an older record."""
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
    def main(self) -> FaultRecord:
        """The main fault in the form of the others."""
        return FaultRecord(
            fault=self.fault,
            target=self.fault_target or "",
            proof=self.fault_proof or "",
            effects=self.effects,
            begun_ns=self.fault_begun_ns,
            at_ns=self.fault_at_ns,
            ended_ns=self.fault_ended_ns,
            resumed_ns=self.resumed_ns,
            recovery=self.recovery,
            disks=self.disks,
            on_server_file=self.files.on_server,
            on_server=self.on_server,
        )

    @property
    def injected(self) -> list[FaultRecord]:
        """All faults in the order of their injection, the main fault among them."""
        main_ns = self.fault_begun_ns or self.fault_at_ns
        before = [one for one in self.during if main_ns is None or (one.begun_ns or 0) < main_ns]
        return [*before, self.main, *self.during[len(before) :]]

    @property
    def policy(self) -> str | None:
        """The policy by which the disks' caches kept data at the power cut; None if the disks stayed powered."""
        return None if self.effects.caches is None else self.effects.caches.value

    @property
    def last_resumed_ns(self) -> int | None:
        """The instant at which service could resume for the last time; None without a fault."""
        return max((one.resumed_ns for one in self.injected if one.resumed_ns is not None), default=None)

    @property
    def on_server_itself(self) -> bool:
        """Whether an application runs on the server and uses its file system directly, without NFS."""
        return any(worker.get("local") for worker in self.workers)

    @property
    def lost_power(self) -> list[str]:
        """Machines that lost their memory in a fault, so that the history may lack their last reports.

        The server is one of them only if an application runs there.
        """
        local = self.on_server_itself
        lost = [
            one.target
            for one in self.injected
            if one.effects.client_memory_lost or (local and one.effects.server_memory_lost)
        ]
        return [one for one in dict.fromkeys(lost) if one]


class RunRecord(Strict):
    """The record of one run: its crash tests, cells and suites, with their verdicts."""

    schema_version: int = SCHEMA
    run: str
    started: datetime
    ended: datetime | None = None
    ended_early: str | None = None
    """Why the run ended early; None if it was completed."""
    command: list[str]
    """The command line of the run, program first."""
    environment: Environment | None = None
    """The machines and the host; None if no machine booted."""
    topology: dict[str, Any] = Field(default_factory=dict)
    """The requested lab: provider, machines, disks and network."""
    cycles: list[CrashTestRecord] = Field(default_factory=list)
    """The crash tests."""
    plan: PlanRecord | None = None
    """The plan; None if the run has none."""
    cells: list[CellRecord] = Field(default_factory=list)
    suites: list[SuiteRecord] = Field(default_factory=list)
    known: KnownRecord | None = None
    """The known differences that the run was judged with; None without any."""
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"

    def power_cut_of(self, cell: CellRecord) -> CrashTestRecord | None:
        """Return the power cut of a cell's configuration; None without one."""
        return next((one for one in self.cycles if one.name == cell.cycle), None)

    @property
    def server_kernel(self) -> str:
        """Release of the server's kernel; empty if not known."""
        machines = self.environment.machines if self.environment is not None else []
        return next((one.kernel for one in machines if one.role == "server"), "")
