"""What each promise of a cycle rests on: its operations, how many could have shown a loss, and the calls for them."""

from typing import NamedTuple

from harness.record.run import CycleRecord
from harness.verdict.calls import calls_of, total
from harness.verdict.contract import PROMISES
from harness.verdict.evidence import Evidence


class Row(NamedTuple):
    """One promise."""

    promise: str
    acknowledged: int
    judged: int
    lost: int
    calls: str
    """How often the clients sent the calls that it needs, for all promises together; empty if there are no counts."""


def rows(cycle: CycleRecord, balance: Evidence) -> list[Row]:
    """Return the promises of a cycle in the order of the README's table."""
    counted = cycle.checks.get("calls")
    sent = total(counted if isinstance(counted, dict) else {})
    found = []
    for kind, promise in PROMISES.items():
        if (acknowledged := balance.acknowledged.get(kind)) is None:
            continue
        needed = sorted(calls_of(kind, cycle.asked.get("mount", {})))
        calls = ", ".join(f"{sent[name]:,} {name}" for name in needed) if sent else ""
        judged = balance.judged.get(kind, acknowledged)
        found.append(Row(promise, acknowledged, judged, balance.lost.get(kind, 0), calls))
    return found


def left_out(cycle: CycleRecord) -> dict[str, str]:
    """Return what the ledger left out, and why, by kind of operation or of worker."""
    said: dict[str, str] = cycle.workload.get("left_out", {})
    return said
