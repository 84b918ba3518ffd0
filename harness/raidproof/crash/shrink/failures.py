"""From a failure that many states show to the smallest that does: repeated, shrunk, and named."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from raidproof.core.errors import RequestError
from raidproof.core.log import step
from raidproof.core.waiting import Deadline
from raidproof.crash.judge import BLOCKS, RECOVERY, Damage, Judgement, Missing
from raidproof.crash.shrink.replayer import Replayer
from raidproof.crash.shrink.shortest import shorten
from raidproof.crash.shrink.shrink import Trials, absent
from raidproof.crash.states.part import pieces_of, whole
from raidproof.crash.states.state import CrashState
from raidproof.crash.stats import ExplorationStats, Group
from raidproof.crash.write_owner import Belongs
from raidproof.record.exploration import FailureRecord, MissingRecord, ShrunkRecord

REPEATS = 2
EXPLAINED = 8
"""First states of failures that are repeated and shrunk; of the others they are told."""
SHRINK_S = 60.0
"""For one state, and the failures that it shows."""
SAID = 5
"""Lines that show a failure."""
EVER_S = 1e6
"""Longer than anything here takes."""
LOOKS = 200
"""States that shrinking one failure may look at."""


def explain(
    failures: list[FailureRecord],
    replayer: Replayer,
    belongs: Belongs,
    replay: Callable[[str], list[str]],
    *,
    until: Deadline | None = None,
) -> None:
    """Enter each failure, the most frequent first, and then what is found out of it: an error leaves what is known.

    Failures whose first state is the same are shown again together. ``replay`` gives the command that shows a state of
    that name. Each such state has at most `SHRINK_S`, and its part of what is left ``until`` then; one is shown again
    even if nothing is left.

    Raises:
        RigError: the checker failed twice.
    """
    groups = list(replayer.tally.failures())
    # Not in the order of their cuts: to go back costs half a second, and time may run out before the last.
    chosen = together(diverse(groups))[:EXPLAINED]
    records = {group.damage: plain(group, replayer.tally, replay) for group in groups}
    failures += records.values()
    shrinker = Shrinker(replayer, belongs, replay)
    ends = until or Deadline.after(EVER_S)
    for number, alike in enumerate(chosen, start=1):
        mine = [records[group.damage] for group in alike]
        if ends.passed and any(one.confirmed for one in records.values()):
            break
        step(f"shrinking state {number} of {len(chosen)}, {SHRINK_S:.0f} s at most: {alike[0].damage}")
        for turn in range(1, REPEATS + 1):
            if ends.passed and any(one.confirmed for one in mine):
                break
            for group, record in zip(alike, mine, strict=True):
                # Of one look all of them are judged.
                again = replayer.shows(group.damage, group.first.state, anew=group is alike[0])
                record.repeated, record.confirmed = turn, record.confirmed + again
        deadline = Deadline.after(min(SHRINK_S, ends.remaining_s / (len(chosen) - number + 1)))
        for group, record in zip(alike, mine, strict=True):
            if record.confirmed and not ends.passed:
                shrinker.enter(record, group, [one.shrunk for one in mine if one.shrunk is not None], deadline)
    # What is reported must not be of the checker's own making. Last, because each boots a machine.
    for alike in chosen:
        if ends.passed:
            break
        step(f"showing a machine that has just booted: {alike[0].damage}")
        replayer.cold(alike[0].first.choice, alike[0].first.state)


def together(groups: Sequence[Group]) -> list[list[Group]]:
    """Put failures together whose first state is the same."""
    alike: dict[CrashState, list[Group]] = {}
    for group in groups:
        alike.setdefault(group.first.state, []).append(group)
    return list(alike.values())


def diverse(groups: Sequence[Group]) -> list[Group]:
    """Order failures so that each beginning of them has as many promises as can be."""
    turns = Counter[str]()
    order = []
    for place, group in enumerate(groups):
        order.append((turns[group.damage.promise], place))
        turns[group.damage.promise] += 1
    return [groups[place] for _, place in sorted(order)]


def plain(group: Group, tally: ExplorationStats, replay: Callable[[str], list[str]]) -> FailureRecord:
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
        said=list(judgement.lines(group.damage)[:SAID]),
        missing=named_missing(group, judgement, tally.recording.instant_ns(state.cut)),
        missing_total=len(judgement.missing),
        acknowledged=judgement.acknowledged,
        replay=replay(state.name),
    )


@dataclass(frozen=True)
class Shrinker:
    """Finds the smallest states that show failures, and enters them in their records."""

    replayer: Replayer
    belongs: Belongs
    replay: Callable[[str], list[str]]

    def enter(self, record: FailureRecord, group: Group, known: Sequence[ShrunkRecord], deadline: Deadline) -> None:
        """Do it for one failure; if it shows in what is ``known`` of others of its state, that is its own, too.

        Raises:
            RigError: the checker failed twice.
        """
        trials = Trials(partial(self.replayer.shows, group.damage), LOOKS, lambda: deadline.passed)
        try:
            shrunk, smallest, fullest = self._known(group.damage, known) or self._shrunk(group, trials)
        except RequestError:
            return  # it did not show again this time: what was confirmed says how often it does
        judgement, recording = self.replayer.judge(smallest), self.replayer.tally.recording
        record.shrunk = shrunk
        record.missing = named_missing(group, judgement, recording.instant_ns(smallest.cut)) or record.missing
        record.missing_total = len(judgement.missing)
        record.replay = self.replay(smallest.name)
        if record.shrunk.whole and not trials.spent:
            record.shortest = shorten(trials, group.damage, self.replayer, smallest, fullest)
            record.replay = self.replay(record.shortest.state)
            if trials.spent:
                record.shrunk.whole, record.shortest.not_at = False, None

    def _known(
        self, damage: Damage, known: Sequence[ShrunkRecord]
    ) -> tuple[ShrunkRecord, CrashState, CrashState] | None:
        for one in known:
            smallest, fullest = CrashState.load(one.dump), CrashState.load(one.lost_dump or one.dump)
            if self.replayer.shows(damage, smallest) and self.replayer.shows(damage, fullest):
                return one.model_copy(deep=True), smallest, fullest
        return None

    def _shrunk(self, group: Group, trials: Trials) -> tuple[ShrunkRecord, CrashState, CrashState]:
        first, recording = group.first.state, self.replayer.tally.recording
        self.replayer.judge(first)
        every = self.replayer.roller.window.open
        smallest, fullest = trials.shrink(first), trials.missing(first, every)
        survivors = pieces_of(recording, smallest)
        lost = pieces_of(recording, whole(absent(fullest, every), fullest.cut))
        belongs = self.belongs(smallest, [piece.at for piece in (*survivors, *lost)])
        shrunk = ShrunkRecord(
            state=smallest.name,
            dump=smallest.dump(),
            survivors=[piece.record(recording, belongs) for piece in survivors],
            not_there=len(absent(smallest, every)),
            tried=trials.checks,
            whole=not trials.spent,
            lost=[piece.record(recording, belongs) for piece in lost],
            lost_state=fullest.name,
            lost_dump=fullest.dump(),
        )
        return shrunk, smallest, fullest


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
        acknowledged_before_s=(instant_ns - (operation.promised_ns or instant_ns)) / 1e9,
        instead=what,
    )
