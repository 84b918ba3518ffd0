"""The verdict on lost operations whose data the server's kernel had to write back before the cut."""

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import ScanResult
from raidproof.verdict.check import LEDGER, Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.damage import Wrong, wrong
from raidproof.verdict.evidence import CrashStateEvidence, Evidence

OLDER = "older than write-back allows"
"""Name of the check for lost operations whose data the server's kernel had to write back before the cut."""
NOT_EXCUSED = "an async export does not excuse the loss of data whose write-back was due before the fault"


class Age(Check[Evidence]):
    """No lost operation is older than the write-back allows."""

    name = OLDER
    stages = LEDGER
    rank = 55

    def judge(self, evidence: Evidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict for each place that lacks such an operation."""
        fault_ns = evidence.fault_at_ns
        return [
            one
            for scan in evidence.scans
            for one in judge_age(scan.result, conditions, scan.cut_ns or fault_ns, scan.place)
        ]

    def wrong(self, evidence: CrashStateEvidence, conditions: Conditions) -> list[Wrong]:
        """Return the lost operations that are older."""
        what = "an operation is missing although its write-back was due before the cut"
        losses = sorted(
            (loss for scan in evidence.scans for loss in scan.balance.losses),
            key=lambda one: one.operation.promised_ns or 0,
        )
        until_ns = evidence.fault_at_ns
        return [
            wrong(OLDER, what, str(one))
            for one in losses
            if too_old(one.operation.promised_ns or 0, until_ns, conditions)
        ]


def too_old(acknowledged_ns: int, until_ns: int, conditions: Conditions) -> bool:
    """Return whether a loss is not excused by an async export, because write-back was due before ``until_ns``.

    With ``async`` the server replies before the data is on stable storage. But its kernel still writes dirty pages
    back after some time, and the file system still commits its log.
    """
    longest_s = conditions.write_back_s
    return conditions.excused and longest_s is not None and until_ns - acknowledged_ns > longest_s * 1e9


def judge_age(evidence: ScanResult, conditions: Conditions, until_ns: int | None, where: str) -> list[Verdict]:
    """Return a FAIL verdict if a lost operation is older than the write-back limit; else an empty list.

    ``until_ns``: the instant of the fault. The list is also empty if the limit or this instant is not known.
    """
    first_ns = evidence.first_lost_ns
    if until_ns is None or first_ns is None or not too_old(first_ns, until_ns, conditions):
        return []
    age_s = (until_ns - first_ns) / 1e9
    reason = f"an operation that was acknowledged {age_s:,.0f} s before the fault is lost"
    reason = f"{reason}; the server's kernel writes dirty data back within {conditions.write_back_s:,.0f} s"
    blame = Blame(culprit=Culprit.STACK, detail=NOT_EXCUSED)
    return [Verdict(checker=f"{OLDER}, seen {where}", outcome=Outcome.FAIL, reason=reason, blame=blame)]
