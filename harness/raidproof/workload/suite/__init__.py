"""Third-party test suites, run on a stack: their commands, and their results test by test."""

from raidproof.workload.suite.cthon import Cthon
from raidproof.workload.suite.fsstress import Fsstress
from raidproof.workload.suite.fstests import Fstests
from raidproof.workload.suite.fsx import Fsx
from raidproof.workload.suite.ltp import Ltp
from raidproof.workload.suite.place import CaseResult, SuiteOutcome, SuitePlace
from raidproof.workload.suite.pynfs import Pynfs
from raidproof.workload.suite.run import SuiteRun, run_suite
from raidproof.workload.suite.suites import SuiteSpec

__all__ = [
    "CaseResult",
    "Cthon",
    "Fsstress",
    "Fstests",
    "Fsx",
    "Ltp",
    "Pynfs",
    "SuiteOutcome",
    "SuitePlace",
    "SuiteRun",
    "SuiteSpec",
    "run_suite",
]
