"""External test suites on a stack of raidproof: the commands of each suite, and the result of each test."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raidproof_suites.cthon import Cthon
    from raidproof_suites.fsstress import Fsstress
    from raidproof_suites.fstests import Fstests
    from raidproof_suites.fsx import Fsx
    from raidproof_suites.ltp import Ltp
    from raidproof_suites.pynfs import Pynfs

__all__ = ["Cthon", "Fsstress", "Fstests", "Fsx", "Ltp", "Pynfs"]


def __getattr__(name: str) -> Any:
    """Import a suite at its first use: each pytest process loads this package, and few run a suite."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{name.lower()}"), name)
