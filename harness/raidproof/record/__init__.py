"""The stored records of a run: their schemas, and the directory of a run.

A record contains all observations before the first verdict, so that stored runs can be judged again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raidproof.record.environment import Environment, MachineRecord
    from raidproof.record.run import (
        ControlSpec,
        CrashTestRecord,
        FaultRecord,
        Recovery,
        RunRecord,
        Throughput,
        Timeline,
    )
    from raidproof.record.store import RunStore

__all__ = [
    "ControlSpec",
    "CrashTestRecord",
    "Environment",
    "FaultRecord",
    "MachineRecord",
    "Recovery",
    "RunRecord",
    "RunStore",
    "Throughput",
    "Timeline",
]
_ELSEWHERE = {"Environment": "environment", "MachineRecord": "environment", "RunStore": "store"}
"""The module of each name that is not in the module ``run``."""


def __getattr__(name: str) -> Any:
    """Import a name at its first use: the index of runs needs none of the schemas, whose import takes a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'run')}"), name)
    globals()[name] = value
    return value
