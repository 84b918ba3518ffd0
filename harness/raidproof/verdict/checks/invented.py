"""The verdict on content, files and names that no client wrote."""

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import ScanResult
from raidproof.verdict.check import LedgerCheck
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.damage import Wrong, wrong
from raidproof.verdict.evidence import CrashStateEvidence, Scan

INVENTED = "nothing invented"
"""Name of the check that clients wrote all content that was found."""


class Invented(LedgerCheck):
    """Clients wrote all content that was found."""

    name = INVENTED
    rank = 40

    def judge_scan(self, scan: Scan, conditions: Conditions) -> list[Verdict]:
        """Return one verdict."""
        return [judge_nothing_invented(scan.result, conditions, scan.place)]

    def wrong(self, evidence: CrashStateEvidence, conditions: Conditions) -> list[Wrong]:
        """Return what no client wrote."""
        what = "content that no client wrote"
        return [wrong(INVENTED, what, line) for scan in evidence.scans for line in scan.balance.invented]


def judge_nothing_invented(evidence: ScanResult, conditions: Conditions, where: str) -> Verdict:
    """Judge that the scan of the ledger found no content, file or name that no client wrote."""
    checker = f"{INVENTED}, seen {where}"
    if not evidence.invented:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="clients wrote all content that was found")
    blame = conditions.blame if conditions.lying_disks else Blame(culprit=Culprit.STACK)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason="; ".join(evidence.invented[:5]), blame=blame)
