"""The verdict on the NFS calls that clients sent: each promise needs some."""

from raidproof.record.outcome import Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import ON_SERVER, CrashTestEvidence, Stage
from raidproof.verdict.wire import judge_calls


class Calls(Check[CrashTestEvidence]):
    """Clients sent the calls that each acknowledged kind of operation needs."""

    name = "calls on the wire"
    stages = frozenset({Stage.COMPLETE, Stage.BROKEN_OFF})
    rank = 10

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return the verdicts if the calls were counted."""
        scan, calls, record = evidence.scan_at(ON_SERVER), evidence.record.observed.calls, evidence.record
        if scan is None or calls is None:
            return []
        kinds, stable = scan.result.acknowledged, evidence.server.stable_writes
        return judge_calls(kinds, calls, record.asked["mount"], stable_writes=stable)
