"""The shortest part of the recorded history that still shows a failure: the power gone earlier."""

from raidproof.crash.judge import Damage
from raidproof.crash.shrink.replayer import Replayer
from raidproof.crash.shrink.shrink import Trials, absent, earliest, lacking, only
from raidproof.crash.states.state import CrashState
from raidproof.record.exploration import ShortestRecord

CUTS = 10
"""Earlier cuts that are tried: to go back to one takes half a second with a log of 10,000 requests."""


def shorten(
    trials: Trials, damage: Damage, replayer: Replayer, smallest: CrashState, fullest: CrashState
) -> ShortestRecord:
    """Find an early cut at which the losses of ``fullest`` show the failure, and the smallest state there.

    None is tried before the word of the earliest operation that is missing in ``fullest``, where there is one. What
    is found fails, and the cut tried before it does not; see `raidproof.crash.shrink.shrink.earliest`.

    Raises:
        RigError: the checker failed twice.
    """
    recording, tally, roller = replayer.tally.recording, replayer.tally, replayer.roller
    missing = [one for one in replayer.judge(fullest).missing if one.damage == damage]
    lost = absent(fullest, roller.window.open)
    word_ns = (missing[0].operation.promised_ns or 0) if missing else None
    # A word binds if it came before the latest instant of a cut, which is 1 ns before the next request's completion.
    first = recording.place(tally.oracle.created_ns if word_ns is None else word_ns + 2)
    between = (cut for cut in recording.cuts if first < cut < fullest.cut)
    cuts = sorted({min(first, fullest.cut), *between, fullest.cut})
    before = trials.checks

    def there(cut: int) -> CrashState:
        roller.go(cut)
        return lacking(lost, fullest, cut, roller.window.open)

    cut, not_at = earliest(cuts, lambda one: trials(there(one)), CUTS)
    state = smallest
    if cut < smallest.cut:
        state = there(cut)
        few = only(smallest, cut, roller.window.open)
        state = few if trials(few) else state
    judgement = replayer.judge(state)
    words = [one.operation.promised_ns for one in judgement.missing if one.damage == damage]
    instant_ns = recording.instant_ns(cut)
    return ShortestRecord(
        state=state.name,
        dump=state.dump(),
        cut=cut,
        of=len(recording.records),
        at_s=tally.at_s(cut),
        earlier=smallest.cut - cut,
        earlier_s=tally.at_s(smallest.cut) - tally.at_s(cut),
        after_word_s=(instant_ns - words[0]) / 1e9 if words and words[0] is not None else None,
        acknowledged=judgement.acknowledged,
        of_acknowledged=sum(1 for _ in tally.oracle.history.acknowledged(recording.end_ns)),
        not_at=not_at,
        tried=trials.checks - before,
    )
