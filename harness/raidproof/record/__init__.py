"""What a run leaves behind: one directory, one versioned schema, complete before anything is judged."""

from raidproof.record.environment import Environment, MachineRecord
from raidproof.record.run import ControlSpec, CrashTestRecord, FaultRecord, Recovery, RunRecord, Throughput, Timeline
from raidproof.record.store import RunStore

__all__ = [
    "ControlSpec",
    "CrashTestRecord",
    "Environment",
    "FaultRecord",
    "MachineRecord",
    "Recovery",
    "RunRecord",
    "RunStore",
    "Throughput",
    "Timeline",
]
