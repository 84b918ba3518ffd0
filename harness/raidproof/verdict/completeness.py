"""Verdicts on whether a crash test is complete: ends of workers, enough operations, and no missing observation."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from signal import SIGBUS, Signals

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_format import APPLICATION, HOLDERS, TREES
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.balance import Balance
from raidproof.verdict.contract import LEAST_JUDGED, Conditions
from raidproof.workload.history import History, WorkerEnd, WorkerSpec

ENDS = "ends of the workers"
"""Name of the check that each worker of the ledger reported its end, and that no signal killed it."""
WORK = "work of each client"
"""Name of the check that enough operations of each kind of worker on each client could have shown a loss."""
OBSERVATIONS = "observations"
"""Name of the check that the record lacks no observation."""
SERVER = "server"
"""Name of the server in a record."""


def silent_clients(workers: Iterable[WorkerSpec], history: History) -> dict[str, list[WorkerSpec]]:
    """Return the workers that did not report their ends, by client: these clients may have done more than reported."""
    silent: dict[str, list[WorkerSpec]] = {}
    for worker in workers:
        if worker.number not in history.ends:
            silent.setdefault(worker.client, []).append(worker)
    return silent


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
    begun_ns = conditions.fault_begun_ns
    since = begun_ns is not None and end.at_ns >= begun_ns
    if conditions.allowed_errors or (since and conditions.allowed_by_fault):
        return Verdict(checker=ENDS, outcome=Outcome.PASS, reason=f"{reason}; the fault allows errors of the clients")
    if since and conditions.excused:
        return Verdict(checker=ENDS, outcome=Outcome.PASS, reason=reason, blame=conditions.blame)
    blame = conditions.blame if since else Blame(culprit=Culprit.STACK, detail="the fault had not begun")
    return Verdict(checker=ENDS, outcome=Outcome.FAIL, reason=reason, blame=blame)


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


def judge_observations(cycle: CrashTestRecord, run: Path) -> list[Verdict]:
    """Return an INCONCLUSIVE verdict if the record lacks an observation that every crash test makes.

    These are the scan through a client, the kernel messages of each machine, and at least one message of the server,
    whose kernel reports the creation of the array and of the file system. ``run``: the run's directory.
    """
    logs = cycle.files.consoles
    machines = {SERVER, *cycle.effective.get("mounts", {}), *(worker["client"] for worker in cycle.workers)}
    missing = ["the scan of the ledger through a client"] if cycle.files.on_client is None else []
    missing += [f"the kernel messages of {name}" for name in sorted(machines - {*logs})]
    if SERVER in logs and not (run / logs[SERVER]).read_bytes().strip():
        missing.append(f"a kernel message of {SERVER}, whose log is empty")
    if not missing:
        return []
    reason = f"the record lacks {', '.join(missing)}"
    return [Verdict(checker=OBSERVATIONS, outcome=Outcome.INCONCLUSIVE, reason=reason)]


def undated(cycle: CrashTestRecord) -> str:
    """Return a clause for the reason of a crash test if a capture dated none of the acknowledgements; else empty.

    This is no failure: the times of the clients' reports are later, so that fewer operations count as acknowledged.
    """
    replies = cycle.observed.replies
    if replies is None or not replies.none_dated:
        return ""
    return f"; the capture of the server's replies dated none of {replies.of:,} operations"
