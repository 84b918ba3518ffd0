"""Reduces a failure that many crash states show to the smallest state that shows it."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TypeVar

from raidproof.core.errors import RequestError
from raidproof.core.log import step
from raidproof.core.waiting import Deadline
from raidproof.crash.checker_worker import CheckerWorker, RecordingCursor
from raidproof.crash.owner import Belongs, pieces_of, whole
from raidproof.crash.sampler import Choice
from raidproof.crash.states import CrashState, Survivor
from raidproof.crash.stats import ExplorationStats, Group
from raidproof.record.exploration import End, FailureRecord, MissingRecord, Observation, ShortestRecord, ShrunkRecord
from raidproof.verdict.exploration import BLOCKS, FILESYSTEM, NFSD, RECOVERY, Damage, Judgement, Missing

T = TypeVar("T")
Fails = Callable[[CrashState], bool]
"""Returns whether a state shows the failure that is being shrunk."""
CUTS = 10
"""Earlier cuts that are tried: going back to one takes half a second with a log of 10,000 requests."""
REPEATS = 2
EXPLAINED = 8
"""Number of first states that are repeated and shrunk; other failures are only reported."""
SHRINK_S = 60.0
"""Time limit in seconds for one state and all failures that it shows."""
SAID = 5
"""Lines of evidence in the record of a failure."""
EVER_S = 1e6
"""Seconds; longer than any exploration."""
MOST_CHECKS = 200
"""Limit of checks for shrinking one failure."""


class Replayer:
    """Checks crash states one at a time on one checker, and judges each observation."""

    def __init__(self, worker: CheckerWorker, cursor: RecordingCursor, stats: ExplorationStats) -> None:
        self.worker = worker
        self.cursor = cursor
        self.stats = stats
        self._known: dict[str, Observation] = {}
        self._also: dict[str, frozenset[str]] = {}

    def cold(self, choice: Choice, state: CrashState) -> None:
        """Check a state again, also on a newly booted machine; the statistics compare both observations.

        Raises:
            RigError: the checker failed twice.
        """
        self.cursor.go(state.cut)
        result = self.worker.submit(self.cursor.job(state, cold=True)).result()
        if result.cold is not None:
            self.stats.compare(choice, state, result.observation, result.cold)

    def judge(self, state: CrashState, *, anew: bool = False, nfsd: bool = False, fsck: bool = False) -> Judgement:
        """Judge a state; reuse the observation of its content unless ``anew``, or if it lacks a requested check.

        ``nfsd``: scan through nfsd too; ``fsck``: run the file system's checker too.

        Raises:
            RigError: the checker failed twice.
        """
        self.cursor.go(state.cut)
        digest = self.cursor.window.digest(state)
        also = frozenset(word for word, asked in (("nfsd", nfsd), ("fsck", fsck)) if asked)
        if anew or digest not in self._known or not also <= self._also[digest]:
            result = self.worker.submit(self.cursor.job(state, nfsd=nfsd, fsck=fsck)).result()
            self._known[digest], self._also[digest] = result.observation, also
        return self.stats.judge(state, self._known[digest])

    def shows(self, damage: Damage, state: CrashState, *, anew: bool = False) -> bool:
        """Return whether a state shows a failure.

        Raises:
            RigError: the checker failed twice.
        """
        # nfsd may be what made a check hang, too.
        nfsd = damage.promise == NFSD or damage.end == End.WEDGED
        fsck = damage.promise == FILESYSTEM
        return damage in self.judge(state, anew=anew, nfsd=nfsd, fsck=fsck).damages


class Trials:
    """Tests whether states fail, each state once, within a budget of checks and until ``late`` returns true."""

    def __init__(self, fails: Fails, budget: int, late: Callable[[], bool] = lambda: False) -> None:
        self._fails = fails
        self._late = late
        self._known: dict[CrashState, bool] = {}
        self.budget = budget

    @property
    def checks(self) -> int:
        """Number of states that were checked."""
        return len(self._known)

    @property
    def spent(self) -> bool:
        """Whether budget or time is used up: the result then still fails, but may not be minimal."""
        return self.checks >= self.budget or self._late()

    def __call__(self, state: CrashState) -> bool:
        """Return whether a state fails; False for an unchecked state once budget or time is used up."""
        if state not in self._known:
            if self.spent:
                return False
            self._known[state] = self._fails(state)
        return self._known[state]

    def shrink(self, state: CrashState) -> CrashState:
        """Return a state with a 1-minimal set of survivors that still fails, with torn survivors split into parts.

        An empty set means that the failure needs no survivor: `missing` then finds the writes whose absence causes it.

        Raises:
            RequestError: the state does not fail, or the budget does not allow a check of it.
        """
        few = minimise(state.survivors, lambda kept: self(CrashState(state.cut, tuple(kept))))
        # Only now, because each part adds one more element.
        parts = [part for one in few for part in _parts(one)]
        return CrashState(state.cut, _joined(minimise(parts, lambda kept: self(CrashState(state.cut, _joined(kept))))))

    def missing(self, state: CrashState, all_open: Sequence[int]) -> CrashState:
        """Return a state that lacks a 1-minimal set of writes and still fails: the dual of `shrink`.

        The search begins with all requests kept. ``all_open`` are the requests that may or may not have survived at
        the cut; `absent` names those that the result lacks, wholly or in part. If there are none, the failure shows
        even with all requests kept.

        Raises:
            RequestError: the state does not fail, or the budget does not allow a check of it.
        """

        def without(some: Sequence[int]) -> CrashState:
            return lacking(some, state, state.cut, all_open)

        return without(minimise(absent(state, all_open), lambda some: self(without(some))))


def absent(state: CrashState, all_open: Iterable[int]) -> tuple[int, ...]:
    """Return the requests that a state lacks, wholly or in part."""
    whole = {one.request for one in state.survivors if one.spans is None}
    return tuple(number for number in all_open if number not in whole)


def lacking(some: Iterable[int], state: CrashState, cut: int, all_open: Iterable[int]) -> CrashState:
    """Return the state of a cut in which all open requests survive, but of ``some`` only what ``state`` has of them.

    Requests of ``state`` that are not in ``all_open`` (completed after the cut, or not yet issued) are left out.
    """
    left, kept = set(some), {one.request: one for one in state.survivors}
    made = (kept.get(number) if number in left else Survivor(number) for number in all_open)
    return CrashState(cut, tuple(one for one in made if one is not None))


def only(state: CrashState, cut: int, all_open: Iterable[int]) -> CrashState:
    """Return the state of a cut with those survivors of ``state`` that are open at the cut."""
    known = set(all_open)
    return CrashState(cut, tuple(one for one in state.survivors if one.request in known))


def earliest(cuts: Sequence[int], fails: Callable[[int], bool], most_checks: int) -> tuple[int, int | None]:
    """Return an early cut that fails, and the last tried cut before it that does not fail; None if there is none.

    ``cuts`` are sorted; the last is known to fail and is not tested. The first is tested first, because most failures
    show there already. Otherwise the range is bisected, with ``most_checks`` tests in all. Later cuts than a failing
    one may not fail, so that the result need not be the earliest failing cut.
    """
    if len(cuts) == 1 or most_checks < 1:
        return cuts[-1], None
    if fails(cuts[0]):
        return cuts[0], None
    low, high = 0, len(cuts) - 1
    for _ in range(1, most_checks):
        if high - low == 1:
            break
        middle = (low + high) // 2
        if fails(cuts[middle]):
            high = middle
        else:
            low = middle
    return cuts[high], cuts[low]


def minimise(elements: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return a 1-minimal subsequence of the elements that still fails (delta debugging).

    Raises:
        RequestError: all elements together do not fail.
    """
    if not fails(elements):
        raise RequestError("there is nothing to shrink: it does not fail")
    if elements and fails(()):
        return ()
    pieces = 2
    while len(elements) > 1:
        size = -(-len(elements) // pieces)
        starts = range(0, len(elements), size)
        subsets = [elements[at : at + size] for at in starts]
        complements = [[*elements[:at], *elements[at + size :]] for at in starts] if pieces > 2 else []
        if (subset := next((one for one in subsets if fails(one)), None)) is not None:
            elements, pieces = subset, 2
        elif (rest := next((one for one in complements if fails(one)), None)) is not None:
            elements, pieces = rest, max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(2 * pieces, len(elements))
    return elements


def _parts(survivor: Survivor) -> Iterable[Survivor]:
    if survivor.spans is None:
        return [survivor]
    return [Survivor(survivor.request, (span,)) for span in survivor.spans]


def _joined(parts: Sequence[Survivor]) -> tuple[Survivor, ...]:
    """Join the parts of each request to one survivor again."""
    joined: list[Survivor] = []
    for request, some in groupby(parts, key=lambda one: one.request):
        group = list(some)
        if any(one.spans is None for one in group):
            joined.append(Survivor(request))
        else:
            joined.append(Survivor(request, tuple(span for one in group for span in one.spans or ())))
    return tuple(joined)


def shorten(
    trials: Trials, damage: Damage, replayer: Replayer, smallest: CrashState, fullest: CrashState
) -> ShortestRecord:
    """Find an early cut at which the losses of ``fullest`` show the failure, and the smallest state there.

    If operations are missing in ``fullest``, no cut before the earliest acknowledgement among them is tried. The
    cut that is returned fails, and the last tried cut before it does not; see `raidproof.crash.shrink.earliest`.

    Raises:
        RigError: the checker failed twice.
    """
    recording, stats, cursor = replayer.stats.recording, replayer.stats, replayer.cursor
    missing = [one for one in replayer.judge(fullest).missing if one.damage == damage]
    lost = absent(fullest, cursor.window.open)
    word_ns = (missing[0].operation.promised_ns or 0) if missing else None
    # An acknowledgement binds if it precedes the latest instant of a cut: 1 ns before the next request's completion.
    first = recording.place(stats.oracle.created_ns if word_ns is None else word_ns + 2)
    between = (cut for cut in recording.cuts if first < cut < fullest.cut)
    cuts = sorted({min(first, fullest.cut), *between, fullest.cut})
    before = trials.checks

    def there(cut: int) -> CrashState:
        cursor.go(cut)
        return lacking(lost, fullest, cut, cursor.window.open)

    cut, not_at = earliest(cuts, lambda one: trials(there(one)), CUTS)
    state = smallest
    if cut < smallest.cut:
        state = there(cut)
        few = only(smallest, cut, cursor.window.open)
        state = few if trials(few) else state
    judgement = replayer.judge(state)
    words = [one.operation.promised_ns for one in judgement.missing if one.damage == damage]
    instant_ns = recording.instant_ns(cut)
    return ShortestRecord(
        state=state.name,
        dump=state.dump(),
        cut=cut,
        of=len(recording.records),
        at_s=stats.at_s(cut),
        earlier=smallest.cut - cut,
        earlier_s=stats.at_s(smallest.cut) - stats.at_s(cut),
        after_word_s=(instant_ns - words[0]) / 1e9 if words and words[0] is not None else None,
        acknowledged=judgement.acknowledged,
        of_acknowledged=sum(1 for _ in stats.oracle.history.acknowledged(recording.end_ns)),
        not_at=not_at,
        tried=trials.checks - before,
    )


def explain(
    failures: list[FailureRecord],
    replayer: Replayer,
    belongs: Belongs,
    replay: Callable[[str], list[str]],
    *,
    until: Deadline | None = None,
) -> None:
    """Enter each failure, the most frequent first, and then the results of shrinking: an error keeps what is known.

    Failures with the same first state are checked again together. ``replay`` returns the command that shows the state
    of a name. Each such state has at most `SHRINK_S` seconds, and at most its share of the time left ``until`` then;
    one is checked again even if no time is left.

    Raises:
        RigError: the checker failed twice.
    """
    groups = list(replayer.stats.failures())
    # Not in the order of their cuts: going back costs half a second, and time may run out before the last.
    chosen = together(diverse(groups))[:EXPLAINED]
    records = {group.damage: plain(group, replayer.stats, replay) for group in groups}
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
                # One check serves all failures of the state.
                again = replayer.shows(group.damage, group.first.state, anew=group is alike[0])
                record.repeated, record.confirmed = turn, record.confirmed + again
        deadline = Deadline.after(min(SHRINK_S, ends.remaining_s / (len(chosen) - number + 1)))
        for group, record in zip(alike, mine, strict=True):
            if record.confirmed and not ends.passed:
                shrinker.enter(record, group, [one.shrunk for one in mine if one.shrunk is not None], deadline)
    # A reported failure must not be an artefact of the checker. Last, because each check boots a machine.
    for alike in chosen:
        if ends.passed:
            break
        step(f"checking on a newly booted machine: {alike[0].damage}")
        replayer.cold(alike[0].first.choice, alike[0].first.state)


def together(groups: Sequence[Group]) -> list[list[Group]]:
    """Group failures whose first state is the same."""
    alike: dict[CrashState, list[Group]] = {}
    for group in groups:
        alike.setdefault(group.first.state, []).append(group)
    return list(alike.values())


def diverse(groups: Sequence[Group]) -> list[Group]:
    """Order failures so that each prefix of the order covers as many promises as possible."""
    turns = Counter[str]()
    order = []
    for place, group in enumerate(groups):
        order.append((turns[group.damage.promise], place))
        turns[group.damage.promise] += 1
    return [groups[place] for _, place in sorted(order)]


def plain(group: Group, stats: ExplorationStats, replay: Callable[[str], list[str]]) -> FailureRecord:
    """Return the record of a failure from what is known without another check."""
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
        at_s=stats.at_s(state.cut),
        reason=judgement.reason,
        blame=judgement.blame,
        said=list(judgement.lines(group.damage)[:SAID]),
        missing=named_missing(group, judgement, stats.recording.instant_ns(state.cut)),
        missing_total=len(judgement.missing),
        acknowledged=judgement.acknowledged,
        replay=replay(state.name),
    )


@dataclass(frozen=True)
class Shrinker:
    """Finds the smallest states that show failures, and enters them in the failures' records."""

    replayer: Replayer
    belongs: Belongs
    replay: Callable[[str], list[str]]

    def enter(self, record: FailureRecord, group: Group, known: Sequence[ShrunkRecord], deadline: Deadline) -> None:
        """Shrink one failure; reuse a result in ``known`` (other failures of its state) if that shows it, too.

        Raises:
            RigError: the checker failed twice.
        """
        trials = Trials(partial(self.replayer.shows, group.damage), MOST_CHECKS, lambda: deadline.passed)
        try:
            shrunk, smallest, fullest = self._known(group.damage, known) or self._shrunk(group, trials)
        except RequestError:
            return  # the failure did not show again this time: `confirmed` has the number of times that it did
        judgement, recording = self.replayer.judge(smallest), self.replayer.stats.recording
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
        first, recording = group.first.state, self.replayer.stats.recording
        self.replayer.judge(first)
        every = self.replayer.cursor.window.open
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
    """Return the earliest acknowledged operation that is missing in this failure; None if there is none."""
    mine: list[Missing] = [one for one in judgement.missing if one.damage == group.damage]
    # Some failures have no operation as evidence, whatever else is missing in the state.
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
