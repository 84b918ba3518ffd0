"""An exploration: checkers check the crash states of a recorded run; a journal stores each result."""

import fcntl
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from raidproof.core.errors import RequestError
from raidproof.core.log import console, step
from raidproof.core.waiting import Deadline, now_ns
from raidproof.crash.checker_worker import CheckerWorker, CheckResult, Factory, RecordingCursor
from raidproof.crash.sampler import Choice, Choices, Policy
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import End, Observation

VERSION = 1

SEARCHING = 2 / 3
"""Fraction of the time budget for searching once a failure was found; the rest is for shrinking failures."""
BATCH = 500
"""States per pass through the recording: a pass costs seconds, and each batch is a fair sample of all states."""
COLD_EVERY = 100
"""One in this many distinct contents, the first included, is also checked on a newly booted machine."""
NFSD_EVERY = 5
"""One in this many distinct contents is also scanned through nfsd. A checker's nfsd releases a file system at most
once a second (`check_agent.forget`): with a smaller number the checkers would wait for nfsd."""
FSCK_EVERY = 10
"""One in this many distinct contents is also checked by the file system's checker, as is each broken one."""
QUEUE = 3
"""Jobs that a checker queues, the running one included."""
SHOWN_EVERY_S = (0.5, 10.0)
"""Interval between progress lines in seconds: on a terminal, and elsewhere."""


class Begun(BaseModel):
    """The first line of a journal: the exploration's input. A resumed exploration must have the same input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["begun"] = "begun"
    version: int = VERSION
    cycle: str
    log_digest: str
    seed: int
    tear: int
    starts_dirty: bool = False


class Line(BaseModel):
    """One judged state. A line without an observation has the content of an earlier line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["state"] = "state"
    state: str
    """The state as written by `CrashState.dump`."""
    policy: Policy
    number: int
    """Index among the policy's states at this cut."""
    digest: str
    observation: Observation | None = None
    cold: Observation | None = None
    """The observation on a newly booted machine, where that check was requested."""

    @property
    def choice(self) -> Choice:
        """The choice that produced the state."""
        return Choice(self.crash.cut, self.policy, self.number)

    @property
    def crash(self) -> CrashState:
        """The crash state."""
        return CrashState.load(self.state)


class Seen:
    """Observations by content digest, compressed: a scan is 20 KB, and there may be thousands."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self._packed

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, digest: str) -> Observation:
        return Observation.model_validate_json(zlib.decompress(self._packed[digest]))

    def __setitem__(self, digest: str, observation: Observation) -> None:
        self._packed[digest] = zlib.compress(observation.model_dump_json().encode(), 1)


class Journal:
    """``states.jsonl`` of one exploration, open for appending. Only one thread may write to it."""

    def __init__(self, path: Path, begun: Begun) -> None:
        """Begin a journal, or continue the existing one; the journal is locked until it is closed.

        Raises:
            RequestError: its input differs (log, seed, options), or another process has it locked.
        """
        self.path = path
        self.lines: list[Line] = []
        """The lines that the journal already had."""
        self._file = path.open("ab", buffering=0)
        try:
            self._lock()
            end = self._read(begun)
            # Remove the incomplete last line of a killed process.
            self._file.truncate(end)
            if not end:
                self._append(begun)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            # The kernel releases the lock when the process ends, however it ends.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RequestError(
                f"{self.path} is being written by another exploration",
                remedy="wait until it has ended; without --resume, another one has files of its own",
            ) from error

    def _read(self, begun: Begun) -> int:
        before, lines, end = read(self.path)
        if before is None:
            return 0
        for name, was, now in (
            ("cycle", before.cycle, begun.cycle),
            ("write log", before.log_digest, begun.log_digest),
            ("seed", before.seed, begun.seed),
            ("tear", before.tear, begun.tear),
            ("starts dirty", before.starts_dirty, begun.starts_dirty),
        ):
            if was != now:
                raise RequestError(
                    f"{self.path} was begun with {name} {was}, not {now}",
                    remedy="go on with the same, or begin anew without --resume",
                )
        self.lines = lines
        return end

    def add(self, line: Line) -> None:
        """Append a line.

        Raises:
            OSError: the disk is full.
        """
        self._append(line)

    def _append(self, what: BaseModel) -> None:
        data = what.model_dump_json(exclude_none=True).encode() + b"\n"
        while data:
            data = data[os.write(self._file.fileno(), data) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> tuple[Begun | None, list[Line], int]:
    """Return a journal's first line, its other lines, and the end offset in bytes of its last whole line.

    An incomplete last line is ignored.

    Raises:
        RequestError: a whole line is not a line of a journal.
    """
    begun: Begun | None = None
    lines: list[Line] = []
    end = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                break
            try:
                if begun is None:
                    begun = Begun.model_validate_json(raw)
                else:
                    lines.append(Line.model_validate_json(raw))
            except ValidationError as error:
                raise RequestError(
                    f"{path}:{number}: not a line of an exploration: {error.errors()[0]['msg']}"
                ) from error
            end += len(raw)
    return begun, lines, end


def find_state(paths: Iterator[Path], name: str) -> CrashState | None:
    """Return the state of this name from journals, or from state dumps in other JSON files; None if there is none."""
    for path in paths:
        if path.suffix == ".jsonl":
            states = [line.crash for line in read(path)[1]]
        else:
            states = [CrashState.load(dump) for dump in _dumps(json.loads(path.read_text()))]
        for state in states:
            if state.name == name:
                return state
    return None


def _dumps(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in {"dump", "lost_dump"} and isinstance(inner, str):
                yield inner
            else:
                yield from _dumps(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _dumps(inner)


def digest_of(path: Path) -> str:
    """Return a digest that identifies a write log."""
    hashed = blake2b(digest_size=16)
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            hashed.update(data)
    return hashed.hexdigest()


@dataclass(frozen=True)
class Budget:
    """Limits of an exploration; the first that is reached ends it."""

    states: int | None = 1000
    """Judged states, including those of the exploration that is resumed."""
    minutes: float | None = None
    """Time in minutes for searching and for shrinking failures together."""


class Exploration:
    """Checks and judges states in the seeded order; each observation is written to the journal.

    A context manager: leaving it ends the checkers.
    """

    def __init__(
        self, choices: Choices, stats: ExplorationStats, journal: Journal, boot: Factory, *, checkers: int = 2
    ) -> None:
        self.choices = choices
        self.stats = stats
        self.journal = journal
        self.cursor = RecordingCursor(choices.recording)
        self.workers = [CheckerWorker(number, boot, self.cursor) for number in range(1, checkers + 1)]
        self.seconds = 0.0
        """Time spent searching in this process, in seconds."""
        self.out_of_time = False
        self.deadline: Deadline | None = None
        """The end of the time budget; None: the budget has no time limit."""
        self._undo = ExitStack()
        self._seen = Seen()
        self._done: set[Choice] = set()
        self._waiting: dict[str, list[tuple[Choice, CrashState]]] = defaultdict(list)
        """States that wait for the check of their content, by its digest; the first of each list is checked."""
        self._running: dict[Future[CheckResult], tuple[str, CheckerWorker]] = {}
        self._progress = _Progress(stats)
        for line in journal.lines:
            self._remember(line)

    def _remember(self, line: Line) -> None:
        if line.observation is not None:
            self._seen[line.digest] = line.observation
        if line.digest not in self._seen:
            return  # the process ended before its content was checked
        self._count(line, line.crash)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            for worker in self.workers:
                undo.enter_context(worker)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._abandon()
        self._undo.close()

    def run(self, budget: Budget) -> None:
        """Check states until the budget is used up or no state is left; see `SEARCHING` for the use of time.

        Raises:
            RigError: a checker failed twice.
            KeyboardInterrupt: journal and statistics contain all checks until then.
        """
        search_deadline = None
        if budget.minutes is not None:
            self.deadline = Deadline.after(budget.minutes * 60)
            search_deadline = Deadline.after(budget.minutes * 60 * SEARCHING)
        wanted = self.choices.order[: budget.states]
        missing = sum(one not in self._done for one in wanted)
        self._progress.total = (
            None if budget.states is None and search_deadline is not None else self.stats.judged + missing
        )
        self._progress.ends = partial(self._search_ends, search_deadline)
        if not missing:
            return
        step(f"booting {len(self.workers)} checkers")
        for booted in [worker.boot() for worker in self.workers]:
            booted.result()
        begun = now_ns()
        self._progress.begin()
        try:
            for at in range(0, len(wanted), BATCH):
                left = sorted(one for one in wanted[at : at + BATCH] if one not in self._done)
                self._batch(left, search_deadline)
                if self.out_of_time:
                    break
        finally:
            self._abandon()
            self.seconds += (now_ns() - begun) / 1e9

    def _batch(self, choices: list[Choice], search_deadline: Deadline | None) -> None:
        for choice in choices:
            if self._time_is_up(search_deadline):
                self.out_of_time = True
                break
            self.cursor.go(choice.cut)
            state = self.choices.state(choice, self.cursor.window.open)
            digest = self.cursor.window.digest(state)
            if digest in self._seen and not self._lacks_a_check(state, self._seen[digest]):
                self._judge(choice, state, digest)
            elif digest in self._waiting:
                self._waiting[digest].append((choice, state))
            else:
                self._waiting[digest].append((choice, state))
                self._give(digest, state, fsck=digest in self._seen)
        # The next batch begins at an early cut again, which discards the bases of this one.
        while self._running:
            self._collect()

    def _time_is_up(self, search_deadline: Deadline | None) -> bool:
        ends = self._search_ends(search_deadline)
        return ends is not None and ends.passed

    def _search_ends(self, search_deadline: Deadline | None) -> Deadline | None:
        """Return the deadline for starting checks, as far as known now; None: there is none."""
        return search_deadline if self.stats.broken else self.deadline

    def _lacks_a_check(self, state: CrashState, seen: Observation) -> bool:
        """Return whether a content breaks a promise in this state, and its file system has not been checked."""
        return seen.end is End.READ and seen.filesystem is None and self.stats.breaks(state, seen)

    def _give(self, digest: str, state: CrashState, *, fsck: bool = False) -> None:
        while min(worker.waiting for worker in self.workers) >= QUEUE:
            self._collect()
        worker = min(self.workers, key=lambda one: one.waiting)
        worker.waiting += 1
        number = len(self._seen) + len(self._running)
        job = self.cursor.job(
            state,
            cold=number % COLD_EVERY == 0,
            nfsd=number % NFSD_EVERY == 0,
            fsck=fsck or number % FSCK_EVERY == 0,
            breaks=partial(self.stats.breaks, state),
        )
        self._running[worker.submit(job)] = (digest, worker)

    def _collect(self) -> None:
        ended, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in ended:
            digest, worker = self._running.pop(future)
            worker.waiting -= 1
            result = future.result()
            first, *others = self._waiting.pop(digest)
            self._judge(*first, digest, result)
            for choice, state in others:
                self._judge(choice, state, digest)

    def _judge(self, choice: Choice, state: CrashState, digest: str, result: CheckResult | None = None) -> None:
        line = Line(
            state=state.dump(),
            policy=choice.policy,
            number=choice.number,
            digest=digest,
            observation=result and result.observation,
            cold=result and result.cold,
        )
        self.journal.add(line)
        if result is not None:
            self._seen[digest] = result.observation
        self._count(line, state)
        self._progress.tell()

    def _count(self, line: Line, state: CrashState) -> None:
        choice = Choice(state.cut, line.policy, line.number)
        self._done.add(choice)
        observation = line.observation or self._seen[line.digest]
        self.stats.add(choice, state, line.digest, observation, checked=line.observation is not None)
        if line.observation is not None and line.cold is not None:
            self.stats.compare(choice, state, line.observation, line.cold)

    def _abandon(self) -> None:
        """Start no further checks; running ones end with their checkers."""
        for future in self._running:
            future.cancel()
        self._running.clear()
        self._waiting.clear()


class _Progress:
    """The progress line."""

    def __init__(self, stats: ExplorationStats) -> None:
        self.stats = stats
        self.total: int | None = None
        """Total number of states, where it is known."""
        self.ends: Callable[[], Deadline | None] = lambda: None
        """Returns the deadline of the search, whatever is left then."""
        self._begun = self._told = now_ns()
        self._before = 0

    def begin(self) -> None:
        """Start counting for the rate."""
        self._begun, self._before = now_ns(), self.stats.judged

    def tell(self) -> None:
        """Print the line, unless the last one was printed a moment ago."""
        now = now_ns()
        if now - self._told >= SHOWN_EVERY_S[0 if console.is_terminal else 1] * 1e9:
            self._told = now
            step("; ".join(self.words((now - self._begun) / 1e9)))

    def words(self, seconds: float) -> Iterator[str]:
        """Yield the parts of the progress line."""
        stats, done = self.stats, self.stats.judged - self._before
        of = f" of {self.total:,}" if self.total is not None else ""
        yield f"crash states: {stats.judged:,}{of} judged, {len(stats.digests):,} different"
        yield f"{stats.broken:,} broken"
        left = [ends.remaining_s] if (ends := self.ends()) else []
        if done and seconds:
            yield f"{done / seconds * 60:,.0f} a minute"
            if self.total is not None:
                left.append((self.total - stats.judged) * seconds / done)
        if left:
            yield f"about {min(left):,.0f} s left"
