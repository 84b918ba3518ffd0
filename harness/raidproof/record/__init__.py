"""The stored records of a run: their schemas, and the directory of a run.

A record contains all observations before the first verdict, so that stored runs can be judged again.
"""

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
