"""External test suites on a stack of raidproof: the commands of each suite, and the result of each test."""

from raidproof_suites.cthon import Cthon
from raidproof_suites.fsstress import Fsstress
from raidproof_suites.fstests import Fstests
from raidproof_suites.fsx import Fsx
from raidproof_suites.ltp import Ltp
from raidproof_suites.pynfs import Pynfs

__all__ = ["Cthon", "Fsstress", "Fstests", "Fsx", "Ltp", "Pynfs"]
