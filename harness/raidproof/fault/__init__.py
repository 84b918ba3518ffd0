"""Faults of disks, arrays, machines, services, network and free space: each is injected, proved, and healed."""

from raidproof.fault.array import Degraded, Rebuilding, Reshaping, Resyncing, Scrubbing
from raidproof.fault.disk import (
    CorruptedAtRest,
    DefectiveDrives,
    FlushesDropped,
    LatentSectorDuringRebuild,
    LatentSectorError,
    MemberFails,
    MemberVanishes,
    SecondMemberFails,
    SilentCorruption,
    SlowMember,
)
from raidproof.fault.fault import FAULTS, Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.fault.machine import CleanReboot, ClientPowerCut, ClockStep, KernelPanic, PowerCut
from raidproof.fault.network import ClientNetworkCut, LeaseExpiry, MissedGrace, NetworkCut
from raidproof.fault.room import FilesystemFull, InodesExhausted
from raidproof.fault.service import NfsdKilled, NfsdRestart, ServerRestart
from raidproof.fault.takeover import Switchover, Takeover

__all__ = [
    "FAULTS",
    "CleanReboot",
    "ClientNetworkCut",
    "ClientPowerCut",
    "ClockStep",
    "CorruptedAtRest",
    "DefectiveDrives",
    "Degraded",
    "Fault",
    "FaultContext",
    "FaultEffects",
    "FaultEvent",
    "FilesystemFull",
    "FlushesDropped",
    "InodesExhausted",
    "KernelPanic",
    "LatentSectorDuringRebuild",
    "LatentSectorError",
    "LeaseExpiry",
    "MemberFails",
    "MemberVanishes",
    "MissedGrace",
    "NetworkCut",
    "NfsdKilled",
    "NfsdRestart",
    "PowerCut",
    "Rebuilding",
    "Reshaping",
    "Resyncing",
    "Scrubbing",
    "SecondMemberFails",
    "ServerRestart",
    "SilentCorruption",
    "SlowMember",
    "Switchover",
    "Takeover",
]
