"""The verdicts on the ends of the ledger's workers: each reported its end, and no signal killed it."""

from collections.abc import Collection, Sequence
from signal import SIGBUS, Signals

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_format import APPLICATION
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence, silent_clients
from raidproof.verdict.window import combined_by
from raidproof.workload.history import History, WorkerEnd, WorkerSpec

ENDS = "ends of the workers"
"""Name of the check that each worker of the ledger reported its end, and that no signal killed it."""


class Ends(Check[CrashTestEvidence]):
    """Each worker of the ledger reports its end."""

    name = ENDS
    rank = 85

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict for each worker whose end is missing or a death."""
        return judge_ends(evidence.workers, evidence.history, conditions, evidence.record.lost_power)


def judge_ends(
    workers: Sequence[WorkerSpec], history: History, conditions: Conditions, lost_power: Collection[str]
) -> list[Verdict]:
    """Return a verdict for each client with workers that did not report their ends, and each worker that was killed.

    ``lost_power``: the machines whose workers cannot report their ends.

    The kernel kills a worker by SIGBUS if a page of a mapped file cannot be read or written: this is the error that a
    client got, and it is judged as one. The rig causes all other deaths.
    """
    verdicts = []
    for client, silent in silent_clients(workers, history).items():
        if client not in lost_power:
            named = ", ".join(worker.path for worker in silent[:3]) + (" and others" if len(silent) > 3 else "")
            number = "1 worker" if len(silent) == 1 else f"{len(silent)} workers"
            reason = f"{client}: no end was reported of {number}, whose last operations are therefore not known"
            verdicts.append(Verdict(checker=ENDS, outcome=Outcome.ERROR, reason=f"{reason}: {named}"))
    for worker in workers:
        end = history.ends.get(worker.number)
        if end is not None and end.status < 0 and worker.kind != APPLICATION:
            verdicts.append(judge_death(f"{worker.client}: the worker {worker.path}", end, conditions))
    return verdicts


def judge_death(who: str, end: WorkerEnd, conditions: Conditions) -> Verdict:
    """Judge the death of a worker by a signal; ``who``: the worker."""
    number = -end.status
    name = Signals(number).name if number in {*Signals} else f"signal {number}"
    reason = f"{who} was killed by {name}"
    if number != SIGBUS:
        return Verdict(checker=ENDS, outcome=Outcome.ERROR, reason=reason)
    reason = f"{reason}: a page of its file could not be read or written"
    if combined_by(conditions.windows, end.at_ns).errors:
        return Verdict(checker=ENDS, outcome=Outcome.PASS, reason=f"{reason}; the fault allows errors of the clients")
    losing_ns = conditions.losing_ns
    since = losing_ns is not None and end.at_ns >= losing_ns
    if since and conditions.excused:
        return Verdict(checker=ENDS, outcome=Outcome.PASS, reason=reason, blame=conditions.blame)
    begun = any(one.begun_by(end.at_ns) for one in conditions.windows)
    blame = conditions.blame if begun else Blame(culprit=Culprit.STACK, detail="the fault had not begun")
    return Verdict(checker=ENDS, outcome=Outcome.FAIL, reason=reason, blame=blame)
