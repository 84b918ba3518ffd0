"""The verdict on the array's members: md assembled the same array, with each member in its slot."""

from collections.abc import Mapping, Sequence

from raidproof.record.observation import MembersSeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.array import Identity, stale
from raidproof.verdict.check import CAUSES, Check
from raidproof.verdict.conditions import Conditions, fault_of
from raidproof.verdict.evidence import CrashTestEvidence

Identities = Mapping[str, Identity]
"""The array metadata (md superblock) of each disk, by serial."""


class Members(Check[CrashTestEvidence]):
    """md assembles the same array, with each member in its slot, and without a stale member."""

    name = "members"
    stages = CAUSES
    rank = 130
    explains = True

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the members were observed."""
        seen = evidence.record.observed.members
        return [] if seen is None else [judge_members(seen, conditions)]


def judge_members(seen: MembersSeen, conditions: Conditions) -> Verdict:
    """Judge that md assembled the same array, with each member in its slot, and without a stale member."""
    start, end = seen.start, seen.end
    # The members of a nested array are md devices: their metadata is readable only while these devices are online.
    legs = [name for name in start or {} if name.startswith("/dev/")]
    wrong: list[str] = []
    for number, one in enumerate((*seen.earlier, seen), 1):
        which = f"assembly {number}" if seen.earlier else "assembly"
        changed = changes(start, one.before, absent=[*(one.absent or ()), *legs], renewed=one.replaced)
        wrong += [f"{reason} (read before {which})" for reason in changed]
        wrong += taken_in(one.before or {}, one.active or ())
    wrong += [f"{reason} (read at the end)" for reason in changes(start, end, renewed=seen.renewed or ())]
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
