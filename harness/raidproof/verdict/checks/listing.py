"""The verdict on listings of directories: each name once, also if the server restarts in the middle of a listing."""

from collections.abc import Iterable

from raidproof.guest.ledger_format import MANY_NAMES, NAME_MISSING, NAME_TWICE, NAME_UNKNOWN
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check, judge_wrong_steps
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.contract import LEAST_JUDGED
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.workload.history import Ended, Operation

LISTINGS = "listings of directories"
"""Name of the check that a listing of a directory has each of its names once."""
WRONG = {
    NAME_MISSING: "lacked a name that a client had created",
    NAME_TWICE: "had a name twice",
    NAME_UNKNOWN: "had a name that no client had created",
}
"""What is wrong with a listing, by the error of the step."""
LIST = "list names"


class Listings(Check[CrashTestEvidence]):
    """A listing of a directory has each name once."""

    name = LISTINGS
    rank = 81

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the ledger listed directories."""
        return judge_listings(evidence.history.steps, conditions, evidence.fault_at_ns)


def judge_listings(steps: Iterable[Operation], conditions: Conditions, fault_at_ns: int | None) -> list[Verdict]:
    """Return a verdict if the ledger had workers of kind ``listing``; else an empty list.

    ``steps``: the steps of all workers. ``fault_at_ns``: the instant of the fault. Other errors of the calls are
    judged by `errors.judge_errors`, here only the names.
    """
    parts = [step for step in steps if step.kind == LIST]
    if not parts:
        return []
    if wrong := [step for step in parts if step.error in WRONG]:
        first = wrong[0]
        reason = (
            f"{len(wrong):,} listings were wrong; the first one, of {first.generation:,} names, {WRONG[first.error]}"
        )
        return [judge_wrong_steps(LISTINGS, wrong, reason, conditions, fault_at_ns)]
    read = [step for step in parts if step.ended is Ended.OK]
    listings = {(step.worker, step.place) for step in read}
    largest = max((step.generation for step in read), default=0)
    reason = f"{len(listings):,} listings of up to {largest:,} names, in {len(read):,} parts, had each name once"
    many = {(step.worker, step.place) for step in read if step.generation > MANY_NAMES // 2}
    reason = f"{reason}; {f'{len(many):,} of them' if many else 'none'} of a directory of thousands of names"
    if fault_at_ns is not None:
        before = {(step.worker, step.place) for step in read if (step.ended_ns or 0) < fault_at_ns}
        after = {(step.worker, step.place) for step in read if step.earliest_ns >= fault_at_ns}
        reason = f"{reason}; {len(before & after):,} of them began before the fault and continued after it"
    if len(read) < LEAST_JUDGED:
        reason = f"{reason}; at least {LEAST_JUDGED} parts are needed"
        return [Verdict(checker=LISTINGS, outcome=Outcome.INCONCLUSIVE, reason=reason)]
    return [Verdict(checker=LISTINGS, outcome=Outcome.PASS, reason=reason)]
