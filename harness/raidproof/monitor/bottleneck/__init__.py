"""Why a cell was no faster: what limited it, and the measured cause in one sentence. Pure."""

from typing import NamedTuple

from raidproof.monitor.bottleneck.facts import Facts
from raidproof.monitor.bottleneck.limit import Limit, find_limit
from raidproof.monitor.bottleneck.sentence import explain
from raidproof.monitor.derived import Derived
from raidproof.monitor.engine_use import EngineUse
from raidproof.storage.array import ArraySpec

__all__ = ["Cause", "Facts", "Limit", "find_cause"]


class Cause(NamedTuple):
    """What limited a cell, and why."""

    limit: Limit
    sentence: str

    @property
    def rankable(self) -> bool:
        """Whether the cell may be ranked."""
        return self.limit.rankable


def find_cause(
    derived: Derived | None,
    array: ArraySpec,
    *,
    wsize: int | None = None,
    sync: bool = True,
    engine: EngineUse | None = None,
    link_bytes_s: float | None = None,
) -> Cause:
    """Say what limited a cell.

    ``wsize`` is the effective one, ``sync`` the export's, the link's rate in bytes a second and one direction.
    Nothing is guessed: without the monitors' numbers the limit is unknown.
    """
    if derived is None:
        return Cause(Limit.UNKNOWN, "the monitors failed: nothing is known of what happened below")
    facts = Facts(derived, array, wsize, sync, engine, link_bytes_s)
    limit = find_limit(facts)
    return Cause(limit, explain(facts, limit))
