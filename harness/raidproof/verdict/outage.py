"""The outages of a server in a crash test: recovery times (RTO) and lost acknowledged work (RPO), from its evidence.

All instants are in nanoseconds of the host's CLOCK_MONOTONIC.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from raidproof.guest.ledger_format import APPLICATION, METADATA
from raidproof.record.outage import Outage, Rto, Work
from raidproof.record.run import FaultRecord
from raidproof.workload.history import History, Operation, WorkerSpec

GRANTS = ("lock", "claim")
"""The kinds of step that, if they succeed, are granted locks."""


class Acknowledged(NamedTuple):
    """The acknowledgements of one class of work to one client."""

    instants_ns: Sequence[int]
    """The instants in ascending order."""
    dated: bool
    """Whether they are the times of the server's replies."""


def outages_of(
    history: History, workers: Iterable[WorkerSpec], faults: Iterable[FaultRecord], *, paused: bool = False
) -> list[Outage]:
    """Return the outages that faults of a crash test caused, in the order of the faults.

    ``paused``: whether the workers paused before the fault; the time without service then begins with the fault.
    """
    acknowledged = acknowledgements(history, workers)
    return [
        _outage(acknowledged, one, one.at_ns, one.resumed_ns, paused=paused)
        for one in faults
        if one.effects.server_away and one.at_ns is not None and one.resumed_ns is not None
    ]


def acknowledgements(history: History, workers: Iterable[WorkerSpec]) -> Mapping[tuple[str, Work], Acknowledged]:
    """Return the acknowledgements to each client of each class of work.

    If replies of the server were captured for some of them, only these count: the others may have needed none.
    """
    clients = {one.number: one.client for one in workers if not one.local}
    granted = (one for one in history.steps if one.kind in GRANTS and one.binds())
    found: dict[tuple[str, Work], list[Operation]] = defaultdict(list)
    for one in (*history.acknowledged(), *granted):
        if (client := clients.get(one.worker)) is not None:
            found[client, work_of(one.kind)].append(one)
    return {key: _dated(found[key]) for key in sorted(found)}


def work_of(kind: str) -> Work:
    """Return the class of an operation, or of a granted lock, by its kind."""
    if kind in GRANTS:
        return Work.LOCKS
    if kind == APPLICATION:
        return Work.APPLICATION
    return Work.METADATA if kind in METADATA else Work.WRITES


def _dated(operations: Sequence[Operation]) -> Acknowledged:
    replied = sorted(one.replied_ns for one in operations if one.replied_ns is not None)
    if replied:
        return Acknowledged(replied, dated=True)
    return Acknowledged(sorted(one.ended_ns for one in operations if one.ended_ns is not None), dated=False)


def _outage(
    acknowledged: Mapping[tuple[str, Work], Acknowledged],
    fault: FaultRecord,
    at_ns: int,
    resumed_ns: int,
    *,
    paused: bool,
) -> Outage:
    rto = []
    for (client, work), (instants_ns, dated) in acknowledged.items():
        following = bisect_left(instants_ns, resumed_ns)
        if not following:
            continue
        last_ns = instants_ns[following - 1]
        if paused:
            last_ns = max(last_ns, at_ns)
        seconds = (instants_ns[following] - last_ns) / 1e9 if following < len(instants_ns) else None
        rto.append(Rto(client=client, work=work, last_s=(last_ns - at_ns) / 1e9, seconds=seconds, dated=dated))
    # Older records lack the instant at which a server that the fault took down was off.
    off_ns = None if fault.ended_ns is None else fault.seen_ns
    down_ns = resumed_ns - (at_ns if off_ns is None else off_ns)
    outage = Outage(fault=fault.fault, target=fault.target, down_s=down_ns / 1e9, rto=rto)
    if (scan := fault.on_server) is None:
        return outage
    first_ns = scan.first_lost_ns
    lost_s = 0.0 if first_ns is None else max((at_ns - first_ns) / 1e9, 0.0)
    return outage.model_copy(update={"lost": scan.lost_total, "lost_s": lost_s})
