"""Verdicts on the integrity of the file system, the array and its members after a fault."""

from collections.abc import Collection, Mapping, Sequence

from raidproof.core.blame import Blame, Culprit
from raidproof.record.observation import ArraySeen, MembersSeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.array import Identity, stale
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.contract import Conditions

COPIES = "copies of a mirror"
"""Checker name for differing mirror copies: md allows some of them, and a scrub cannot tell which."""

Identities = Mapping[str, Identity]
"""The array metadata (md superblock) of each disk, by serial."""


def judge_filesystem(check: FilesystemCheck | None, conditions: Conditions) -> Verdict:
    """Judge the result of `xfs_repair -n` or `e2fsck -fn`."""
    name = "file system"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="not checked")
    if check.outcome == "clean":
        return Verdict(checker=name, outcome=Outcome.PASS, reason="its own checker found no damage")
    reason = f"its own checker says {check.outcome}: {'; '.join(check.reasons[:3])}"
    return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))


def judge_array(check: ArraySeen | None, conditions: Conditions, mirrors: Collection[str] = ()) -> Verdict:
    """Judge the result of a scrub after the resync; levels without redundancy have nothing to compare.

    ``mirrors``: the md devices that hold copies and no parity (RAID1, RAID10).
    """
    name = "array"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="not checked")
    if missing := check.degraded:
        reason = f"members missing: {missing}"
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    if unreadable := check.bad_blocks:
        # Neither `degraded` nor `mismatch_cnt` shows these blocks: a check skips what it cannot read.
        words = "; ".join(f"{serial}: {where}" for serial, where in unreadable.items())
        reason = f"md lists bad blocks (first sector, count): {words}"
        # If the fault made the blocks unreadable, md must list them.
        outcome = Outcome.PASS if conditions.unreadable_blocks else Outcome.FAIL
        return Verdict(checker=name, outcome=outcome, reason=reason, blame=fault_of(conditions))
    if differing := {device: count for device, count in check.mismatch_cnt.items() if count}:
        reason = f"mismatch_cnt in sectors: {differing}"
        if left := check.repaired:
            reason += f"; after a repair: {left}"
            if conditions.content_changed and not any(left.values()):
                # The fault made the stripes differ, and the scrub repaired them. After a power cut or a panic the
                # resync corrects all differences before the check begins (`Array.scrub`): these faults are no excuse.
                return Verdict(checker=name, outcome=Outcome.PASS, reason=f"found and repaired: {reason}")
            if set(differing) <= set(mirrors) and not any(left.values()) and not conditions.broken_drives:
                reason = f"{reason}; md allows copies to differ where a page changed under write-back (md(4))"
                return Verdict(checker=COPIES, outcome=Outcome.INCONCLUSIVE, reason=reason)
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    unchecked = "".join(f"; {device} not checked: {why}" for device, why in check.unchecked.items())
    return Verdict(checker=name, outcome=Outcome.PASS, reason=f"complete, mismatch_cnt 0{unchecked}")


def fault_of(conditions: Conditions) -> Blame:
    """Return the blame for damage below the export, which no export option excuses."""
    return conditions.blame if conditions.broken_drives else Blame(culprit=Culprit.STACK)


def judge_members(seen: MembersSeen, conditions: Conditions) -> Verdict:
    """Judge that the same array was assembled, each member in its slot and none of them stale."""
    start, before, end = seen.start, seen.before, seen.end
    # The metadata on the legs of a nested array is readable only while the legs are online.
    legs = [name for name in start or {} if name.startswith("/dev/")]
    absent = [*(seen.absent or ()), *legs]
    wrong = [f"{reason}, seen before assembly" for reason in changes(start, before, absent=absent)]
    wrong += [f"{reason}, seen at the end" for reason in changes(start, end, renewed=seen.renewed or ())]
    wrong += taken_in(before or {}, seen.active or ())
    if wrong:
        reason = "; ".join(wrong[:5])
        return Verdict(checker="members", outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    if not start or end is None:
        return Verdict(checker="members", outcome=Outcome.INCONCLUSIVE, reason="not read both before and after")
    return Verdict(checker="members", outcome=Outcome.PASS, reason="the same array, each member in its slot")


def changes(
    start: Identities | None,
    later: Identities | None,
    *,
    renewed: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> list[str]:
    """Return the forbidden changes of the disks' metadata; empty if the metadata was not read at both times."""
    if start is None or later is None:
        return []
    owners = {one.device_uuid: serial for serial, one in start.items()}
    wrong: list[str] = []
    for serial, was in start.items():
        now = later.get(serial)
        if now is None:
            wrong += [] if serial in absent else [f"{serial} has lost its metadata"]
        elif (now.array_uuid, now.created) != (was.array_uuid, was.created):
            wrong.append(f"{serial}: the array was re-created instead of assembled")
        elif (owner := owners.get(now.device_uuid, serial)) != serial:
            wrong.append(f"serials swapped: {serial} carries the metadata of {owner}")
        elif now.device_uuid != was.device_uuid and serial not in renewed:
            wrong.append(f"the metadata of {serial} was written anew")
        elif was.slot is not None and now.slot not in {None, was.slot}:
            # A spare may become a member, and a member may fail; no member may change its slot.
            wrong.append(f"serials swapped: {serial} was {was.role} and is {now.role}")
    return wrong


def taken_in(before: Identities, active: Sequence[str]) -> list[str]:
    """Return the active members whose metadata had an old event count before assembly."""
    behind = stale(before)
    return [
        f"stale member taken in as current: {serial}, {behind[serial]} events behind"
        for serial in active
        if serial in behind
    ]
