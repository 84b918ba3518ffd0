"""The verdict on delegations: no client opens a file of which another client holds a conflicting delegation."""

from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.delegations import NAME, judge_delegations
from raidproof.verdict.evidence import CrashTestEvidence

TIMES = ("lease_s", "grace_s")
"""The effective times of the server after which it may give away what a silent client holds."""


class DelegationsKept(Check[CrashTestEvidence]):
    """The server recalls a delegation before it lets another client open the file, also across a fault."""

    name = NAME
    rank = 171

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return the verdict if the calls were captured, and clients opened files with conflicting delegations."""
        exported = evidence.record.effective.get("export", {})
        if evidence.exchanges is None or not conditions.delegations or not all(map(exported.get, TIMES)):
            return []
        verdict = judge_delegations(evidence.exchanges, min(exported[time] for time in TIMES))
        # An INCONCLUSIVE verdict is usual: most files of the ledger are used by one client only.
        return [] if verdict.outcome is Outcome.INCONCLUSIVE else [verdict]
