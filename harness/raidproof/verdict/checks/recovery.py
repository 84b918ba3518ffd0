"""The verdict on the recovery: array and file system come up after the fault."""

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.checks.kernel_log import wreck_of
from raidproof.verdict.conditions import Conditions, fault_of
from raidproof.verdict.crash_states import RECOVERY
from raidproof.verdict.evidence import CrashTestEvidence, Stage


class Recovery(Check[CrashTestEvidence]):
    """Array and file system come up after the fault, which no export option excuses."""

    name = RECOVERY
    stages = frozenset({Stage.NOT_RECOVERED})
    rank = 0

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return the verdict on what did not recover.

        The blame on a failed kernel takes precedence, because no defect of a disk may make a kernel fail. A fault
        whose injection did not end, because the server's software did not do its part, explains nothing.
        """
        record = evidence.record
        wreck, what = wreck_of(evidence), record.not_recovered or ""
        unfinished = record.effects.explanation is not None and record.fault_proof is None
        blame = Blame(culprit=Culprit.STACK) if unfinished else fault_of(conditions)
        blame = blame if wreck is None or wreck.blame is None else wreck.blame
        return [Verdict(checker=RECOVERY, outcome=Outcome.FAIL, reason=what, blame=blame)]
