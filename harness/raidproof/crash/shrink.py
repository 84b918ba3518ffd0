"""The search for the smallest crash state, and for the shortest history, that still show a failure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TypeVar

from raidproof.core.blame import Blame, Culprit, blamed_as
from raidproof.core.errors import RequestError
from raidproof.core.log import step
from raidproof.core.waiting import Deadline
from raidproof.crash.checker_worker import CheckerWorker, RecordingCursor
from raidproof.crash.difference import Extremes, difference, missing_record
from raidproof.crash.order import broken_order
from raidproof.crash.owner import OwnerLookup, StructureOf, no_structure, pieces_of
from raidproof.crash.sampler import Choice
from raidproof.crash.states import CrashState, Survivor
from raidproof.crash.stats import ExplorationStats, Group
from raidproof.record.exploration import End, Observation
from raidproof.record.failure import FailureRecord, MissingRecord, OrderRecord, ShortestRecord, ShrunkRecord
from raidproof.verdict.checks.blocks import BLOCKS
from raidproof.verdict.checks.crash_state import FILESYSTEM, NFSD
from raidproof.verdict.crash_states import RECOVERY
from raidproof.verdict.damage import Damage
from raidproof.verdict.oracle import Judgement, Missing

T = TypeVar("T")
Fails = Callable[[CrashState], bool]
"""A function that returns whether a crash state shows the failure that is being shrunk."""
CUTS = 10
"""Limit of earlier cuts at which a state is tested: a move to an earlier cut takes 0.5 s with 10,000 requests."""
REPEATS = 2
"""Number of times that the first state of a failure is checked again."""
EXPLAINED = 8
"""Limit of states that are checked again and shrunk; failures of other states are reported without shrinking."""
SHRINK_S = 60.0
"""Time limit in seconds for shrinking one state with all failures that the state shows."""
SAID = 5
"""Limit of lines of evidence in the record of a failure."""
EVER_S = 1e6
"""Time limit in seconds of a budget without a time limit; longer than any exploration."""
MOST_CHECKS = 200
"""Limit of checks for shrinking one failure."""


class Replayer:
    """Checks crash states one after the other on one checker, and judges each observation."""

    def __init__(self, worker: CheckerWorker, cursor: RecordingCursor, stats: ExplorationStats) -> None:
        self.worker = worker
        self.cursor = cursor
        self.stats = stats
        self._known: dict[str, Observation] = {}
        self._also: dict[str, frozenset[str]] = {}

    def cold(self, choice: Choice, state: CrashState) -> None:
        """Check a state on the checker and on a newly booted machine; the statistics compare both observations.

        Raises:
            RigError: a check failed twice for a reason other than the state.
        """
        self.cursor.go(state.cut)
        result = self.worker.submit(self.cursor.job(state, cold=True)).result()
        if result.cold is not None:
            self.stats.compare_cold(choice, state, result.observation, result.cold)

    def judge(self, state: CrashState, *, anew: bool = False, nfsd: bool = False, fsck: bool = False) -> Judgement:
        """Return the judgement of a state; check the state only if no observation of its content is known.

        ``anew``: check the state in any case. ``nfsd``: the observation must include a scan through nfsd. ``fsck``:
        the observation must include the result of the file system's checker.

        Raises:
            RigError: a check failed twice for a reason other than the state.
        """
        self.cursor.go(state.cut)
        digest = self.cursor.window.digest(state)
        also = frozenset(word for word, asked in (("nfsd", nfsd), ("fsck", fsck)) if asked)
        if anew or digest not in self._known or not also <= self._also[digest]:
            result = self.worker.submit(self.cursor.job(state, nfsd=nfsd, fsck=fsck)).result()
            self._known[digest], self._also[digest] = result.observation, also
        return self.stats.judge(state, self._known[digest])

    def order(self, state: CrashState, blame: Blame | None) -> OrderRecord | None:
        """Return the broken order of writes of a failing state; None without one, and if the blame is on disks."""
        if blamed_as(blame, Culprit.DISKS):
            return None
        self.cursor.go(state.cut)
        return broken_order(self.stats.recording, absent(state, self.cursor.window.open), state.cut)

    def shows(self, damage: Damage, state: CrashState, *, anew: bool = False) -> bool:
        """Return whether a state shows a failure; ``anew``: check the state even if an observation is known.

        Raises:
            RigError: a check failed twice for a reason other than the state.
        """
        return damage in self.judged_for(damage, state, anew=anew).damages

    def judged_for(self, damage: Damage, state: CrashState, *, anew: bool = False) -> Judgement:
        """Return the judgement of a state, with the checks that can show a damage; ``anew``: see `shows`.

        Raises:
            RigError: a check failed twice for a reason other than the state.
        """
        # The scan through nfsd may have caused the hang of a check that ended WEDGED.
        nfsd = damage.promise == NFSD or damage.end == End.WEDGED
        fsck = damage.promise == FILESYSTEM
        return self.judge(state, anew=anew, nfsd=nfsd, fsck=fsck)


class Trials:
    """Tests whether crash states show a failure, each state once.

    A state *fails* if ``fails`` returns true for it. The tests end after ``budget`` checks, or when ``late`` returns
    true.
    """

    def __init__(self, fails: Fails, budget: int, late: Callable[[], bool] = lambda: False) -> None:
        self._fails = fails
        self._late = late
        self._known: dict[CrashState, bool] = {}
        self.budget = budget

    @property
    def checks(self) -> int:
        """Number of states that were tested."""
        return len(self._known)

    @property
    def spent(self) -> bool:
        """Whether the budget or the time is used up; a result of `shrink` or `missing` may then not be minimal."""
        return self.checks >= self.budget or self._late()

    def __call__(self, state: CrashState) -> bool:
        """Return whether a state fails; False for an untested state if the budget or the time is used up."""
        if state not in self._known:
            if self.spent:
                return False
            self._known[state] = self._fails(state)
        return self._known[state]

    def shrink(self, state: CrashState) -> CrashState:
        """Return a failing state with a 1-minimal set of survivors: without any one of them the state does not fail.

        The parts of a torn survivor count one by one. An empty set means that the loss of other writes causes the
        failure; `missing` finds these writes.

        Raises:
            RequestError: the state does not fail, or the budget is used up.
        """
        few = minimise(state.survivors, lambda kept: self(CrashState(state.cut, tuple(kept))))
        # Split torn requests only in the second step: more elements mean more checks.
        parts = [part for one in few for part in _parts(one)]
        return CrashState(state.cut, _joined(minimise(parts, lambda kept: self(CrashState(state.cut, _joined(kept))))))

    def missing(self, state: CrashState, all_open: Sequence[int]) -> CrashState:
        """Return a failing state that lacks a 1-minimal set of requests: with any one of them it does not fail.

        ``all_open``: the non-durable requests at the cut; the result has all of them except the minimal set. `absent`
        returns the requests that the result lacks, wholly or in part. An empty set means that the state fails even if
        all requests survive.

        Raises:
            RequestError: the state does not fail, or the budget is used up.
        """

        def without(some: Sequence[int]) -> CrashState:
            return lacking(some, state, state.cut, all_open)

        return without(minimise(absent(state, all_open), lambda some: self(without(some))))


def absent(state: CrashState, all_open: Iterable[int]) -> tuple[int, ...]:
    """Return the non-durable requests that a state lacks, wholly or in part."""
    whole = state.whole
    return tuple(number for number in all_open if number not in whole)


def lacking(some: Iterable[int], state: CrashState, cut: int, all_open: Iterable[int]) -> CrashState:
    """Return the state of a cut in which all requests survive, except that ``some`` survive as in ``state``.

    In ``state`` a request of ``some`` is absent or torn. Requests of ``state`` that are not in ``all_open`` are left
    out, because they were not issued or were already durable at the cut.
    """
    left, kept = set(some), {one.request: one for one in state.survivors}
    made = (kept.get(number) if number in left else Survivor(number) for number in all_open)
    return CrashState(cut, tuple(one for one in made if one is not None))


def only(state: CrashState, cut: int, all_open: Iterable[int]) -> CrashState:
    """Return the state of a cut with the survivors of ``state`` that are non-durable at this cut."""
    known = set(all_open)
    return CrashState(cut, tuple(one for one in state.survivors if one.request in known))


def earliest(cuts: Sequence[int], fails: Callable[[int], bool], most_checks: int) -> tuple[int, int | None]:
    """Return an early failing cut, and the last tested cut before it, which does not fail (None: no such cut).

    ``cuts`` are sorted; the last cut is known to fail, and is not tested. The first cut is tested first, because most
    failures show there. If it does not fail, a bisection follows, with at most ``most_checks`` tests including the
    first. Cuts after a failing cut may pass, so that the result need not be the earliest failing cut.
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
    """Return a failing subsequence of the elements that does not fail without any one of its elements.

    The algorithm is delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE
    Transactions on Software Engineering 28(2), 2002).

    Raises:
        RequestError: the complete sequence does not fail.
    """
    if not fails(elements):
        raise RequestError("the crash state cannot be shrunk: it does not fail")
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
    """Return survivors with the parts of each request joined."""
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
    """Find an early cut at which the lost requests of ``fullest`` show a failure, and a small failing state there.

    ``smallest``: the failing state with the fewest survivors. ``fullest``: the failing state with the fewest lost
    requests. If acknowledged operations are missing in ``fullest``, cuts before the first of their acknowledgements
    are not tried. The returned cut fails, and the last tried cut before it does not fail; see `earliest`.

    Raises:
        RigError: a check failed twice for a reason other than the state.
    """
    recording, stats, cursor = replayer.stats.recording, replayer.stats, replayer.cursor
    missing = [one for one in replayer.judge(fullest).missing if one.damage == damage]
    lost = absent(fullest, cursor.window.open)
    acknowledged_ns = (missing[0].operation.promised_ns or 0) if missing else None
    # An acknowledgement counts at a cut if it precedes the cut's latest instant, 1 ns before the next completion.
    first = recording.place(stats.oracle.created_ns if acknowledged_ns is None else acknowledged_ns + 2)
    if recording.origin is not None:
        first = recording.first_cut  # all acknowledgements precede the recovery
    between = (cut for cut in recording.cuts if first < cut < fullest.cut)
    cuts = sorted({min(first, fullest.cut), *between, fullest.cut})
    before = trials.checks

    def at_cut(cut: int) -> CrashState:
        cursor.go(cut)
        return lacking(lost, fullest, cut, cursor.window.open)

    cut, not_at = earliest(cuts, lambda one: trials(at_cut(one)), CUTS)
    state = smallest
    if cut < smallest.cut:
        state = at_cut(cut)
        few = only(smallest, cut, cursor.window.open)
        state = few if trials(few) else state
    judgement = replayer.judge(state)
    replied = [one.operation.promised_ns for one in judgement.missing if one.damage == damage]
    instant_ns = recording.acknowledged_ns(cut)
    return ShortestRecord(
        state=state.name,
        dump=state.dump(),
        cut=cut,
        of=len(recording.records),
        at_s=stats.at_s(cut),
        earlier=smallest.cut - cut,
        earlier_s=stats.at_s(smallest.cut) - stats.at_s(cut),
        after_word_s=(instant_ns - replied[0]) / 1e9 if replied and replied[0] is not None else None,
        acknowledged=judgement.acknowledged,
        of_acknowledged=sum(
            1 for _ in stats.oracle.history.acknowledged(recording.acknowledged_ns(len(recording.records)))
        ),
        not_at=not_at,
        tried=trials.checks - before,
    )


def explain(
    failures: list[FailureRecord],
    replayer: Replayer,
    find_owners: OwnerLookup,
    replay: Callable[[str], list[str]],
    *,
    most: int = EXPLAINED,
    until: Deadline | None = None,
    structure_of: StructureOf = no_structure,
    smallest: bool = True,
    cold: bool = True,
) -> None:
    """Append the record of each failure to ``failures``, the most frequent first; then repeat and shrink the failures.

    If shrinking raises an error, the records keep all earlier results. Failures with the same first state are repeated
    together. ``find_owners``: looks up the owners of writes. ``replay``: returns the command that shows the state with
    a name. ``most``: greatest number of states that are repeated and shrunk. ``until``: end of the time budget.
    Shrinking one state takes at most `SHRINK_S` seconds, and at most its share of the remaining time. One state is
    repeated even if no time is left. ``structure_of``: names the structure of the file system that data begins with.
    ``smallest``: search the smallest state of each failure. ``cold``: check the states on a newly booted machine, too.

    Raises:
        RigError: a check failed twice for a reason other than the state.
    """
    groups = list(replayer.stats.failures())
    # The order is by promise, not by cut, although a move to an earlier cut takes 0.5 s: time may end before the last.
    chosen = together(diverse(groups))[:most]
    records = {group.damage: plain(group, replayer.stats, replay) for group in groups}
    failures += records.values()
    add_orders(replayer, groups, records)
    shrinker = Shrinker(replayer, find_owners, replay, structure_of)
    ends = until or Deadline.after(EVER_S)
    for number, alike in enumerate(chosen, start=1):
        mine = [records[group.damage] for group in alike]
        if ends.passed and any(one.confirmed for one in records.values()):
            break
        how = f"shrinking failing state {number} of {len(chosen)}, at most {SHRINK_S:.0f} s"
        step(f"{how if smallest else f'repeating failing state {number} of {len(chosen)}'}: {alike[0].damage}")
        for turn in range(1, REPEATS + 1):
            if ends.passed and any(one.confirmed for one in mine):
                break
            for group, record in zip(alike, mine, strict=True):
                # One new check of the state serves all its failures.
                again = replayer.shows(group.damage, group.first.state, anew=group is alike[0])
                record.repeated, record.confirmed = turn, record.confirmed + again
        deadline = Deadline.after(min(SHRINK_S, ends.remaining_s / (len(chosen) - number + 1)))
        for group, record in zip(alike, mine, strict=True):
            if smallest and record.confirmed and not ends.passed:
                shrinker.enter(record, group, [one.shrunk for one in mine if one.shrunk is not None], deadline)
    # Rule out that a reported failure is an artefact of the checker. Last, because each check boots a machine.
    for alike in chosen if cold else ():
        if ends.passed:
            break
        step(f"checking a failing state on a newly booted machine: {alike[0].damage}")
        replayer.cold(alike[0].first.choice, alike[0].first.state)


def add_orders(replayer: Replayer, groups: Iterable[Group], records: Mapping[Damage, FailureRecord]) -> None:
    """Add the broken order of writes in the first state of each failure to its record, by damage in ``records``."""
    # A cursor that moves back reads the write log from its beginning.
    for group in sorted(groups, key=lambda one: one.first.state.cut):
        record = records[group.damage]
        record.order = replayer.order(group.first.state, record.blame)


def together(groups: Sequence[Group]) -> list[list[Group]]:
    """Return lists of the failures that have the same first state."""
    alike: dict[CrashState, list[Group]] = {}
    for group in groups:
        alike.setdefault(group.first.state, []).append(group)
    return list(alike.values())


def diverse(groups: Sequence[Group]) -> list[Group]:
    """Return the failures in an order of which each prefix covers as many promises as possible."""
    turns = Counter[str]()
    order = []
    for place, group in enumerate(groups):
        order.append((turns[group.damage.promise], place))
        turns[group.damage.promise] += 1
    return [groups[place] for _, place in sorted(order)]


def plain(group: Group, stats: ExplorationStats, replay: Callable[[str], list[str]]) -> FailureRecord:
    """Return the record of a failure without shrinking; makes no check."""
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
        kernel=list(judgement.kernel[:SAID]),
        missing=named_missing(group, judgement, stats.recording.acknowledged_ns(state.cut)),
        missing_total=len(judgement.missing),
        acknowledged=judgement.acknowledged,
        replay=replay(state.name),
    )


@dataclass(frozen=True)
class Shrinker:
    """Finds the smallest states that show failures, and adds the states to the records of the failures."""

    replayer: Replayer
    find_owners: OwnerLookup
    replay: Callable[[str], list[str]]
    structure_of: StructureOf = no_structure

    def enter(self, record: FailureRecord, group: Group, known: Sequence[ShrunkRecord], deadline: Deadline) -> None:
        """Shrink one failure, and add the result to its record.

        ``known``: results of other failures of the same state; a result that also shows this failure is reused.

        Raises:
            RigError: a check failed twice for a reason other than the state.
        """
        trials = Trials(partial(self.replayer.shows, group.damage), MOST_CHECKS, lambda: deadline.passed)
        try:
            shrunk, smallest, fullest = self._known(group.damage, known) or self._shrunk(group, trials)
        except RequestError:
            return  # the state did not show the failure in this check; `confirmed` counts the checks that showed it
        judgement, recording = self.replayer.judge(smallest), self.replayer.stats.recording
        record.shrunk = shrunk
        record.order = self.replayer.order(fullest, record.blame)
        record.missing = named_missing(group, judgement, recording.acknowledged_ns(smallest.cut)) or record.missing
        record.missing_total = len(judgement.missing)
        record.replay = self.replay(smallest.name)
        if not deadline.passed:
            found = Extremes(smallest, shrunk.survivors, fullest, shrunk.lost)
            record.difference = difference(self.replayer, recording, group.damage, found)
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
        lost = pieces_of(recording, CrashState.of(fullest.cut, absent(fullest, every)))
        owners = self.find_owners(smallest, [piece.at for piece in (*survivors, *lost)])
        shrunk = ShrunkRecord(
            state=smallest.name,
            dump=smallest.dump(),
            survivors=[piece.record(recording, owners, self.structure_of) for piece in survivors],
            not_there=len(absent(smallest, every)),
            tried=trials.checks,
            whole=not trials.spent,
            lost=[piece.record(recording, owners, self.structure_of) for piece in lost],
            lost_state=fullest.name,
            lost_dump=fullest.dump(),
        )
        return shrunk, smallest, fullest


def named_missing(group: Group, judgement: Judgement, instant_ns: int) -> MissingRecord | None:
    """Return the earliest acknowledged operation that is missing in this failure; None if no operation is missing."""
    mine: list[Missing] = [one for one in judgement.missing if one.damage == group.damage]
    # Only failures of recovery and of blocks may name a missing operation that has another damage.
    if not (mine or (judgement.missing and group.damage.promise in {RECOVERY, BLOCKS})):
        return None
    return missing_record((mine or judgement.missing)[0], instant_ns)
