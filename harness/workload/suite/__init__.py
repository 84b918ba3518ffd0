"""Suites that others wrote, run on a stack of ours: what is called, and what their output says, test by test."""

from harness.workload.suite.cthon import Cthon
from harness.workload.suite.fsstress import Fsstress
from harness.workload.suite.fstests import Fstests
from harness.workload.suite.fsx import Fsx
from harness.workload.suite.ltp import Ltp
from harness.workload.suite.outcome import CaseResult, SuiteOutcome
from harness.workload.suite.place import SuitePlace
from harness.workload.suite.pynfs import Pynfs
from harness.workload.suite.run import SuiteRun, run_suite
from harness.workload.suite.suites import SuiteSpec

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
