"""What a run leaves behind: one directory, one versioned schema, complete before anything is judged."""

from harness.record.environment import Environment, MachineRecord
from harness.record.run import ControlSpec, CycleRecord, Recovery, RunRecord, Throughput, Timeline
from harness.record.store import RunStore

__all__ = [
    "ControlSpec",
    "CycleRecord",
    "Environment",
    "MachineRecord",
    "Recovery",
    "RunRecord",
    "RunStore",
    "Throughput",
    "Timeline",
]
