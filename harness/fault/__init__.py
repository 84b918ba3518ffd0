"""What goes wrong, on purpose: each fault can be injected and healed, and proves that it took effect."""

from harness.fault.fault import Fault, Injected
from harness.fault.power import CleanReboot, KernelPanic, PowerCut
from harness.fault.service import NfsdRestart

FAULTS = {fault.name: fault for fault in (PowerCut, CleanReboot, KernelPanic, NfsdRestart)}

__all__ = ["FAULTS", "CleanReboot", "Fault", "Injected", "KernelPanic", "NfsdRestart", "PowerCut"]
