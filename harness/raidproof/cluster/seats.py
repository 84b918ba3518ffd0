"""The checkers of a worker: each has a machine, and its own position in the recording."""

import pickle
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from raidproof.cluster.campaign import Campaign
from raidproof.cluster.proof import Points, Unsound, points_of, prove
from raidproof.core.scratch import scratch_folder
from raidproof.core.waiting import Deadline
from raidproof.crash.checker_worker import CheckerWorker, CheckResult, RecordingCursor
from raidproof.crash.checkers import QUEUE, Answer, Request, job_of
from raidproof.crash.owner import WriteOwners
from raidproof.crash.shrink import Replayer, explain
from raidproof.crash.stats import ExplorationStats, Group
from raidproof.record.exploration import ColdRecord
from raidproof.record.failure import FailureRecord
from raidproof.run.source import Source
from raidproof.verdict.damage import Damage
from raidproof.verdict.oracle import Judgement

IDLE_S = 60.0
"""Time in seconds after which machines end that check nothing, for example because the client was killed."""


class Explained(NamedTuple):
    """The result of shrinking failures, and what the checks for it add to the statistics."""

    failures: list[FailureRecord]
    groups: dict[Damage, Group]
    cold: ColdRecord
    hung: list[str]
    broken: int
    """Number of states that are broken only on a newly booted machine."""


@dataclass(eq=False)
class Seat:
    """One checker machine with its position in the recording."""

    worker: CheckerWorker
    cursor: RecordingCursor
    stats: ExplorationStats
    used: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that uses the seat."""
    sound: bool = False
    """Whether the seat has proved itself once."""
    proved: bool = False
    """Whether the seat has proved itself since its last check."""


@dataclass(eq=False)
class Seats:
    """The checkers of one campaign in one worker process. All methods are thread-safe."""

    campaign: Campaign
    name: str
    """Name of the worker."""
    _source: Source | None = None
    _points: Points | None = None
    _made: list[Seat] = field(default_factory=list)
    _undo: ExitStack = field(default_factory=ExitStack)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _idle: threading.Timer | None = None
    _ended_unproved: bool = False
    """Whether a machine ended that had checked states since its last proof."""
    ended: bool = False

    def prepare(self) -> Source:
        """Return the crash test; the first call prepares it, as `Campaign.prepared` does, with the same errors."""
        with self._lock:
            if self._source is None:
                source = self.campaign.prepared()
                self._points = points_of(ExplorationStats(source.recording, source.oracle))
                self._source = source
            return self._source

    @contextmanager
    def borrowed(self) -> Iterator[Seat]:
        """Return an idle seat as a context manager, or a new one; a seat that has never proved itself does it first.

        Raises:
            Unsound: the proof failed, or the worker is ending.
            RigError: the checker does not boot, or failed.
        """
        seat = self._take(self.prepare())
        try:
            if not seat.sound:
                self._prove(seat)
            seat.proved = False
            yield seat
        finally:
            seat.used.release()
            self._start_idle_timer()

    def _take(self, source: Source) -> Seat:
        """Return a seat whose lock this thread holds."""
        with self._lock:
            if self.ended:
                raise Unsound("the worker is ending")
            for seat in self._made:
                if seat.used.acquire(blocking=False):
                    return seat
            logs = self._undo.enter_context(scratch_folder("checker"))
            stats, cursor = ExplorationStats(source.recording, source.oracle), RecordingCursor(source.recording)
            worker = CheckerWorker(len(self._made) + 1, source.boots(logs))
            self._undo.enter_context(worker)
            self._made.append(seat := Seat(worker, cursor, stats))
            seat.used.acquire()
            return seat

    def _start_idle_timer(self) -> None:
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            if not self.ended:
                self._idle = threading.Timer(IDLE_S, self._end_if_idle)
                self._idle.daemon = True
                self._idle.start()

    def _prove(self, seat: Seat) -> None:
        assert self._points is not None  # noqa: S101  `prepare` sets it
        prove(seat.worker, seat.cursor, seat.stats, self._points)
        seat.sound = seat.proved = True

    def prove_all(self) -> None:
        """Prove each seat that has checked states since its last proof, all at once; wait for seats that are in use.

        Raises:
            Unsound: an answer is wrong, or a machine ended before it could prove itself again.
            RigError: a check failed twice.
        """
        with self._lock:
            seats = list(self._made)
        with ThreadPoolExecutor(max(1, len(seats))) as threads:
            for proved in [threads.submit(self._prove_again, seat) for seat in seats]:
                proved.result()
        if self._ended_unproved:
            raise Unsound("a machine ended before it could prove itself again")

    def _prove_again(self, seat: Seat) -> None:
        with seat.used:
            if not seat.proved:
                self._prove(seat)

    def _end_if_idle(self) -> None:
        with self._lock:
            if not any(seat.used.locked() for seat in self._made):
                self.end_machines()

    def end_machines(self) -> None:
        """End all machines; checks that run fail, and the next check boots a new machine, which proves itself."""
        with self._lock:
            undo, self._undo = self._undo, ExitStack()
            self._ended_unproved |= not all(seat.proved for seat in self._made)
            self._made.clear()
        undo.close()

    def end(self) -> None:
        """End all machines; checks that run fail."""
        with self._lock:
            self.ended = True
            if self._idle is not None:
                self._idle.cancel()
        self.end_machines()

    def check(self, requests: Sequence[Request]) -> list[Answer]:
        """Check states, and judge what was observed.

        Raises:
            Unsound: the worker's copy of the recording gives another content, or its proof failed.
            RigError: the checker does not boot, or a check failed twice.
        """
        with self.borrowed() as seat:
            running: list[Future[CheckResult]] = []
            # A seat serves one user after the other.
            with ExitStack() as undo:
                undo.callback(wait, running)
                self._submit(seat, requests, running)
            answers = []
            for request, future in zip(requests, running, strict=True):
                result = future.result()
                judgement = seat.stats.judge(request.state, result.observation)
                answers.append(Answer(request, result, judgement, self.name))
            return answers

    @staticmethod
    def _submit(seat: Seat, requests: Sequence[Request], running: "list[Future[CheckResult]]") -> None:
        for place, request in enumerate(requests):
            seat.cursor.go(request.state.cut)
            if seat.cursor.window.digest(request.state) != request.digest:
                raise Unsound(f"the content of state {request.state.name} differs from the client's")
            if place >= QUEUE:
                running[place - QUEUE].result()
            running.append(seat.worker.submit(job_of(request, seat.cursor, seat.stats)))

    def explain(
        self, groups: Mapping[Damage, Group], replay: Callable[[str], list[str]], most: int, until_s: float | None
    ) -> Explained:
        """Repeat and shrink ``most`` failures, as `raidproof.crash.shrink.explain` does, in ``until_s`` seconds.

        Raises:
            Unsound: the proof of the checker failed.
            RigError: a check failed twice for a reason other than the state.
        """
        with self.borrowed() as seat:
            stats = ExplorationStats(seat.stats.recording, seat.stats.oracle)
            stats.groups = dict(groups)
            failures: list[FailureRecord] = []
            replayer, owners = Replayer(seat.worker, seat.cursor, stats), WriteOwners(seat.worker, seat.cursor)
            until = None if until_s is None else Deadline.after(until_s)
            explain(failures, replayer, owners, replay, most=most, until=until, structure_of=owners.structure_of)
            return Explained(failures, stats.groups, stats.cold, stats.hung, stats.broken)


class _Sent(NamedTuple):
    """An answer on its way to the client, which has the request."""

    line: bytes
    result: CheckResult
    judgement: Judgement | None
    worker: str | None


def packed(answers: Sequence[Answer]) -> bytes:
    """Return answers as compressed bytes: a client holds thousands of them until their worker has proved itself.

    The scan of the ledger is only in the journal's line, so that the client need not decode it. A check on a newly
    booted machine is compared with the scan.
    """
    sent = []
    for one in answers:
        observation, cold = one.result
        result = CheckResult(observation.without_scan(), None) if cold is None else one.result
        sent.append(_Sent(one.journal_line(), result, one.judgement, one.worker))
    return zlib.compress(pickle.dumps(sent), 1)


def unpacked(data: bytes, requests: Sequence[Request]) -> list[Answer]:
    """Return the answers in the bytes that `packed` returned, in the order of their requests."""
    sent: list[_Sent] = pickle.loads(zlib.decompress(data))  # noqa: S301  workers are trusted, see docs/cluster.md
    return [
        Answer(request, one.result, one.judgement, one.worker, one.line)
        for request, one in zip(requests, sent, strict=True)
    ]
