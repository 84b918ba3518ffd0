"""Verdicts on the integrity of the file system, the array and its members after a fault."""

from collections.abc import Collection, Mapping, Sequence

from raidproof.core.blame import Blame, Culprit
from raidproof.record.observation import ArraySeen, MembersSeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.array import Identity, stale
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.contract import Conditions

COPIES = "copies of a mirror"
"""Name of the check for mirror copies that differ: md allows some differences, a scrub does not show which (md(4))."""

Identities = Mapping[str, Identity]
"""The array metadata (md superblock) of each disk, by serial."""


def judge_filesystem(check: FilesystemCheck | None, conditions: Conditions) -> Verdict:
    """Judge the result of the file system's checker, such as `xfs_repair -n` or `e2fsck -fn`; None: it did not run."""
    name = "file system"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="the file system's checker did not run")
    if check.outcome == "clean":
        return Verdict(checker=name, outcome=Outcome.PASS, reason="the file system's checker found no damage")
    reason = f"the file system's checker reports {check.outcome}: {'; '.join(check.reasons[:3])}"
    return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))


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


def fault_of(conditions: Conditions) -> Blame:
    """Return the blame for damage of the array or the file system, which no export option excuses."""
    return conditions.blame if conditions.broken_drives else Blame(culprit=Culprit.STACK)


def judge_members(seen: MembersSeen, conditions: Conditions) -> Verdict:
    """Judge that md assembled the same array, with each member in its slot, and without a stale member."""
    start, before, end = seen.start, seen.before, seen.end
    # The members of a nested array are md devices: their metadata is readable only while these devices are online.
    legs = [name for name in start or {} if name.startswith("/dev/")]
    absent = [*(seen.absent or ()), *legs]
    wrong = [f"{reason} (read before assembly)" for reason in changes(start, before, absent=absent)]
    wrong += [f"{reason} (read at the end)" for reason in changes(start, end, renewed=seen.renewed or ())]
    wrong += taken_in(before or {}, seen.active or ())
    if wrong:
        reason = "; ".join(wrong[:5])
        return Verdict(checker="members", outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    if not start or end is None:
        reason = "the members' metadata was not read both before the fault and at the end"
        return Verdict(checker="members", outcome=Outcome.INCONCLUSIVE, reason=reason)
    reason = "md assembled the same array, with each member in its slot"
    return Verdict(checker="members", outcome=Outcome.PASS, reason=reason)


def changes(
    start: Identities | None,
    later: Identities | None,
    *,
    renewed: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> list[str]:
    """Return descriptions of the forbidden changes of the disks' metadata; none without metadata of both times.

    ``start`` and ``later``: the metadata before the fault and at a later time. ``renewed``: serials of the disks whose
    metadata may be new; ``absent``: names of the disks that may lack metadata.
    """
    if start is None or later is None:
        return []
    owners = {one.device_uuid: serial for serial, one in start.items()}
    wrong: list[str] = []
    for serial, was in start.items():
        now = later.get(serial)
        if now is None:
            wrong += [] if serial in absent else [f"{serial} has lost its md metadata"]
        elif (now.array_uuid, now.created) != (was.array_uuid, was.created):
            wrong.append(f"{serial}: the array was re-created instead of assembled (UUID or creation time differs)")
        elif (owner := owners.get(now.device_uuid, serial)) != serial:
            wrong.append(f"serials swapped: {serial} carries the md metadata of {owner}")
        elif now.device_uuid != was.device_uuid and serial not in renewed:
            wrong.append(f"the md metadata of {serial} was written anew (device UUID differs)")
        elif was.slot is not None and now.slot not in {None, was.slot}:
            # A spare may become a member, and a member may fail; no member may change its slot.
            wrong.append(f"serials swapped: {serial} was {was.role} and is {now.role}")
    return wrong


def taken_in(before: Identities, active: Sequence[str]) -> list[str]:
    """Return descriptions of the active members whose metadata had an old event count before assembly."""
    behind = stale(before)
    return [
        f"md activated the stale member {serial}: its event count was {behind[serial]} behind"
        for serial in active
        if serial in behind
    ]
