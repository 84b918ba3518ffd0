"""Whether file system and array are whole after a fault."""

from collections.abc import Collection
from typing import Any

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.contract import Conditions

UNREADABLE = frozenset({"latent-sector-during-rebuild", "second-member-fails"})
"""Faults that md answers with a list of blocks which it cannot read: a drive gave errors that a rebuild met."""
ROTTEN = frozenset({"silent-corruption", "corrupted-at-rest"})
"""Faults that leave stripes which differ and that no resync knows of.

A power cut or a panic is none. Copies and parity may differ after it, but that is what the resync is for, which has
ended when the check begins (`Array.scrub`); nor is the write hole, which spoils what a rebuild then makes consistent.
"""

COPIES = "copies of a mirror"
"""The class of differences that md allows, and that nothing in a scrub tells from those that it does not."""


def judge_filesystem(check: dict[str, Any] | None, conditions: Conditions) -> Verdict:
    """Judge what `xfs_repair -n` or `e2fsck -fn` found."""
    name = "file system"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="not checked")
    if check["outcome"] == "clean":
        return Verdict(checker=name, outcome=Outcome.PASS, reason="its own checker finds nothing")
    reason = f"its own checker says {check['outcome']}: {'; '.join(check['reasons'][:3])}"
    return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))


def judge_array(check: dict[str, Any] | None, conditions: Conditions, mirrors: Collection[str] = ()) -> Verdict:
    """Judge what a scrub after the resync found; levels without redundancy have nothing to compare.

    ``mirrors``: the devices of which each holds copies, and no parity.
    """
    name = "array"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="not checked")
    if missing := check["degraded"]:
        reason = f"members missing: {missing}"
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    if unreadable := check.get("bad_blocks"):
        # Neither degraded nor mismatch_cnt tells of them: a check leaves out what cannot be read.
        words = "; ".join(f"{serial}: {where}" for serial, where in unreadable.items())
        reason = f"md knows of blocks that it cannot read (first sector, count): {words}"
        # They were made unreadable on purpose: that md knows of them is then what it owes.
        outcome = Outcome.PASS if conditions.faults & UNREADABLE else Outcome.FAIL
        return Verdict(checker=name, outcome=outcome, reason=reason, blame=fault_of(conditions))
    counted: dict[str, int] = check["mismatch_cnt"]
    if differing := {device: count for device, count in counted.items() if count}:
        reason = f"mismatch_cnt in sectors: {differing}"
        if left := check.get("repaired"):
            reason += f"; after a repair: {left}"
            if conditions.faults & ROTTEN and not any(left.values()):
                # It was made to differ, so that this is what a scrub is for.
                return Verdict(checker=name, outcome=Outcome.PASS, reason=f"found and repaired: {reason}")
            if set(differing) <= set(mirrors) and not any(left.values()) and not conditions.broken_drives:
                reason = f"{reason}; md allows copies to differ where a page changed under write-back (md(4))"
                return Verdict(checker=COPIES, outcome=Outcome.INCONCLUSIVE, reason=reason)
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    unchecked = "".join(f"; {device} not checked: {why}" for device, why in check["unchecked"].items())
    return Verdict(checker=name, outcome=Outcome.PASS, reason=f"complete, mismatch_cnt 0{unchecked}")


def fault_of(conditions: Conditions) -> Blame:
    """Return whom to blame for damage below the export: no export option excuses that."""
    return conditions.blame if conditions.broken_drives else Blame(culprit=Culprit.STACK)
