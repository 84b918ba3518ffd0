"""The verdict on the export options in effect just before the fault."""

from collections.abc import Iterable

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import CAUSES, Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence


class Export(Check[CrashTestEvidence]):
    """The requested export options are in effect."""

    name = "export"
    stages = CAUSES
    rank = 140
    explains = True

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the options were read just before the fault."""
        record = evidence.record
        if (applied := record.observed.export) is None:
            return []
        return [judge_export(evidence.server.options(), applied, record.effective["export"]["path"])]


def judge_export(asked: Iterable[str], applied: Iterable[str], path: str) -> Verdict:
    """Judge that the export options in effect just before the fault (``applied``) include the requested ones."""
    checker = "export"
    if gone := sorted(set(asked) - set(applied)):
        found = sorted(set(applied) - set(asked))
        instead = f"; in effect instead: {', '.join(found)}" if found else ""
        reason = f"{path}: export options requested but not in effect: {', '.join(gone)}{instead}"
        blame = Blame(culprit=Culprit.SERVER, detail="its export was changed while clients were active")
        return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    return Verdict(checker=checker, outcome=Outcome.PASS, reason=f"{path}: {', '.join(sorted(asked))}")
