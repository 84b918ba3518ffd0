"""One cycle: build, measure, let clients work, break something, bring it back, and look at what is left."""

from raidproof.run.crash_test.cycle import LEDGER_DIRECTORY, Cycle, run_cycle
from raidproof.run.crash_test.files import CycleFiles
from raidproof.run.crash_test.spec import CycleSpec, fault_of

__all__ = ["LEDGER_DIRECTORY", "Cycle", "CycleFiles", "CycleSpec", "fault_of", "run_cycle"]
