"""What the member disks themselves tell: whether flushes reached them, and what their drives did wrong."""

from collections.abc import Mapping
from typing import Any

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.disk.flaw import FlawKind
from raidproof.guest.ledger_writer import KINDS, METADATA
from raidproof.record.outcome import Outcome, Verdict

Disks = Mapping[str, Mapping[str, Any]]
"""The engine's counters, by serial."""
SYNCED = frozenset(KINDS) - {*METADATA} | {"append"}
"""Kinds of operation of which each needs a flush of every member that was written to."""
LEAST_SYNCS = 10
"""Acknowledged ones without which nothing can be said: the first of them may still be under way on some members."""
LOGGED = ("journal", "ppl")
"""Policies under which md itself decides when which member is flushed."""
SPOILS = {FlawKind.MISDIRECTED.value: "put elsewhere", FlawKind.LOST_WRITES.value: "never done"}


def judge_flushes(start: Disks, end: Disks, synced: int) -> Verdict:
    """Judge that something between the file system and the disks has not swallowed all flushes of a member.

    One is enough to pass: how many a member needs depends on what lies where, and nothing here tells.

    ``start`` and ``end``: counters when the clients began, and when the power went or their work ended; ``synced``:
    how many operations of the kinds `SYNCED` were acknowledged in between.
    """
    checker = "flushes reach the disks"
    grown = {serial: flushes_of(now) - flushes_of(start.get(serial, {})) for serial, now in end.items()}
    written = {serial: now.get("writes", 0) - start.get(serial, {}).get("writes", 0) for serial, now in end.items()}
    if not any(written.values()):
        return Verdict(
            checker=checker, outcome=Outcome.PASS, reason="nothing was written to a disk whose flushes count"
        )
    if synced < LEAST_SYNCS:
        reason = f"{synced} operations were acknowledged as synced: too few to tell"
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason=reason, of_the_stack=True)
    if never := sorted(serial for serial, count in written.items() if count and not grown[serial]):
        said = ", ".join(f"{serial} ({written[serial]:,} writes)" for serial in never)
        reason = f"{synced:,} operations were acknowledged as synced, and no flush reached {said}"
        detail = f"what is above {', '.join(never)} sends no flushes down"
        blame = Blame(culprit=Culprit.STACK, cause=Cause.NO_FLUSHES_SENT, members=tuple(never), detail=detail)
        return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    reason = f"{sum(grown.values()):,} flushes and forced writes for {synced:,} acknowledged operations"
    return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason)


def flushes_of(counters: Mapping[str, Any]) -> int:
    """Return how often a disk was asked to make something durable."""
    return int(counters.get("flushes", 0)) + int(counters.get("fua", 0))


def spoilt_by(disks: Disks) -> Blame | None:
    """Say which drives have put writes elsewhere, or lost them, as the engine counted; None if none has."""
    said, members = [], []
    for serial, counters in disks.items():
        for struck in counters.get("struck") or ():
            # An enum's member, or its value where the record was read back.
            kind = getattr(struck["kind"], "value", struck["kind"])
            if kind in SPOILS and struck["times"]:
                members.append(serial)
                said.append(f"{struck['times']:,} writes to {serial} were {SPOILS[kind]}")
    if not said:
        return None
    return Blame(culprit=Culprit.DISKS, cause=Cause.MISPLACED_WRITES, members=tuple(members), detail="; ".join(said))
