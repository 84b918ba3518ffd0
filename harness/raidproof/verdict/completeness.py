"""Verdicts on whether a crash test is complete: every worker reported its end, and no observation is missing."""

from collections.abc import Collection, Iterable
from signal import SIGBUS, Signals

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_writer import APPLICATION
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.contract import Conditions
from raidproof.workload.history import History, WorkerEnd, WorkerSpec

ENDS = "ends of the workers"
"""Name of the check that each worker of the ledger reported its end, and that no signal killed it."""


def judge_ends(
    workers: Iterable[WorkerSpec], history: History, conditions: Conditions, lost_power: Collection[str]
) -> list[Verdict]:
    """Return a verdict for each worker that did not report its end, or that a signal killed.

    ``lost_power``: the machines whose workers cannot report their ends.

    The kernel kills a worker by SIGBUS if a page of a mapped file cannot be read or written: this is the error that a
    client got, and it is judged as one. The rig causes all other deaths.
    """
    verdicts = []
    for worker in workers:
        who = f"{worker.client}: the worker {worker.path}"
        end = history.ends.get(worker.number)
        if end is None and worker.client not in lost_power:
            reason = f"{who} did not report its end: what it did last is not known"
            verdicts.append(Verdict(checker=ENDS, outcome=Outcome.ERROR, reason=reason))
        elif end is not None and end.status < 0 and worker.kind != APPLICATION:
            verdicts.append(judge_death(who, end, conditions))
    return verdicts


def judge_death(who: str, end: WorkerEnd, conditions: Conditions) -> Verdict:
    """Judge the death of a worker by a signal; ``who``: the worker."""
    number = -end.status
    name = Signals(number).name if number in {*Signals} else f"signal {number}"
    reason = f"{who} was killed by {name}"
    if number != SIGBUS:
        return Verdict(checker=ENDS, outcome=Outcome.ERROR, reason=reason)
    reason = f"{reason}: a page of its file could not be read or written"
    begun_ns = conditions.fault_begun_ns
    since = begun_ns is not None and end.at_ns >= begun_ns
    if conditions.allowed_errors or (since and conditions.allowed_by_fault):
        return Verdict(checker=ENDS, outcome=Outcome.PASS, reason=f"{reason}; the fault allows errors of the clients")
    if since and conditions.excused:
        return Verdict(checker=ENDS, outcome=Outcome.PASS, reason=reason, blame=conditions.blame)
    blame = conditions.blame if since else Blame(culprit=Culprit.STACK, detail="the fault had not begun")
    return Verdict(checker=ENDS, outcome=Outcome.FAIL, reason=reason, blame=blame)
