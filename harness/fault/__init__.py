"""What goes wrong, on purpose: each fault can be injected and healed, and proves that it took effect."""

from harness.fault.fault import Fault, Injected, Scene
from harness.fault.power import CleanReboot, ClientPowerCut, KernelPanic, PowerCut
from harness.fault.service import NfsdRestart

__all__ = ["CleanReboot", "ClientPowerCut", "Fault", "Injected", "KernelPanic", "NfsdRestart", "PowerCut", "Scene"]
