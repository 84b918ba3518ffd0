"""What goes wrong, on purpose: each fault can be injected and healed, and proves that it took effect."""

from harness.fault.array import Degraded, Rebuilding, Reshaping, Resyncing, Scrubbing
from harness.fault.clock import ClockStep
from harness.fault.disk import FlushesDropped, MemberFails, MemberVanishes, SecondMemberFails, SlowMember
from harness.fault.fault import Fault, Injected, Scene, allowed_by
from harness.fault.network import ClientNetworkCut, LeaseExpiry, MissedGrace, NetworkCut
from harness.fault.power import CleanReboot, ClientPowerCut, KernelPanic, PowerCut
from harness.fault.room import FilesystemFull, InodesExhausted
from harness.fault.rot import CorruptedAtRest, LatentSectorDuringRebuild, LatentSectorError, SilentCorruption
from harness.fault.service import NfsdKilled, NfsdRestart, ServerRestart

__all__ = [
    "CleanReboot",
    "ClientNetworkCut",
    "ClientPowerCut",
    "ClockStep",
    "CorruptedAtRest",
    "Degraded",
    "Fault",
    "FilesystemFull",
    "FlushesDropped",
    "Injected",
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
    "Scene",
    "Scrubbing",
    "SecondMemberFails",
    "ServerRestart",
    "SilentCorruption",
    "SlowMember",
    "allowed_by",
]
