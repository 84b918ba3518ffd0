"""The verdict on a scrub of the array, and on md's lists of missing members and bad blocks."""

from collections.abc import Collection, Mapping

from raidproof.record.observation import ArraySeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord
from raidproof.storage.array.level import level_names
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions, fault_of
from raidproof.verdict.evidence import CrashTestEvidence

COPIES = "copies of a mirror"
"""Name of the check for mirror copies that differ: md allows some differences, a scrub does not show which (md(4))."""


class Array(Check[CrashTestEvidence]):
    """No member is missing, and copies and parity agree with the data."""

    name = "array"
    rank = 110

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return one verdict."""
        return [judge_array(evidence.record.observed.array, conditions, mirrors_of(evidence.record))]


def mirrors_of(cycle: CrashTestRecord) -> list[str]:
    """Return the md devices of a crash test that hold copies and no parity (RAID1, RAID10), without checksums."""
    devices = cycle.effective.get("array", {}).get("devices", ())
    copied = level_names(lambda kind: kind.redundant and not kind.parity)
    return [one["device"] for one in devices if one["level"] in copied and not one.get("checksummed")]


def judge_array(check: ArraySeen | None, conditions: Conditions, mirrors: Collection[str] = ()) -> Verdict:
    """Judge the result of a scrub after the resync, and md's lists of missing members and bad blocks.

    ``check``: None if no scrub ran. ``mirrors``: the md devices that hold copies and no parity (RAID1, RAID10).
    """
    name = "array"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="the array was not scrubbed")
    if missing := check.degraded:
        reason = f"members are missing: {', '.join(f'{count} of {device}' for device, count in missing.items())}"
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    if unreadable := check.bad_blocks:
        # Neither `degraded` nor `mismatch_cnt` shows these blocks: a check skips the sectors that it cannot read.
        words = "; ".join(f"{serial}: {where}" for serial, where in unreadable.items())
        reason = f"md lists bad blocks (member: first sector, number of sectors): {words}"
        # If the fault made the blocks unreadable, md must list them.
        outcome = Outcome.PASS if conditions.unreadable_blocks else Outcome.FAIL
        return Verdict(checker=name, outcome=outcome, reason=reason, blame=fault_of(conditions))
    if differing := {device: count for device, count in check.mismatch_cnt.items() if count}:
        reason = f"mismatch_cnt is {in_sectors(differing)}"
        if left := check.repaired:
            reason += f"; after a repair: {in_sectors(left)}"
            if conditions.content_changed and not any(left.values()):
                # The fault made the stripes inconsistent, and the scrub repaired them. A power cut or a panic is no
                # excuse: after it the resync corrects all differences before the scrub begins (`Array.scrub`).
                reason = f"the scrub found and repaired the inconsistent stripes: {reason}"
                return Verdict(checker=name, outcome=Outcome.PASS, reason=reason)
            if check.never_written:
                # No write of these rows was in progress when the recording ended: md has left one out.
                reason += f"; a copy or the parity was never written: {'; '.join(check.never_written)}"
                return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
            if set(differing) <= set(mirrors) and not any(left.values()) and not conditions.broken_drives:
                reason = f"{reason}; md allows copies to differ if a page changes while md writes it (md(4))"
                return Verdict(checker=COPIES, outcome=Outcome.INCONCLUSIVE, reason=reason)
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    unchecked = "".join(f"; {device} was not scrubbed: {why}" for device, why in check.unchecked.items())
    return Verdict(checker=name, outcome=Outcome.PASS, reason=f"no member is missing, mismatch_cnt is 0{unchecked}")


def in_sectors(counts: Mapping[str, int]) -> str:
    """Return the values of mismatch_cnt as text, by md device."""
    return ", ".join(f"{count:,} sectors on {device}" for device, count in counts.items())
