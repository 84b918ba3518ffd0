"""The verdict on the least work of each client: enough operations of each kind of worker could have shown a loss."""

from collections import Counter
from collections.abc import Mapping, Sequence

from raidproof.guest.ledger_format import APPLICATION, HOLDERS, TREES
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.balance import Balance
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.contract import LEAST_JUDGED
from raidproof.verdict.evidence import ON_SERVER, CrashTestEvidence, Stage
from raidproof.workload.history import WorkerSpec

WORK = "work of each client"
"""Name of the check that enough operations of each kind of worker on each client could have shown a loss."""


class Work(Check[CrashTestEvidence]):
    """Enough operations of each kind of worker on each client could have shown a loss."""

    name = WORK
    stages = frozenset({Stage.COMPLETE, Stage.BROKEN_OFF})
    rank = 25

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if there were too few."""
        scan = evidence.scan_at(ON_SERVER)
        return [] if scan is None else judge_work(evidence.workers, scan.balance.parts, scan.place)


def judge_work(workers: Sequence[WorkerSpec], parts: Mapping[int, Balance], where: str) -> list[Verdict]:
    """Return an INCONCLUSIVE verdict if too few operations of some kind of worker on a client could show a loss.

    ``parts``: the comparison of each worker's operations with the scan, by the number of the worker. A lost operation
    needs no minimum. If the ledger's settings let fewer operations show a loss, this number is the minimum.
    """
    shown, most, lost = Counter[tuple[str, str]](), Counter[tuple[str, str]](), set[tuple[str, str]]()
    for worker in workers:
        shown[worker.group] += sum(parts[worker.number].judged.values())
        most[worker.group] += most_shown(worker)
        if parts[worker.number].lost:
            lost.add(worker.group)
    few = [group for group, count in shown.items() if group not in lost and count < min(LEAST_JUDGED, most[group])]
    if not few:
        return []
    named = ", ".join(f"{shown[client, kind]} of {kind} on {client}" for client, kind in few)
    reason = f"too few acknowledged operations could have shown a loss: {named}; {LEAST_JUDGED} of each are needed"
    return [Verdict(checker=f"{WORK}, seen {where}", outcome=Outcome.INCONCLUSIVE, reason=reason)]


def most_shown(worker: WorkerSpec) -> int:
    """Return how many operations of a worker can show a loss, but at most `LEAST_JUDGED`."""
    if worker.kind in HOLDERS:
        return 0  # their steps have checks of their own
    most = LEAST_JUDGED if worker.operations is None else min(LEAST_JUDGED, worker.operations)
    # A worker that overwrites its blocks hides the loss of all but the newest generation.
    appends = worker.kind in (*TREES, "o_append", APPLICATION)
    return most if appends else min(most, worker.blocks)
