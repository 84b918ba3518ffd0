"""What a run leaves behind: one directory, one versioned schema, complete before anything is judged."""

from harness.record.run import ControlSpec, CycleRecord, Environment, Recovery, RunRecord, Throughput, Timeline
from harness.record.store import RunStore

__all__ = [
    "ControlSpec",
    "CycleRecord",
    "Environment",
    "Recovery",
    "RunRecord",
    "RunStore",
    "Throughput",
    "Timeline",
]
