"""What goes wrong, on purpose: each fault can be injected and healed, and proves that it took effect."""

from harness.fault.fault import Fault, Injected, Scene
from harness.fault.network import ClientNetworkCut, LeaseExpiry, MissedGrace, NetworkCut
from harness.fault.power import CleanReboot, ClientPowerCut, KernelPanic, PowerCut
from harness.fault.service import NfsdKilled, NfsdRestart, ServerRestart

__all__ = [
    "CleanReboot",
    "ClientNetworkCut",
    "ClientPowerCut",
    "Fault",
    "Injected",
    "KernelPanic",
    "LeaseExpiry",
    "MissedGrace",
    "NetworkCut",
    "NfsdKilled",
    "NfsdRestart",
    "PowerCut",
    "Scene",
    "ServerRestart",
]
