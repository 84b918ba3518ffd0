"""The verdicts on the protocol at a restart of the server: write verifier, and the data that clients send again."""

from raidproof.record.outcome import Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.verdict.window import combined_by
from raidproof.verdict.wire import judge_restart


class Restart(Check[CrashTestEvidence]):
    """The write verifier changes, and clients send unstable data again."""

    name = "restart of the server"
    rank = 170

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return the conclusive verdicts if the calls were captured."""
        if evidence.exchanges is None:
            return []
        return judge_restart(evidence.exchanges, restarted=combined_by(conditions.windows, None).nfsd_restarted)
