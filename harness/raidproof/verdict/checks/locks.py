"""The verdict on locks: no client gets a lock that another client holds, also across a fault.

A client holds a lock from the reply to its claim until the begin of its last write under the lock that succeeded: a
client whose lock the server has lost gets an error for its next write. It is no harm that a server loses a lock, if
the client knows.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_format import LOCKS, REFUSED
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.contract import LEAST_JUDGED
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.workload.history import Ended, Operation, WorkerSpec

EXCLUSIVE = "locks exclude"
"""Name of the check that no client got a lock that another client held."""


class Locks(Check[CrashTestEvidence]):
    """No client gets a lock that another client holds."""

    name = EXCLUSIVE
    rank = 75

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if two clients claimed the same locks."""
        found = judge_locks(evidence.workers, evidence.history.steps, evidence.fault_at_ns)
        return [excused(one) for one in found] if conditions.local_locks else found


class Held(NamedTuple):
    """The time in which a client certainly held the lock of a range, in ns of CLOCK_MONOTONIC."""

    worker: int
    place: int
    """Number of the range."""
    since_ns: int
    until_ns: int


def judge_locks(workers: Sequence[WorkerSpec], steps: Iterable[Operation], fault_at_ns: int | None) -> list[Verdict]:
    """Return a verdict if two clients claimed the same locks; else an empty list.

    ``steps``: the steps of all workers in the order of their begin. ``fault_at_ns``: the instant of the fault.
    """
    clients = {one.number: one.client for one in workers if one.kind == LOCKS}
    if len({*clients.values()}) < 2:
        return []
    mine = [one for one in steps if one.worker in clients]
    held = held_by(mine)
    claims = [(one, holder) for one in mine if (holder := holder_of(one, held)) is not None]
    for claim, holder in claims:
        if claim.ended is Ended.OK:
            return [_granted_twice(claim, holder, clients)]
    for one in (one for of_range in held.values() for one in of_range):
        if (other := overlapping(one, held)) is not None:
            return [_held_twice(one, other, clients)]
    refused = [holder.since_ns < (fault_at_ns or 0) <= claim.earliest_ns for claim, holder in claims]
    reason = f"{len(refused):,} claims were refused while another client held the lock"
    if fault_at_ns is not None:
        reason = f"{reason}, {sum(refused):,} of them after the fault by a lock that was held before it"
    if len(refused) < LEAST_JUDGED:
        reason = f"{reason}; at least {LEAST_JUDGED} are needed"
        return [Verdict(checker=EXCLUSIVE, outcome=Outcome.INCONCLUSIVE, reason=reason)]
    return [Verdict(checker=EXCLUSIVE, outcome=Outcome.PASS, reason=reason)]


def excused(verdict: Verdict) -> Verdict:
    """Return a verdict on locks under a mount whose locks exclude only processes of the same client."""
    reason = f"the options of the mounts make locks local, so that they exclude no other client: {verdict.reason}"
    return Verdict(checker=verdict.checker, outcome=Outcome.PASS, reason=reason)


def held_by(steps: Iterable[Operation]) -> dict[int, list[Held]]:
    """Return when clients certainly held the lock of each range; ``steps``: of workers of kind ``locks``."""
    found: dict[int, list[Held]] = defaultdict(list)
    begun: dict[tuple[int, int], int] = {}
    until: dict[tuple[int, int], int] = {}

    def end(key: tuple[int, int]) -> None:
        since_ns, until_ns = begun.pop(key, None), until.pop(key, None)
        if since_ns is not None and until_ns is not None and since_ns < until_ns:
            found[key[1]].append(Held(*key, since_ns, until_ns))

    for step in steps:
        key = step.worker, step.place
        if step.kind == "claim" and step.ended is Ended.OK and step.ended_ns is not None:
            begun[key] = step.ended_ns
        elif step.kind == "guarded write" and step.ended is Ended.OK and key in begun:
            until[key] = step.earliest_ns
        elif step.kind in {"guarded write", "release"}:
            end(key)
    for key in [*begun]:
        end(key)
    return found


def holder_of(step: Operation, held: Mapping[int, Sequence[Held]]) -> Held | None:
    """Return who held the lock during the whole of a claim that was granted or refused; None for other steps.

    None also if it is not certain that another client held the lock. ``held``: as `held_by` returns it.
    """
    ended_ns = step.ended_ns
    if step.kind != "claim" or ended_ns is None or (step.error and step.error not in REFUSED):
        return None
    others = (one for one in held.get(step.place, ()) if one.worker != step.worker)
    return next((one for one in others if one.since_ns <= step.earliest_ns and ended_ns <= one.until_ns), None)


def overlapping(one: Held, held: Mapping[int, Sequence[Held]]) -> Held | None:
    """Return when another client held the same lock at the same time; None if it certainly did not."""
    others = (other for other in held[one.place] if other.worker != one.worker)
    return next((other for other in others if one.since_ns <= other.since_ns < one.until_ns), None)


def _granted_twice(claim: Operation, holder: Held, clients: dict[int, str]) -> Verdict:
    reason = (
        f"{clients[claim.worker]} got the lock of range {claim.place} while {clients[holder.worker]} held it: "
        f"{clients[holder.worker]} wrote under this lock {(holder.until_ns - (claim.ended_ns or 0)) / 1e9:.3f} s later"
    )
    return _failed(reason)


def _held_twice(one: Held, other: Held, clients: dict[int, str]) -> Verdict:
    both_s = (min(one.until_ns, other.until_ns) - other.since_ns) / 1e9
    return _failed(f"{clients[one.worker]} and {clients[other.worker]} held the same lock for {both_s:.3f} s")


def _failed(reason: str) -> Verdict:
    blame = Blame(culprit=Culprit.STACK, detail="the server granted a lock twice, and no client got an error")
    return Verdict(checker=EXCLUSIVE, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
