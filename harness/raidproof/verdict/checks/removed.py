"""The verdict on open files whose last name was removed: they keep their content, also across a fault."""

from collections.abc import Iterable
from errno import EBADMSG

from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check, judge_wrong_steps
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.contract import LEAST_JUDGED
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.workload.history import Ended, Operation

OPEN = "removed files that are open"
"""Name of the check that a file without a name keeps its content while a client has it open."""


class Removed(Check[CrashTestEvidence]):
    """A file without a name keeps its content while a client has it open."""

    name = OPEN
    rank = 80

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the ledger had such files."""
        return judge_removed(evidence.history.steps, conditions, evidence.fault_at_ns)


def judge_removed(steps: Iterable[Operation], conditions: Conditions, fault_at_ns: int | None) -> list[Verdict]:
    """Return a verdict if the ledger had workers of kind ``removed``; else an empty list.

    ``steps``: the steps of all workers. ``fault_at_ns``: the instant of the fault. Errors of the clients' calls are
    judged by `errors.judge_errors`, here only the content.
    """
    opened: dict[tuple[int, int], int] = {}
    uses, across = 0, 0
    wrong: list[Operation] = []
    seen = False
    for step in steps:
        key = step.worker, step.place
        if step.kind == "open and remove" and step.ended is Ended.OK:
            opened[key] = step.ended_ns or 0
        elif step.kind == "use removed":
            seen = True
            uses += step.ended is Ended.OK
            across += step.ended is Ended.OK and opened.get(key, 0) < (fault_at_ns or 0) <= step.earliest_ns
            wrong += [step] if step.error == EBADMSG else []
    if not seen:
        return []
    if wrong:
        reason = f"{len(wrong):,} reads of open files without a name had other content than was written"
        return [judge_wrong_steps(OPEN, wrong, reason, conditions, fault_at_ns)]
    reason = f"{uses:,} reads had the content that was written"
    if fault_at_ns is not None:
        reason = f"{reason}, {across:,} of them after the fault from files that were opened before it"
    if uses < LEAST_JUDGED:
        reason = f"{reason}; at least {LEAST_JUDGED} are needed"
        return [Verdict(checker=OPEN, outcome=Outcome.INCONCLUSIVE, reason=reason)]
    return [Verdict(checker=OPEN, outcome=Outcome.PASS, reason=reason)]
