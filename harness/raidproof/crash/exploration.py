"""An exploration: checkers check crash states of a recorded run, and a journal stores each result."""

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
from raidproof.crash.sampler import Choice, Chosen, Policy
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import End, Observation
from raidproof.record.results.progress import report_progress

VERSION = 1

SEARCHING = 2 / 3
"""Fraction of the time budget for checking new states if a failure was found; the rest is for shrinking failures."""
BATCH = 500
"""Number of states in one pass through the recording, in the order of their cuts. A pass takes seconds."""
COLD_EVERY = 100
"""Number of different disk contents of which one, the first, is also checked on a newly booted machine."""
NFSD_EVERY = 5
"""Number of different disk contents of which one is also scanned through nfsd.

nfsd in a checker releases a file system at most once a second (`check_agent.forget`); with a smaller number the
checkers would wait for nfsd."""
FSCK_EVERY = 10
"""Number of different disk contents of which one is also checked by fsck, besides each state that breaks a promise."""
QUEUE = 3
"""Limit of jobs in the queue of one checker, including the running job."""
SHOWN_EVERY_S = (0.5, 10.0)
"""Interval between progress lines in seconds: if the output is a terminal, and if it is none."""


class Begun(BaseModel):
    """The first line of a journal: the input of the exploration. A resumed exploration must have the same input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["begun"] = "begun"
    version: int = VERSION
    """Version of the journal's format."""
    cycle: str
    """Name of the crash test whose states are checked."""
    log_digest: str
    """Digest of the write log (`digest_of`)."""
    seed: int
    """Seed of the order of the states."""
    tear: int
    """Number of bytes that a disk writes atomically: the unit in which requests are torn."""
    starts_dirty: bool = False
    """Whether checkers make md start arrays that are both dirty and degraded."""
    all_losses: int | None = None
    """Greatest number of lost requests of an exhaustive exploration; None: the exploration is a sample."""
    uniform: bool = True
    """Whether all orders of the states are equally likely; False: cuts of greater interest tend to come first.

    Journals without this field have the uniform order."""
    epochs: tuple[int, int] | None = None
    """First and last flush epoch of an exhaustive exploration; None: a sample, or all flush epochs."""


class Line(BaseModel):
    """One judged crash state. If a line has no observation, an earlier line with the same digest has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["state"] = "state"
    state: str
    """The crash state, in the format of `CrashState.dump`."""
    policy: Policy
    number: int
    """Number of the state, see `Choice.number`."""
    digest: str
    """Digest of the disks' content in the state."""
    observation: Observation | None = None
    """What a checker observed in the state; None if an earlier line with the same digest has the observation."""
    cold: Observation | None = None
    """What a newly booted machine observed in the state; None if this check was not requested."""

    @property
    def choice(self) -> Choice:
        """The cut, policy and number of the state."""
        return Choice(self.crash.cut, self.policy, self.number)

    @property
    def crash(self) -> CrashState:
        """The crash state that ``state`` describes."""
        return CrashState.load(self.state)


class _ObservationCache:
    """Observations by digest of the disks' content, compressed: there may be thousands of 20 KB each."""

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
    """The file ``states.jsonl`` of one exploration, open for appending. Only one thread may append lines."""

    def __init__(self, path: Path, begun: Begun) -> None:
        """Begin a journal, or continue the existing journal. The file is locked (flock(2)) until `close`.

        Raises:
            RequestError: the existing journal has another input (write log, seed, options), or another process has
                locked the file.
        """
        self.path = path
        self.lines: list[Line] = []
        """Lines that the journal had when it was opened, without its first line (`Begun`)."""
        self._file = path.open("ab", buffering=0)
        try:
            self._lock()
            end = self._read(begun)
            # Remove the incomplete last line that a killed process has left.
            self._file.truncate(end)
            if not end:
                self._append(begun)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            # The kernel releases the lock at the end of the process, even after SIGKILL.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RequestError(
                f"another exploration is writing {self.path}",
                remedy="wait for the end of the other exploration, or omit --resume to write to new files",
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
            ("all losses", before.all_losses, begun.all_losses),
            ("epochs", before.epochs, begun.epochs),
            ("uniform", before.uniform, begun.uniform),
        ):
            if was != now:
                raise RequestError(
                    f"the exploration in {self.path} was begun with {name} {was}, not {now}",
                    remedy=f"resume with {name} {was}, or omit --resume to begin a new exploration",
                )
        self.lines = lines
        return end

    def add(self, line: Line) -> None:
        """Append a line to the journal.

        Raises:
            OSError: the file cannot be written, for example because the host's disk is full.
        """
        self._append(line)

    def _append(self, what: BaseModel) -> None:
        data = what.model_dump_json(exclude_none=True).encode() + b"\n"
        while data:
            data = data[os.write(self._file.fileno(), data) :]

    def close(self) -> None:
        """Make the journal durable, close it and release its lock."""
        try:
            os.fsync(self._file.fileno())
        finally:
            self._file.close()


def read(path: Path) -> tuple[Begun | None, list[Line], int]:
    """Return a journal's first line (None in an empty file), its other lines, and the end of its last complete line.

    The end is an offset in bytes. An incomplete last line is ignored.

    Raises:
        RequestError: a complete line does not have the format of a journal.
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
                    f"{path}:{number}: the line does not have the format of a journal: {error.errors()[0]['msg']}"
                ) from error
            end += len(raw)
    return begun, lines, end


def find_state(paths: Iterator[Path], name: str) -> CrashState | None:
    """Return the crash state with a name; None if no file contains the state.

    ``paths``: journals (``.jsonl``), and other JSON files with dumps of states.
    """
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
    """Return the BLAKE2b digest of a write log's file, which identifies the log."""
    hashed = blake2b(digest_size=16)
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            hashed.update(data)
    return hashed.hexdigest()


@dataclass(frozen=True)
class Budget:
    """The limits of an exploration, which ends when it reaches the first of them."""

    states: int | None = 1000
    """Number of judged states, including the states in a journal that is resumed; None: unlimited."""
    minutes: float | None = None
    """Time in minutes for checking states and shrinking failures together; None: unlimited."""


class Exploration:
    """Checks and judges crash states in the order of ``choices``, and appends each result to the journal.

    A context manager: leaving the context ends the checkers.
    """

    def __init__(
        self, choices: Chosen, stats: ExplorationStats, journal: Journal, boot: Factory, *, checkers: int = 2
    ) -> None:
        self.choices = choices
        self.stats = stats
        self.journal = journal
        self.cursor = RecordingCursor(choices.recording)
        self.workers = [CheckerWorker(number, boot, self.cursor) for number in range(1, checkers + 1)]
        self.seconds = 0.0
        """Duration in seconds of the checks in this process, without the shrinking of failures."""
        self.out_of_time = False
        """Whether the time budget ended the checks."""
        self.deadline: Deadline | None = None
        """End of the time budget; None: the budget has no time limit."""
        self._undo = ExitStack()
        self._seen = _ObservationCache()
        self._done: set[Choice] = set()
        self._waiting: dict[str, list[tuple[Choice, CrashState]]] = defaultdict(list)
        """States that wait for the check of their disk content, by digest; the check runs for the first of a list."""
        self._running: dict[Future[CheckResult], tuple[str, CheckerWorker]] = {}
        """Submitted checks, with the digest of the content and the worker."""
        self._progress = _Progress(stats, journal.path.parent)
        for line in journal.lines:
            self._restore(line)

    def _restore(self, line: Line) -> None:
        if line.observation is not None:
            self._seen[line.digest] = line.observation
        if line.digest not in self._seen:
            return  # the earlier process ended before the check of this content
        self._count(line, line.crash)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            for worker in self.workers:
                undo.enter_context(worker)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._cancel()
        self._undo.close()

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
        step(f"booting {len(self.workers)} checker machines")
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
            self._cancel()
            self.seconds += (now_ns() - begun) / 1e9

    def _batch(self, choices: list[Choice], search_deadline: Deadline | None) -> None:
        for choice in choices:
            if self._time_is_up(search_deadline):
                self.out_of_time = True
                break
            self.cursor.go(choice.cut)
            state = self.choices.state(choice, self.cursor.window.open)
            digest = self.cursor.window.digest(state)
            if digest in self._seen and not self._needs_fsck(state, self._seen[digest]):
                self._judge(choice, state, digest)
            elif digest in self._waiting:
                self._waiting[digest].append((choice, state))
            else:
                self._waiting[digest].append((choice, state))
                self._submit(digest, state, fsck=digest in self._seen)
        # The next batch begins at an early cut again, and `RecordingCursor.go` then replaces the bases of this batch.
        while self._running:
            self._collect()

    def _time_is_up(self, search_deadline: Deadline | None) -> bool:
        ends = self._search_ends(search_deadline)
        return ends is not None and ends.passed

    def _search_ends(self, search_deadline: Deadline | None) -> Deadline | None:
        """Return the deadline for starting checks, which is earlier once a state has failed; None: no limit."""
        return search_deadline if self.stats.broken else self.deadline

    def _needs_fsck(self, state: CrashState, seen: Observation) -> bool:
        """Return whether a state breaks a promise with an observation that lacks the result of fsck."""
        return seen.end is End.READ and seen.filesystem is None and self.stats.breaks(state, seen)

    def _submit(self, digest: str, state: CrashState, *, fsck: bool = False) -> None:
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
        self._progress.show()

    def _count(self, line: Line, state: CrashState) -> None:
        choice = Choice(state.cut, line.policy, line.number)
        self._done.add(choice)
        observation = line.observation or self._seen[line.digest]
        self.stats.add(choice, state, line.digest, observation, checked=line.observation is not None)
        if line.observation is not None and line.cold is not None:
            self.stats.compare(choice, state, line.observation, line.cold)

    def _cancel(self) -> None:
        """Cancel all checks that have not begun; running checks end with their checkers."""
        for future in self._running:
            future.cancel()
        self._running.clear()
        self._waiting.clear()


class _Progress:
    """The progress line of an exploration."""

    def __init__(self, stats: ExplorationStats, folder: Path) -> None:
        """Begin; ``folder``: that of the exploration's journal, in the directory of its run."""
        self.stats = stats
        self._folder = folder
        self.total: int | None = None
        """Number of states that will be judged; None if only the time limits the exploration."""
        self.ends: Callable[[], Deadline | None] = lambda: None
        """Returns the deadline for starting checks; None: no limit."""
        self._begun = self._shown = now_ns()
        self._before = 0

    def begin(self) -> None:
        """Start the measurement of the rate: judged states per minute."""
        self._begun, self._before = now_ns(), self.stats.judged

    def show(self) -> None:
        """Print the progress line, unless the last line was printed less than `SHOWN_EVERY_S` ago."""
        now = now_ns()
        if now - self._shown >= SHOWN_EVERY_S[0 if console.is_terminal else 1] * 1e9:
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

    def left_s(self, seconds: float) -> float | None:
        """Return the estimated time to the end in seconds after checks of ``seconds``; None without an estimate."""
        done = self.stats.judged - self._before
        left = [ends.remaining_s] if (ends := self.ends()) else []
        if done and seconds and self.total is not None:
            left.append((self.total - self.stats.judged) * seconds / done)
        return min(left, default=None)

    def words(self, seconds: float) -> Iterator[str]:
        """Yield the parts of the progress line; ``seconds``: duration of the checks until now."""
        stats, done = self.stats, self.stats.judged - self._before
        of = f" of {self.total:,}" if self.total is not None else ""
        yield f"crash states: {stats.judged:,}{of} judged, {len(stats.digests):,} different disk contents"
        yield f"{stats.broken:,} broken"
        if done and seconds:
            yield f"{done / seconds * 60:,.0f} a minute"
        if (left_s := self.left_s(seconds)) is not None:
            yield f"about {left_s:,.0f} s left"
