"""What disks, array, network and machines did while a workload ran, and what that means."""

from harness.monitor.chart import Moment, moments
from harness.monitor.derived import Application, Derived, derive
from harness.monitor.engine_use import EngineUse
from harness.monitor.monitor import Monitor
from harness.monitor.recording import Recording, Snapshot, parse_recording
from harness.monitor.use import DiskUse, MachineUse, RpcUse

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
