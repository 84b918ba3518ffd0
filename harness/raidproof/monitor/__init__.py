"""Measurement of disks, array, network and machines while a workload runs, and its interpretation."""

from raidproof.monitor.chart import Moment, moments
from raidproof.monitor.monitor import Application, Derived, DiskUse, EngineUse, MachineUse, Monitor, RpcUse, derive
from raidproof.monitor.recording import Recording, Snapshot, parse_recording

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
