"""Whether file system, array and its members are whole after a fault."""

from collections.abc import Collection, Mapping, Sequence

from raidproof.core.blame import Blame, Culprit
from raidproof.record.observation import ArraySeen, MembersSeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.array import Identity, stale
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.contract import Conditions

COPIES = "copies of a mirror"
"""The class of differences that md allows, and that nothing in a scrub tells from those that it does not."""

Identities = Mapping[str, Identity]
"""What each disk said of the array that it belongs to, by its serial."""


def judge_filesystem(check: FilesystemCheck | None, conditions: Conditions) -> Verdict:
    """Judge what `xfs_repair -n` or `e2fsck -fn` found."""
    name = "file system"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="not checked")
    if check.outcome == "clean":
        return Verdict(checker=name, outcome=Outcome.PASS, reason="its own checker finds nothing")
    reason = f"its own checker says {check.outcome}: {'; '.join(check.reasons[:3])}"
    return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))


def judge_array(check: ArraySeen | None, conditions: Conditions, mirrors: Collection[str] = ()) -> Verdict:
    """Judge what a scrub after the resync found; levels without redundancy have nothing to compare.

    ``mirrors``: the devices of which each holds copies, and no parity.
    """
    name = "array"
    if check is None:
        return Verdict(checker=name, outcome=Outcome.INCONCLUSIVE, reason="not checked")
    if missing := check.degraded:
        reason = f"members missing: {missing}"
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    if unreadable := check.bad_blocks:
        # Neither degraded nor mismatch_cnt tells of them: a check leaves out what cannot be read.
        words = "; ".join(f"{serial}: {where}" for serial, where in unreadable.items())
        reason = f"md knows of blocks that it cannot read (first sector, count): {words}"
        # They were made unreadable on purpose: that md knows of them is then what it owes.
        outcome = Outcome.PASS if conditions.unreadable_blocks else Outcome.FAIL
        return Verdict(checker=name, outcome=outcome, reason=reason, blame=fault_of(conditions))
    if differing := {device: count for device, count in check.mismatch_cnt.items() if count}:
        reason = f"mismatch_cnt in sectors: {differing}"
        if left := check.repaired:
            reason += f"; after a repair: {left}"
            if conditions.content_changed and not any(left.values()):
                # It was made to differ, so that this is what a scrub is for. A power cut or a panic is no excuse: what
                # differs after it the resync puts right, which has ended when the check begins (`Array.scrub`).
                return Verdict(checker=name, outcome=Outcome.PASS, reason=f"found and repaired: {reason}")
            if set(differing) <= set(mirrors) and not any(left.values()) and not conditions.broken_drives:
                reason = f"{reason}; md allows copies to differ where a page changed under write-back (md(4))"
                return Verdict(checker=COPIES, outcome=Outcome.INCONCLUSIVE, reason=reason)
        return Verdict(checker=name, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    unchecked = "".join(f"; {device} not checked: {why}" for device, why in check.unchecked.items())
    return Verdict(checker=name, outcome=Outcome.PASS, reason=f"complete, mismatch_cnt 0{unchecked}")


def fault_of(conditions: Conditions) -> Blame:
    """Return whom to blame for damage below the export: no export option excuses that."""
    return conditions.blame if conditions.broken_drives else Blame(culprit=Culprit.STACK)


def judge_members(seen: MembersSeen, conditions: Conditions) -> Verdict:
    """Judge that the same array came back, each member in its place and none of them an old one."""
    start, before, end = seen.start, seen.before, seen.end
    # What the legs of a nested array carry can be read only while they are online.
    legs = [name for name in start or {} if name.startswith("/dev/")]
    absent = [*(seen.absent or ()), *legs]
    wrong = [f"{reason}, seen before assembly" for reason in changes(start, before, absent=absent)]
    wrong += [f"{reason}, seen at the end" for reason in changes(start, end, renewed=seen.renewed or ())]
    wrong += taken_in(before or {}, seen.active or ())
    if wrong:
        reason = "; ".join(wrong[:5])
        return Verdict(checker="members", outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    if not start or end is None:
        return Verdict(checker="members", outcome=Outcome.INCONCLUSIVE, reason="not looked at before and after")
    return Verdict(checker="members", outcome=Outcome.PASS, reason="the same array, each member in its place")


def changes(
    start: Identities | None,
    later: Identities | None,
    *,
    renewed: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> list[str]:
    """Say in what the metadata of disks differs from what it was, where it must not; nothing if nobody looked."""
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
            # A spare may become a member, and a member fall out; none takes the place of another.
            wrong.append(f"serials swapped: {serial} was {was.role} and is {now.role}")
    return wrong


def taken_in(before: Identities, active: Sequence[str]) -> list[str]:
    """Say which members were taken as current although their metadata, read before, lagged behind."""
    behind = stale(before)
    return [
        f"stale member taken in as current: {serial}, {behind[serial]} events behind"
        for serial in active
        if serial in behind
    ]
