"""The verdicts on the durability promises of the operations that clients executed."""

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_format import APPLICATION, METADATA
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import ScanResult
from raidproof.verdict.check import LedgerCheck
from raidproof.verdict.conditions import Conditions, blame_with_application
from raidproof.verdict.contract import LEAST_JUDGED, PROMISES
from raidproof.verdict.evidence import Scan

NAMES = frozenset(METADATA) - {
    "append", "copy", "allocate", "punch", "clone", "shrink", "grow", "fragments", "zero_range",
}  # fmt: skip
"""Kinds of operation that change names and attributes, and no data."""


class Promises(LedgerCheck):
    """When an operation returns, its effect is durable."""

    name = "promises"
    rank = 20

    def judge_scan(self, scan: Scan, conditions: Conditions) -> list[Verdict]:
        """Return the verdicts on each kind of operation."""
        return judge_promises(scan.result, conditions, scan.place)


def judge_promises(evidence: ScanResult, conditions: Conditions, where: str) -> list[Verdict]:
    """Judge the promise of each kind of operation by the evidence from one place of observation.

    ``where``: the place of observation as text for the name of the check: ``on the server`` or ``on the client``.
    """
    verdicts = []
    for kind, promise in PROMISES.items():
        if (acknowledged := evidence.acknowledged.get(kind)) is None:
            continue
        checker = f"{promise}, seen {where}"
        judged = evidence.judged.get(kind, acknowledged)
        verdict = judge_promise(checker, acknowledged, judged, evidence.lost.get(kind, 0), conditions)
        if verdict.outcome is Outcome.FAIL and kind == "close" and conditions.delegations:
            reason = (
                f"{verdict.reason}; close promises nothing under a write delegation, and clients may have held one"
            )
            verdict = verdict.model_copy(update={"outcome": Outcome.INCONCLUSIVE, "reason": reason})
        if kind == "close" and evidence.across_restart:
            more = f"{evidence.across_restart} other close calls were in progress at the server's restart: not judged"
            verdict = verdict.model_copy(update={"reason": f"{verdict.reason}; {more} (docs/findings.md)"})
        if kind == APPLICATION and verdict.outcome is Outcome.FAIL:
            verdict = verdict.model_copy(update={"blame": blame_with_application(conditions)})
        if kind in NAMES and conditions.names_caveat and verdict.blame and verdict.blame.culprit is Culprit.STACK:
            settings = Blame(culprit=Culprit.FILESYSTEM_SETTINGS, detail=conditions.names_caveat)
            verdict = verdict.model_copy(update={"blame": settings})
        verdicts.append(verdict.model_copy(update={"kind": kind}))
    if evidence.lost_after_recovery:
        reason = f"{evidence.lost_after_recovery:,} operations that began after recovery are missing"
        blame = Blame(culprit=Culprit.STACK, detail="no fault followed these operations")
        verdicts.append(
            Verdict(
                checker=f"after recovery, seen {where}",
                outcome=Outcome.FAIL,
                reason=reason,
                of_the_stack=True,
                blame=blame,
            )
        )
    return verdicts


def judge_promise(checker: str, acknowledged: int, judged: int, lost: int, conditions: Conditions) -> Verdict:
    """Judge the promise of one kind of operation by the numbers of ``acknowledged`` and missing (``lost``) operations.

    ``judged``: number of acknowledged operations whose loss could have been seen; fewer than `LEAST_JUDGED` prove
    nothing.
    """
    if not acknowledged:
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason="no operation was acknowledged")
    if not lost and judged < LEAST_JUDGED:
        reason = (
            f"no loss was seen, but only {judged} of {acknowledged:,} acknowledged operations could have shown one; "
            f"at least {LEAST_JUDGED} are needed"
        )
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason=reason)
    if not lost:
        reason = f"all {acknowledged:,} acknowledged operations survived; {judged:,} could have shown a loss"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason)
    reason = f"{lost:,} of {acknowledged:,} acknowledged operations are missing"
    if conditions.excused:
        # RFC 8881, 18.32: a reply before stable storage breaks the protocol, but exports(5) async requests it.
        reason = f"measured loss: {reason}"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason, blame=conditions.blame)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=conditions.blame)
