"""Whether file system and array are whole after a fault."""

from typing import Any

from harness.verdict.contract import Conditions
from harness.verdict.outcome import Outcome, Verdict


def judge_filesystem(check: dict[str, Any] | None, conditions: Conditions) -> Verdict:
    """Judge what `xfs_repair -n` or `e2fsck -fn` found."""
    name = "file system"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="not checked")
    if check["clean"]:
        return Verdict(checker=name, outcome=Outcome.PASS, reason=f"{check['tool']} finds nothing")
    reason = f"{check['tool']}: {'; '.join(check['complaints'][:3])}"
    return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))


def judge_array(check: dict[str, Any] | None, conditions: Conditions) -> Verdict:
    """Judge what a scrub after the resync found; levels without redundancy have nothing to compare."""
    name = "array"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="not checked")
    if check["degraded"]:
        reason = f"{check['degraded']} members missing"
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    mismatches = check["mismatch_cnt"]
    if mismatches is None:
        return Verdict(checker=name, outcome=Outcome.PASS, reason="complete; this level has no redundancy to compare")
    if mismatches:
        reason = f"mismatch_cnt is {mismatches} sectors"
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    return Verdict(checker=name, outcome=Outcome.PASS, reason="complete, mismatch_cnt 0")


def fault_of(conditions: Conditions) -> str:
    """Return whom to blame for damage below the export: no export option excuses that."""
    return conditions.blame if conditions.lying_disks else "the stack"
