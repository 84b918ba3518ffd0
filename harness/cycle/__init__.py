"""One cycle: build, measure, let clients work, break something, bring it back, and look at what is left."""

from harness.cycle.cycle import LEDGER_DIRECTORY, Cycle, run_cycle
from harness.cycle.files import CycleFiles
from harness.cycle.spec import CycleSpec, fault_of

__all__ = ["LEDGER_DIRECTORY", "Cycle", "CycleFiles", "CycleSpec", "fault_of", "run_cycle"]
