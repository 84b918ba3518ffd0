"""The verdict on the result of the file system's checker."""

from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions, fault_of
from raidproof.verdict.evidence import CrashTestEvidence


class Filesystem(Check[CrashTestEvidence]):
    """The file system's checker finds no damage."""

    name = "file system"
    rank = 100

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return one verdict."""
        return [judge_filesystem(evidence.record.observed.filesystem, conditions)]


def judge_filesystem(check: FilesystemCheck | None, conditions: Conditions) -> Verdict:
    """Judge the result of the file system's checker, such as `xfs_repair -n` or `e2fsck -fn`; None: it did not run."""
    name = "file system"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="the file system's checker did not run")
    if check.outcome == "clean":
        return Verdict(checker=name, outcome=Outcome.PASS, reason="the file system's checker found no damage")
    reason = f"the file system's checker reports {check.outcome}: {'; '.join(check.reasons[:3])}"
    return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
