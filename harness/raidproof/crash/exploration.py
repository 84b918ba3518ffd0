"""An exploration: checkers check crash states of a recorded run, and a journal stores each result."""

from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Self

from raidproof.core.log import console, step
from raidproof.core.waiting import Deadline, now_ns
from raidproof.crash.checkers import Answer, Checkers, CheckersOf, Request
from raidproof.crash.journal import Journal, Line
from raidproof.crash.sampler import Choice, Chosen, Policy
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.crash.verdicts import VERDICTS, Verdicts
from raidproof.record.exploration import End, Observation, ThroughNfsd
from raidproof.record.failure import FailureRecord
from raidproof.record.results.progress import report_progress
from raidproof.verdict.damage import Damage
from raidproof.verdict.oracle import Judgement, Oracle

SEARCHING = 2 / 3
"""Fraction of the time budget for checking new states if a failure was found; the rest is for shrinking failures."""
COLD_EVERY = 100
"""Number of different disk contents of which one is also checked on a newly booted machine."""
NFSD_EVERY = 5
"""Number of disk contents of which one is also scanned through the NFS server, which doubles the time of a check."""
FSCK_EVERY = 10
"""Number of different disk contents of which one is also checked by fsck, besides each state that breaks a promise."""
SHOWN_EVERY_S = (0.5, 10.0)
"""Interval between progress lines in seconds: if the output is a terminal, and if it is none."""
KEPT = 1_000_000
"""Number of judgements that are kept; each takes about 250 bytes, because equal ones share their objects."""


@dataclass(frozen=True)
class Budget:
    """The limits of an exploration, which ends when it reaches the first of them."""

    states: int | None = 1000
    """Number of judged states, including the states in a journal that is resumed; None: unlimited."""
    minutes: float | None = None
    """Time in minutes for checking states and shrinking failures together; None: unlimited."""
    broken: int | None = None
    """Number of broken states after which no further check begins; None: unlimited."""


class Exploration:
    """Checks and judges crash states in the order of ``choices``, and appends each result to the journal.

    The only place that puts the stages together: choice of states -> content -> check -> verdict -> tally. A context
    manager: leaving the context ends the checkers.
    """

    def __init__(
        self, choices: Chosen, oracle: Oracle, journal: Journal, checkers_of: CheckersOf, *, cold: bool = True
    ) -> None:
        """``oracle`` judges the states. ``checkers_of`` returns who checks them: here, or on a cluster.

        ``cold``: whether newly booted machines check some of the states, too.
        """
        self.choices = choices
        self.stats = stats = ExplorationStats(choices.recording, oracle)
        self.journal = journal
        self.checkers = checkers = checkers_of(stats)
        self.seconds = 0.0
        """Duration in seconds of the checks in this process, without the shrinking of failures."""
        self.budget = Budget()
        """The limits of `run`."""
        self.out_of_time = False
        """Whether the time budget ended the checks."""
        self.enough_broken = False
        """Whether the number of broken states ended the checks."""
        self.deadline: Deadline | None = None
        """End of the time budget; None: the budget has no time limit."""
        self._cold = cold
        self._done: set[Choice] = set()
        self._first: dict[str, Request] = {}
        """Requests without an answer, by the digest of the content."""
        self._sharing: dict[Request, list[tuple[Choice, CrashState]]] = {}
        """Further states with the content of a request that has no answer."""
        self._without_fsck: dict[str, list[tuple[Choice, CrashState]]] = {}
        """Broken states whose content was checked without fsck, by digest."""
        self._contents = KnownContents(journal, stats)
        self._progress = _Progress(stats, journal.path.parent, checkers)
        self._verdicts = Verdicts(journal.path.with_name(VERDICTS))
        for line in journal.stored():
            # Without an observation the earlier process ended before the check of this content.
            if line.digest in journal:
                seen = line.observation or journal.observation(line.digest)
                checked = line.observation is not None
                self._count(line.choice, line.crash, line.digest, seen, checked=checked, cold=line.cold)
        self.known = stats.judged
        """Number of states that the journal had when the exploration began."""

    def __enter__(self) -> Self:
        self.checkers.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._cancel()
        with closing(self._verdicts):
            self.checkers.__exit__(*error)

    @property
    def done(self) -> frozenset[Choice]:
        """The judged states."""
        return frozenset(self._done)

    def run(self, budget: Budget) -> None:
        """Check states until a limit of the budget is reached, or all states are checked.

        If a state fails, a part of the time budget is left for shrinking failures (`SEARCHING`).

        Raises:
            RigError: a check failed twice for a reason other than the state.
            KeyboardInterrupt: the user pressed Ctrl-C; journal and statistics contain all completed checks.
        """
        self.budget = budget
        search_deadline = None
        if budget.minutes is not None:
            self.deadline = Deadline.after(budget.minutes * 60)
            search_deadline = Deadline.after(budget.minutes * 60 * SEARCHING)
        missing = sum(one not in self._done for one in islice(self.choices.order, budget.states))
        self._progress.total = (
            None if budget.states is None and search_deadline is not None else self.stats.judged + missing
        )
        self._progress.ends = partial(self._search_ends, search_deadline)
        if not missing:
            return
        self.checkers.boot()
        begun = now_ns()
        self._progress.begin()
        try:
            rest = islice(self.choices.order, budget.states)
            while batch := list(islice(rest, self.checkers.batch)):
                self._batch(sorted(one for one in batch if one not in self._done), search_deadline, budget.broken)
                if self.out_of_time or self.enough_broken:
                    break
            self._collect_all()
            self._check_by_fsck()
        finally:
            self._cancel()
            self.seconds += (now_ns() - begun) / 1e9

    def explain(
        self,
        failures: list[FailureRecord],
        replay: Callable[[str], list[str]],
        most: int,
        *,
        known: Collection[Damage] = (),
    ) -> None:
        """Append the record of each failure to ``failures``; repeat and shrink ``most`` failures until the deadline.

        ``known``: failures that are left out.

        Raises:
            RigError: a check failed twice for a reason other than the state.
        """
        groups = self.stats.groups
        self.stats.groups = {damage: group for damage, group in groups.items() if damage not in known}
        try:
            if self.stats.groups:
                self.checkers.explain(failures, self.stats, replay, most, self.deadline)
        finally:
            self.stats.groups = groups | self.stats.groups

    def _batch(self, choices: list[Choice], search_deadline: Deadline | None, most_broken: int | None) -> None:
        for choice in choices:
            if most_broken is not None and self.stats.broken >= most_broken:
                self.enough_broken = True
                break
            if self._time_is_up(search_deadline):
                self.out_of_time = True
                break
            window = self.checkers.at(choice.cut)
            state = self.choices.state(choice, window.open)
            self._plan(self._request(choice, state, window.digest(state)))
        if self.checkers.end_batch():
            self._collect_all()
            self._check_by_fsck()

    def _request(self, choice: Choice, state: CrashState, digest: str) -> Request:
        """Return the request of a state. What is checked depends on the state alone, not on the order of the checks.

        The first state of the order is checked in each way, even if its content is known.
        """
        first = choice == self.choices.order[0]
        every = [first or int(digest[:8], 16) % number == 0 for number in (COLD_EVERY, NFSD_EVERY, FSCK_EVERY)]
        return Request(choice, state, digest, self._cold and every[0], *every[1:])

    def _plan(self, request: Request) -> None:
        """Judge a state whose content is known, let it wait for the check of its content, or request its check."""
        digest, alone = request.digest, request.choice == self.choices.order[0]
        if digest in self.journal and not alone:
            self._judge_known(request.choice, request.state, digest)
        elif digest in self._first and not alone:
            self._sharing.setdefault(self._first[digest], []).append((request.choice, request.state))
        else:
            self._first[digest] = request
            self._submit(request)

    def _judge_known(self, choice: Choice, state: CrashState, digest: str) -> None:
        """Judge a state by the observation of its content; let it wait if it is broken and fsck must run."""
        seen, judgement = self._contents.judge(state, digest)
        if seen.end is End.READ and seen.filesystem is None and judgement.broken:
            # The state breaks a promise at its cut, although the state that was checked broke none at its own.
            self._without_fsck.setdefault(digest, []).append((choice, state))
        else:
            self.stats.expect(state, seen, judgement)
            self._judge(choice, state, digest, seen)

    def _check_by_fsck(self) -> None:
        """Check the contents of the broken states again that lack the result of fsck; then judge these states."""
        waiting, self._without_fsck = self._without_fsck, {}
        for digest, states in sorted(waiting.items(), key=lambda one: one[1][0][0]):
            (choice, state), *others = states
            if not self.out_of_time:
                self.checkers.at(state.cut)
                nfsd = self.journal.observation(digest).through_nfsd is not ThroughNfsd.NOT_TRIED
                request = Request(choice, state, digest, nfsd=nfsd, fsck=True)
                self._first[digest], self._sharing[request] = request, others
                self._submit(request)
            else:
                for one in states:
                    self._judge(*one, digest, self.journal.observation(digest))
        self._collect_all()

    def _submit(self, request: Request) -> None:
        self.checkers.submit(request)
        while self.checkers.full:
            self._collect()

    def _time_is_up(self, search_deadline: Deadline | None) -> bool:
        ends = self._search_ends(search_deadline)
        return ends is not None and ends.passed

    def _search_ends(self, search_deadline: Deadline | None) -> Deadline | None:
        """Return the deadline for starting checks, which is earlier once a state has failed; None: no limit."""
        return search_deadline if self.stats.broken else self.deadline

    def _collect_all(self) -> None:
        while self.checkers.open:
            self._collect()

    def _collect(self) -> None:
        answers = self.checkers.collect()
        if not answers:
            self._progress.show()
        for answer in answers:
            request, digest = answer.request, answer.request.digest
            if self._first.get(digest) is request:
                del self._first[digest]
            self._judge_checked(answer)
            for choice, state in self._sharing.pop(request, ()):
                self._judge_known(choice, state, digest)

    def _judge_checked(self, answer: Answer) -> None:
        request, result = answer.request, answer.result
        if answer.judgement is not None:
            self.stats.expect(request.state, result.observation, answer.judgement)
        choice, state, digest = request.choice, request.state, request.digest
        self.journal.add_dump(digest, answer.journal_line())
        judgement = self._count(choice, state, digest, result.observation, checked=True, cold=result.cold)
        self._contents.note(state, digest, result.observation, judgement)
        self._progress.show()

    def _judge(self, choice: Choice, state: CrashState, digest: str, seen: Observation) -> None:
        """Judge a state by the observation of another state with the same content."""
        self.journal.add(Line.of(choice, state, digest))
        self._count(choice, state, digest, seen, checked=False)
        self._progress.show()

    def _count(
        self,
        choice: Choice,
        state: CrashState,
        digest: str,
        observation: Observation,
        *,
        checked: bool,
        cold: Observation | None = None,
    ) -> Judgement:
        self._done.add(choice)
        judgement = self.stats.add(choice, state, digest, observation, checked=checked)
        self._verdicts.add(choice, state, digest, judgement)
        if choice.policy is Policy.DIRECTED and observation.end is End.READ:
            # The observation of a known content lacks what was found.
            whole = observation if observation.found is not None else self.journal.observation(digest)
            self.stats.count_counterfactual(self.choices.directed.after(choice.cut), whole)
        if cold is not None:
            self.stats.compare_cold(choice, state, observation, cold)
        return judgement

    def _cancel(self) -> None:
        """Forget all checks without a result."""
        self.checkers.cancel()
        self._first.clear()
        self._sharing.clear()
        self._without_fsck.clear()


class KnownContents:
    """Judges states by the journal's observation of their content; an equal question is answered once.

    The judgement of a state that lacks operations is not kept: it depends on the instant of the state's cut.
    """

    def __init__(self, journal: Journal, stats: ExplorationStats) -> None:
        self._journal = journal
        self._stats = stats
        self._kept: dict[Hashable, tuple[Observation, Judgement]] = {}
        self._moments: dict[Hashable, Hashable] = {}
        self._observations: dict[str, Observation] = {}
        self._judgements: dict[Hashable, Judgement] = {}
        self.hits = 0
        """Number of questions with a kept answer."""

    def judge(self, state: CrashState, digest: str) -> tuple[Observation, Judgement]:
        """Return the observation of a content, see `Observation.brief`, and the judgement of a state with it."""
        key = self._key(state, digest)
        if (found := self._kept.get(key)) is not None:
            self.hits += 1
            return found
        observation = self._journal.observation(digest)
        judgement = self._stats.judge(state, observation)
        return self._keep(key, observation, judgement)

    def note(self, state: CrashState, digest: str, observation: Observation, judgement: Judgement) -> None:
        """Keep the judgement of a state with this content, whose observation is in the journal."""
        self._keep(self._key(state, digest), observation, judgement)

    def _keep(
        self, key: tuple[int, Hashable] | None, observation: Observation, judgement: Judgement
    ) -> tuple[Observation, Judgement]:
        brief = observation.brief()
        if key is None or judgement.missing:
            return brief, judgement
        brief = self._observations.setdefault(brief.model_dump_json(), brief)
        shared = self._judgements.setdefault(key[1], judgement)
        kept = brief, shared if shared == judgement else judgement
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = kept
        return kept

    def _key(self, state: CrashState, digest: str) -> tuple[int, Hashable] | None:
        if (moment := self._stats.moment(state)) is None:
            return None
        # A content that was checked again has a newer observation at another place.
        return self._journal.place(digest), self._moments.setdefault(moment, moment)


class _Progress:
    """The progress line of an exploration."""

    def __init__(self, stats: ExplorationStats, folder: Path, checkers: Checkers) -> None:
        """Begin; ``folder``: that of the exploration's journal, in the directory of its run."""
        self.stats = stats
        self._checkers = checkers
        self._folder = folder
        self.total: int | None = None
        """Number of states that will be judged; None if only the time limits the exploration."""
        self.ends: Callable[[], Deadline | None] = lambda: None
        """Returns the deadline for starting checks; None: no limit."""
        self._every_ns = SHOWN_EVERY_S[0 if console.is_terminal else 1] * 1e9
        self._begun = self._shown = now_ns()
        self._before = 0

    def begin(self) -> None:
        """Start the measurement of the rate: judged states per minute."""
        self._begun, self._before = now_ns(), self.stats.judged

    def show(self) -> None:
        """Print the progress line, unless the last line was printed less than `SHOWN_EVERY_S` ago."""
        now = now_ns()
        if now - self._shown >= self._every_ns:
            self._shown = now
            seconds = (now - self._begun) / 1e9
            step("; ".join(self.words(seconds)))
            report_progress(
                self._folder.parent,
                f"crash states: {self._folder.name}",
                done=self.stats.judged,
                total=self.total,
                unit="crash states",
                left_s=self.left_s(seconds),
            )

    @property
    def _checked(self) -> int:
        """Number of states checked since `begin`, those included that are not judged yet."""
        return self.stats.judged - self._before + self._checkers.unproved

    def left_s(self, seconds: float) -> float | None:
        """Return the estimated time to the end in seconds after checks of ``seconds``; None without an estimate."""
        done, checked = self._checked, self._before + self._checked
        left = [ends.remaining_s] if (ends := self.ends()) else []
        if done and seconds and self.total is not None:
            left.append(max(0, self.total - checked) * seconds / done)
        return min(left, default=None)

    def words(self, seconds: float) -> Iterator[str]:
        """Yield the parts of the progress line; ``seconds``: duration of the checks until now."""
        stats, done = self.stats, self._checked
        of = f" of {self.total:,}" if self.total is not None else ""
        yield f"crash states: {stats.judged:,}{of} judged, {len(stats.digests):,} different disk contents"
        yield f"{stats.broken:,} broken"
        if workers := len(self._checkers.workers):
            yield f"{workers} worker{'s' if workers > 1 else ''}, {self._checkers.open:,} states in work"
        if unproved := self._checkers.unproved:
            yield f"{unproved:,} of them checked, and judged after a proof of their worker"
        if done and seconds:
            yield f"{done / seconds * 60:,.0f} a minute"
        if (left_s := self.left_s(seconds)) is not None:
            yield f"about {left_s:,.0f} s left"
