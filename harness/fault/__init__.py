"""What goes wrong, on purpose: each fault can be injected and healed, and proves that it took effect."""

from harness.fault.clock import ClockStep
from harness.fault.fault import Fault, Injected, Scene, allowed_by
from harness.fault.network import ClientNetworkCut, LeaseExpiry, MissedGrace, NetworkCut
from harness.fault.power import CleanReboot, ClientPowerCut, KernelPanic, PowerCut
from harness.fault.room import FilesystemFull, InodesExhausted
from harness.fault.service import NfsdKilled, NfsdRestart, ServerRestart

__all__ = [
    "CleanReboot",
    "ClientNetworkCut",
    "ClientPowerCut",
    "ClockStep",
    "Fault",
    "FilesystemFull",
    "Injected",
    "InodesExhausted",
    "KernelPanic",
    "LeaseExpiry",
    "MissedGrace",
    "NetworkCut",
    "NfsdKilled",
    "NfsdRestart",
    "PowerCut",
    "Scene",
    "ServerRestart",
    "allowed_by",
]
