"""Whether the array that came back after a fault is the same one, of the same members."""

from collections.abc import Mapping, Sequence
from typing import Any

from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.array import Identity, stale
from raidproof.verdict.contract import Conditions
from raidproof.verdict.integrity import fault_of

Identities = Mapping[str, Identity]
"""What each disk said of the array that it belongs to, by its serial."""


def judge_members(check: Mapping[str, Any], conditions: Conditions) -> Verdict:
    """Judge that the same array came back, each member in its place and none of them an old one.

    ``check`` has what the disks said of themselves: at the ``start``, ``before`` the array was assembled again, and at
    the ``end``; which of them were then ``active``; which may have been ``absent`` when it was assembled; and whose
    metadata was ``renewed`` on purpose between start and end.
    """
    start, before, end = (identities(check.get(when)) for when in ("start", "before", "end"))
    # What the legs of a nested array carry can be read only while they are online.
    legs = [name for name in start or {} if name.startswith("/dev/")]
    absent, renewed = [*check.get("absent", ()), *legs], check.get("renewed", ())
    wrong = [f"{reason}, seen before assembly" for reason in changes(start, before, absent=absent)]
    wrong += [f"{reason}, seen at the end" for reason in changes(start, end, renewed=renewed)]
    wrong += taken_in(before or {}, check.get("active", ()))
    if wrong:
        reason = "; ".join(wrong[:5])
        return Verdict(checker="members", outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
    if not start or end is None:
        return Verdict(checker="members", outcome=Outcome.INCONCLUSIVE, reason="not looked at before and after")
    return Verdict(checker="members", outcome=Outcome.PASS, reason="the same array, each member in its place")


def identities(said: Mapping[str, Any] | None) -> dict[str, Identity] | None:
    """Read back what a record has of one look at the disks."""
    return None if said is None else {serial: Identity.model_validate(one) for serial, one in said.items()}


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
