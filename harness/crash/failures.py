"""From a failure that many states show to the smallest that does: repeated, shrunk, and named."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from harness.crash.belonging import Belongs
from harness.crash.judge import BLOCKS, RECOVERY, Judgement, Missing
from harness.crash.part import pieces_of, whole
from harness.crash.replayer import Replayer
from harness.crash.shortest import shorten
from harness.crash.shrink import Trials, absent
from harness.crash.state import CrashState
from harness.crash.tally import Group, Tally
from harness.errors import RequestError
from harness.log import step
from harness.record.exploration import FailureRecord, MissingRecord, ShrunkRecord
from harness.waiting import Deadline

REPEATS = 2
EXPLAINED = 8
"""Failures that are repeated and shrunk; of the others the first state is told."""
SHRINK_S = 60.0
"""For one failure."""
EVER_S = 1e6
"""Longer than anything here takes."""
LOOKS = 200
"""States that shrinking one failure may look at."""


def explain(
    replayer: Replayer,
    belongs: Belongs,
    replay: Callable[[str], list[str]],
    *,
    until: Deadline | None = None,
) -> Iterator[FailureRecord]:
    """Yield what is known of each failure, the most frequent first.

    ``replay`` gives the command that shows a state of that name. Each failure that is explained has at most
    `SHRINK_S`, and its part of what is left ``until`` then; one is shown again even if nothing is left.

    Raises:
        RigError: the checker failed twice.
    """
    groups = list(replayer.tally.failures())
    # Not in the order of their cuts: to go back costs half a second, and time may run out before the last.
    chosen = diverse(groups)[:EXPLAINED]
    records = {id(group): plain(group, replayer.tally, replay) for group in groups}
    ends = until or Deadline.after(EVER_S)
    for number, group in enumerate(chosen, start=1):
        if ends.passed and any(one.confirmed for one in records.values()):
            break
        step(f"shrinking failure {number} of {len(chosen)}, {SHRINK_S:.0f} s at most: {group.damage}")
        record = records[id(group)]
        while record.repeated < REPEATS and not (record.confirmed and ends.passed):
            record.repeated += 1
            record.confirmed += group.damage in replayer.judge(group.first.state, anew=True).damages
        if record.confirmed and not ends.passed:
            share = ends.remaining_s / (len(chosen) - number + 1)
            shrink_one(record, group, replayer, belongs, replay, Deadline.after(min(SHRINK_S, share)))
    # What is reported must not be of the checker's own making. Last, because each boots a machine.
    for group in chosen:
        if ends.passed:
            break
        step(f"showing a machine that has just booted: {group.damage}")
        replayer.cold(group.first.choice, group.first.state)
    yield from records.values()


def diverse(groups: Sequence[Group]) -> list[Group]:
    """Order failures so that each beginning of them has as many promises as can be."""
    turns = Counter[str]()
    order = []
    for place, group in enumerate(groups):
        order.append((turns[group.damage.promise], place))
        turns[group.damage.promise] += 1
    return [groups[place] for _, place in sorted(order)]


def plain(group: Group, tally: Tally, replay: Callable[[str], list[str]]) -> FailureRecord:
    """Return what is known of a failure without another look."""
    choice, state, judgement = group.first
    return FailureRecord(
        promise=group.damage.promise,
        damage=group.damage.what,
        end=group.damage.end,
        states=group.count,
        examples=group.names,
        state=state.name,
        dump=state.dump(),
        policy=choice.policy.value,
        cut=state.cut,
        at_s=tally.at_s(state.cut),
        reason=judgement.reason,
        blame=judgement.blame,
        said=list(judgement.examples),
        missing=named_missing(group, judgement, tally.recording.instant_ns(state.cut)),
        missing_total=len(judgement.missing),
        acknowledged=judgement.acknowledged,
        replay=replay(state.name),
    )


def shrink_one(
    record: FailureRecord,
    group: Group,
    replayer: Replayer,
    belongs: Belongs,
    replay: Callable[[str], list[str]],
    deadline: Deadline,
) -> None:
    """Find the smallest state that shows a failure, and enter it in its record."""

    def fails(state: CrashState) -> bool:
        return not deadline.passed and group.damage in replayer.judge(state).damages

    trials, first = Trials(fails, LOOKS), group.first.state
    replayer.judge(first)
    every = replayer.roller.window.open
    try:
        smallest = trials.shrink(first)
        fullest = trials.missing(first, every)
    except RequestError:
        return  # it did not show again this time: what was confirmed says how often it does
    judgement, recording = replayer.judge(smallest), replayer.tally.recording
    survivors, lost = pieces_of(recording, smallest), pieces_of(recording, whole(absent(fullest, every), fullest.cut))
    known = belongs(smallest, [piece.at for piece in (*survivors, *lost)])
    record.shrunk = ShrunkRecord(
        state=smallest.name,
        dump=smallest.dump(),
        survivors=[piece.record(recording, known) for piece in survivors],
        not_there=len(absent(smallest, every)),
        tried=trials.checks,
        whole=not (trials.spent or deadline.passed),
        lost=[piece.record(recording, known) for piece in lost],
        lost_state=fullest.name,
        lost_dump=fullest.dump(),
    )
    record.missing = named_missing(group, judgement, recording.instant_ns(smallest.cut)) or record.missing
    record.missing_total = len(judgement.missing)
    record.replay = replay(smallest.name)
    if record.shrunk.whole:
        record.shortest = shorten(trials, group.damage, replayer, smallest, fullest)
        record.replay = replay(record.shortest.state)
        if trials.spent or deadline.passed:
            record.shrunk.whole, record.shortest.not_at = False, None


def named_missing(group: Group, judgement: Judgement, instant_ns: int) -> MissingRecord | None:
    """Return the earliest acknowledged operation that is missing in this failure."""
    mine: list[Missing] = [one for one in judgement.missing if one.damage == group.damage]
    # Of some failures no operation is the evidence, whatever else is missing in the state.
    if not (mine or (judgement.missing and group.damage.promise in {RECOVERY, BLOCKS})):
        return None
    operation, worker, what = (mine or judgement.missing)[0]
    return MissingRecord(
        client=worker.client,
        kind=operation.kind,
        path=worker.path,
        place=operation.place,
        generation=operation.generation,
        acknowledged_before_s=(instant_ns - (operation.ended_ns or instant_ns)) / 1e9,
        instead=what,
    )
