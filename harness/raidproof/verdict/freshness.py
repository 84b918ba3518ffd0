"""The verdict on what a client reads of a file that another client rewrites: close-to-open consistency (nfs(5)).

A reader that opens the file must see each version that the writer had closed before, or, if the options of its mount
permit old data for a time, each version that was closed that time before.
"""

from collections.abc import Sequence
from typing import NamedTuple

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.mount import MountEffects
from raidproof.verdict.contract import LEAST_JUDGED

FRESHNESS = "close to open"
"""Name of the check that a client that opens a file reads what another client has written and closed."""


class Version(NamedTuple):
    """One version of the file. Instants are in ns of one clock."""

    number: int
    begun_ns: int
    """The instant before the writer opened the file."""
    closed_ns: int
    """The instant after the writer's close had returned."""


class Seen(NamedTuple):
    """What a reader read after it had opened the file."""

    number: int
    """Number of the version."""
    begun_ns: int
    """The instant before the open."""
    ended_ns: int
    """The instant after the read."""


def judge_freshness(versions: Sequence[Version], reads: Sequence[Seen], effects: MountEffects) -> Verdict:
    """Judge that each read shows a version that is recent enough; ``effects``: those of the reader's mount.

    ``versions``: in the order in which they were written, the first of which was there before all reads.
    """
    permitted_ns = int(effects.old_data_s * 1e9)
    least = sum(latest_closed(versions, one.begun_ns) > versions[0].number for one in reads)
    old = [one for one in reads if one.number < latest_closed(versions, one.begun_ns)]
    for one in reads:
        if one.number > max(version.number for version in versions if version.begun_ns <= one.ended_ns):
            return _failed(f"a read returned version {one.number} before it was written")
    for one in old:
        if one.number < (wanted := latest_closed(versions, one.begun_ns - permitted_ns)):
            closed_ns = next(version.closed_ns for version in versions if version.number == wanted)
            age_s = (one.begun_ns - closed_ns) / 1e9
            reason = f"a client opened the file {age_s:.3f} s after version {wanted} was closed, and read {one.number}"
            limit = f"; its mount permits old data for {effects.old_data_s:g} s" if permitted_ns else ""
            return _failed(f"{reason}{limit}")
    if least < LEAST_JUDGED:
        reason = f"{least:,} reads followed the close of a new version; at least {LEAST_JUDGED} are needed"
        return Verdict(checker=FRESHNESS, outcome=Outcome.INCONCLUSIVE, reason=reason)
    reason = f"{least:,} reads followed the close of a new version"
    if old:
        reason += f"; {len(old):,} returned an older one, which the mount permits for {effects.old_data_s:g} s"
    return Verdict(checker=FRESHNESS, outcome=Outcome.PASS, reason=reason)


def latest_closed(versions: Sequence[Version], instant_ns: int) -> int:
    """Return the number of the newest version that was closed before an instant; of the first one if none was."""
    return max((one.number for one in versions if one.closed_ns <= instant_ns), default=versions[0].number)


def _failed(reason: str) -> Verdict:
    blame = Blame(culprit=Culprit.CLIENT, detail="its cache is older than the options of its mount permit")
    return Verdict(checker=FRESHNESS, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
