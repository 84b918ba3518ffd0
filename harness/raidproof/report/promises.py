"""What each promise of a cycle rests on: its operations, how many could have shown a loss, and the calls for them."""

from collections.abc import Mapping
from typing import NamedTuple

from raidproof.record.evidence import Evidence
from raidproof.record.run import CycleRecord
from raidproof.verdict.calls import calls_of, total
from raidproof.verdict.contract import PROMISES


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
    by = {"WRITE": stability(cycle)}
    found = []
    for kind, promise in PROMISES.items():
        if (acknowledged := balance.acknowledged.get(kind)) is None:
            continue
        needed = sorted(calls_of(kind, cycle.asked.get("mount", {})))
        calls = ", ".join(f"{sent[name]:,} {name}{by.get(name, '')}" for name in needed) if sent else ""
        judged = balance.judged.get(kind, acknowledged)
        found.append(Row(promise, acknowledged, judged, balance.lost.get(kind, 0), calls))
    return found


def stability(cycle: CycleRecord) -> str:
    """Return of how many WRITEs the clients asked what stability, in parentheses; empty if it was not captured."""
    writes: Mapping[str, int] = cycle.checks.get("replies", {}).get("writes", {})
    return f" ({', '.join(f'{count:,} {how}' for how, count in sorted(writes.items()))})" if writes else ""


def dated(cycle: CycleRecord) -> str:
    """Return a sentence on the operations that the server's replies on the wire date; empty if none was captured."""
    replies = cycle.checks.get("replies", {})
    if not replies.get("dated"):
        return ""
    later_ms = replies["reported_later_ms"]
    return (
        f" Of {replies['of']:,} operations {replies['dated']:,} are dated by the server's last reply on the wire; the"
        f" clients' reports came {later_ms['median']} ms later (median; {later_ms['least']} to {later_ms['most']} ms)."
    )


def left_out(cycle: CycleRecord) -> dict[str, str]:
    """Return what the ledger left out, and why, by kind of operation or of worker."""
    said: dict[str, str] = cycle.workload.get("left_out", {})
    return said
