"""The crash states of a recorded run, looked at one after the other by several checkers, and judged."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Self

from raidproof.core.log import console, step
from raidproof.core.waiting import Deadline, now_ns
from raidproof.crash.checker.observation import End, Observation
from raidproof.crash.checker.worker import CheckerWorker, CheckResult, Factory, RecordingCursor
from raidproof.crash.journal import Journal, Line, Seen
from raidproof.crash.states.sampler import Choice, Choices
from raidproof.crash.states.state import CrashState
from raidproof.crash.stats import ExplorationStats

LOOKING = 2 / 3
"""The part of the time that is for looking where something broke; what is left is for explaining it."""
BATCH = 500
"""States between two passes through the recording: each pass costs seconds, and each batch is a fair part of all."""
COLD_EVERY = 100
"""The first of the different contents, and then one in so many, is looked at by a freshly booted machine, too."""
NFSD_EVERY = 5
"""The same for those that are read through nfsd, too. A checker's nfsd lets go of a state no more than once a second
(`check_agent.forget`): were it fewer to one, they would wait for it."""
FSCK_EVERY = 10
"""The same for those at which the file system's own checker looks, too; it looks at each that breaks a promise."""
QUEUE = 3
"""Jobs that a checker is given before it has done the first."""
SHOWN_EVERY_S = (0.5, 10.0)
"""On a terminal, and elsewhere."""


@dataclass(frozen=True)
class Budget:
    """How far an exploration goes; what is reached first counts."""

    states: int | None = 1000
    """Judged, those of an exploration that is gone on with included."""
    minutes: float | None = None
    """For looking and for explaining what broke together."""


class Exploration:
    """States from the seeded order, each judged; what is seen goes to the journal before it is judged.

    A context manager: leaving it ends the checkers.
    """

    def __init__(
        self, choices: Choices, tally: ExplorationStats, journal: Journal, boot: Factory, *, checkers: int = 2
    ) -> None:
        self.choices = choices
        self.tally = tally
        self.journal = journal
        self.roller = RecordingCursor(choices.recording)
        self.benches = [CheckerWorker(number, boot, self.roller) for number in range(1, checkers + 1)]
        self.seconds = 0.0
        """Spent looking, this time."""
        self.out_of_time = False
        self.deadline: Deadline | None = None
        """By when all is to be done; None: the budget has no time."""
        self._undo = ExitStack()
        self._seen = Seen()
        self._done: set[Choice] = set()
        self._waiting: dict[str, list[tuple[Choice, CrashState]]] = defaultdict(list)
        """States whose content is being looked at, by its digest: the first is the one that is shown."""
        self._running: dict[Future[CheckResult], tuple[str, CheckerWorker]] = {}
        self._progress = _Progress(tally)
        for line in journal.lines:
            self._remember(line)

    def _remember(self, line: Line) -> None:
        if line.observation is not None:
            self._seen[line.digest] = line.observation
        if line.digest not in self._seen:
            return  # its content was to be looked at, and never was
        self._count(line, line.crash)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            for bench in self.benches:
                undo.enter_context(bench)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._abandon()
        self._undo.close()

    def run(self, budget: Budget) -> None:
        """Look at states until the budget is used up or there are no more; see `LOOKING` for its time.

        Raises:
            RigError: a checker failed twice.
            KeyboardInterrupt: what was looked at until then is in journal and tally.
        """
        looking = None
        if budget.minutes is not None:
            self.deadline = Deadline.after(budget.minutes * 60)
            looking = Deadline.after(budget.minutes * 60 * LOOKING)
        wanted = self.choices.order[: budget.states]
        missing = sum(one not in self._done for one in wanted)
        self._progress.total = None if budget.states is None and looking is not None else self.tally.judged + missing
        self._progress.ends = partial(self._looking_ends, looking)
        if not missing:
            return
        step(f"booting {len(self.benches)} checkers")
        for booted in [bench.boot() for bench in self.benches]:
            booted.result()
        begun = now_ns()
        self._progress.begin()
        try:
            for at in range(0, len(wanted), BATCH):
                left = sorted(one for one in wanted[at : at + BATCH] if one not in self._done)
                self._batch(left, looking)
                if self.out_of_time:
                    break
        finally:
            self._abandon()
            self.seconds += (now_ns() - begun) / 1e9

    def _batch(self, choices: list[Choice], looking: Deadline | None) -> None:
        for choice in choices:
            if self._time_is_up(looking):
                self.out_of_time = True
                break
            self.roller.go(choice.cut)
            state = self.choices.state(choice, self.roller.window.open)
            digest = self.roller.window.digest(state)
            if digest in self._seen and not self._lacks_a_check(state, self._seen[digest]):
                self._judge(choice, state, digest)
            elif digest in self._waiting:
                self._waiting[digest].append((choice, state))
            else:
                self._waiting[digest].append((choice, state))
                self._give(digest, state, fsck=digest in self._seen)
        # The next batch begins at an early cut again: nobody may still need the bases of this one.
        while self._running:
            self._collect()

    def _time_is_up(self, looking: Deadline | None) -> bool:
        ends = self._looking_ends(looking)
        return ends is not None and ends.passed

    def _looking_ends(self, looking: Deadline | None) -> Deadline | None:
        """Return when no further state is looked at, as things are; None: whenever all were."""
        return looking if self.tally.broken else self.deadline

    def _lacks_a_check(self, state: CrashState, seen: Observation) -> bool:
        """Return whether a content breaks a promise in this state alone, and nothing has checked its file system."""
        return seen.end is End.READ and seen.filesystem is None and self.tally.breaks(state, seen)

    def _give(self, digest: str, state: CrashState, *, fsck: bool = False) -> None:
        while min(bench.waiting for bench in self.benches) >= QUEUE:
            self._collect()
        bench = min(self.benches, key=lambda one: one.waiting)
        bench.waiting += 1
        number = len(self._seen) + len(self._running)
        job = self.roller.job(
            state,
            cold=number % COLD_EVERY == 0,
            nfsd=number % NFSD_EVERY == 0,
            fsck=fsck or number % FSCK_EVERY == 0,
            breaks=partial(self.tally.breaks, state),
        )
        self._running[bench.submit(job)] = (digest, bench)

    def _collect(self) -> None:
        ended, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in ended:
            digest, bench = self._running.pop(future)
            bench.waiting -= 1
            looked = future.result()
            first, *others = self._waiting.pop(digest)
            self._judge(*first, digest, looked)
            for choice, state in others:
                self._judge(choice, state, digest)

    def _judge(self, choice: Choice, state: CrashState, digest: str, looked: CheckResult | None = None) -> None:
        line = Line(
            state=state.dump(),
            policy=choice.policy,
            number=choice.number,
            digest=digest,
            observation=looked and looked.observation,
            cold=looked and looked.cold,
        )
        self.journal.add(line)
        if looked is not None:
            self._seen[digest] = looked.observation
        self._count(line, state)
        self._progress.tell()

    def _count(self, line: Line, state: CrashState) -> None:
        choice = Choice(state.cut, line.policy, line.number)
        self._done.add(choice)
        observation = line.observation or self._seen[line.digest]
        self.tally.add(choice, state, line.digest, observation, checked=line.observation is not None)
        if line.observation is not None and line.cold is not None:
            self.tally.compare(choice, state, line.observation, line.cold)

    def _abandon(self) -> None:
        """Begin nothing more; what is under way comes to its end with its checker."""
        for future in self._running:
            future.cancel()
        self._running.clear()
        self._waiting.clear()


class _Progress:
    """The line that says how far it is."""

    def __init__(self, tally: ExplorationStats) -> None:
        self.tally = tally
        self.total: int | None = None
        """States, where it is known how many there are to be."""
        self.ends: Callable[[], Deadline | None] = lambda: None
        """When looking ends, however many there are left."""
        self._begun = self._told = now_ns()
        self._before = 0

    def begin(self) -> None:
        """Count from here."""
        self._begun, self._before = now_ns(), self.tally.judged

    def tell(self) -> None:
        """Say it, unless it was said a moment ago."""
        now = now_ns()
        if now - self._told >= SHOWN_EVERY_S[0 if console.is_terminal else 1] * 1e9:
            self._told = now
            step("; ".join(self.words((now - self._begun) / 1e9)))

    def words(self, seconds: float) -> Iterator[str]:
        """Yield the parts of the line."""
        tally, done = self.tally, self.tally.judged - self._before
        of = f" of {self.total:,}" if self.total is not None else ""
        yield f"crash states: {tally.judged:,}{of} judged, {len(tally.digests):,} different"
        yield f"{tally.broken:,} broken"
        left = [ends.remaining_s] if (ends := self.ends()) else []
        if done and seconds:
            yield f"{done / seconds * 60:,.0f} a minute"
            if self.total is not None:
                left.append((self.total - tally.judged) * seconds / done)
        if left:
            yield f"about {min(left):,.0f} s left"
