"""What disks, array, network and machines did while a workload ran, and what that means."""

from raidproof.monitor.chart import Moment, moments
from raidproof.monitor.derived import Application, Derived, derive
from raidproof.monitor.engine_use import EngineUse
from raidproof.monitor.monitor import Monitor
from raidproof.monitor.recording import Recording, Snapshot, parse_recording
from raidproof.monitor.use import DiskUse, MachineUse, RpcUse

__all__ = [
    "Application",
    "Derived",
    "DiskUse",
    "EngineUse",
    "MachineUse",
    "Moment",
    "Monitor",
    "Recording",
    "RpcUse",
    "Snapshot",
    "derive",
    "moments",
    "parse_recording",
]
