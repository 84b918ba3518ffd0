"""The checkers of an exploration: who checks its crash states. Here: checker machines of this host.

Other packages check states elsewhere: `Exploration` uses only the protocol `Checkers`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple, Protocol, Self

from raidproof.core.log import step
from raidproof.core.waiting import Deadline
from raidproof.crash.checker_worker import CheckerWorker, CheckResult, Factory, Job, RecordingCursor
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.journal import Line
from raidproof.crash.owner import WriteOwners
from raidproof.crash.sampler import Choice
from raidproof.crash.shrink import Replayer, explain
from raidproof.crash.states import CrashState, Recording
from raidproof.crash.stats import ExplorationStats
from raidproof.record.failure import FailureRecord
from raidproof.record.worker import WorkerRecord
from raidproof.verdict.oracle import Judgement

BATCH = 500
"""Number of states in one pass through the recording, in the order of their cuts. A pass takes seconds."""
QUEUE = 3
"""Limit of jobs in the queue of one checker, including the running job."""


class Request(NamedTuple):
    """A request to check one crash state."""

    choice: Choice
    state: CrashState
    digest: str
    """Digest of the disks' content in the state."""
    cold: bool = False
    """Whether a newly booted machine checks the state also."""
    nfsd: bool = False
    """Whether the ledger is scanned through nfsd also."""
    fsck: bool = False
    """Whether the file system's checker (fsck) runs also."""


class Answer(NamedTuple):
    """The result of a request."""

    request: Request
    result: CheckResult
    judgement: Judgement | None = None
    """The verdict on the observation, if it was made where the state was checked; None: the caller judges."""
    worker: str | None = None
    """Name of the worker that checked the state; None: this process."""
    line: bytes | None = None
    """The journal's line of the state (`Line.dump`), if it was made where the state was checked.

    Then the observation in ``result`` may lack the scan of the ledger."""

    def journal_line(self) -> bytes:
        """Return the journal's line of the state."""
        if self.line is not None:
            return self.line
        choice, state, digest, *_ = self.request
        seen, cold = self.result
        return Line.of(choice, state, digest, observation=seen, cold=cold, worker=self.worker).dump()


class Checkers(Protocol):
    """Checks crash states of one recording, several at the same time. A context manager: leaving it ends all checks.

    Only one thread may use it.
    """

    @property
    def batch(self) -> int:
        """Number of states that an exploration sorts by their cuts, and requests in this order."""

    @property
    def workers(self) -> Sequence[WorkerRecord]:
        """The workers that checked states until now; empty if this process checks them."""

    def __enter__(self) -> Self:
        """Begin; boot nothing yet."""

    def __exit__(self, *error: object) -> None:
        """End all checks and machines."""

    def boot(self) -> None:
        """Prepare for checks.

        Raises:
            RigError: no checker boots.
        """

    def at(self, cut: int) -> DiskStates:
        """Move to a cut, and return the contents of its states. Within one batch a cut must not be before the last."""

    @property
    def full(self) -> bool:
        """Whether enough requests are waiting, so that the caller should collect answers first."""

    @property
    def open(self) -> int:
        """Number of requests whose answers have not been collected."""

    @property
    def unproved(self) -> int:
        """Number of checked states whose answers come only when their worker has proved itself."""

    def submit(self, request: Request) -> None:
        """Request the check of a state of the cut to which `at` moved last."""

    def collect(self) -> Sequence[Answer]:
        """Wait until at least one answer is there, and return all answers that are there.

        Raises:
            RigError: a check failed twice for a reason other than the state.
        """

    def end_batch(self) -> bool:
        """End a batch: return whether the caller must collect all answers before the next batch begins."""

    def cancel(self) -> None:
        """Forget all requests without answers."""

    def explain(
        self,
        failures: list[FailureRecord],
        stats: ExplorationStats,
        replay: Callable[[str], list[str]],
        most: int,
        until: Deadline | None,
    ) -> None:
        """Append the record of each failure to ``failures``; repeat and shrink ``most`` failures: `shrink.explain`.

        Raises:
            RigError: a check failed twice for a reason other than the state.
        """


CheckersOf = Callable[[ExplorationStats], Checkers]
"""A function that returns the checkers of an exploration, which has these statistics."""


class LocalCheckers:
    """Checker machines of this host."""

    batch = BATCH
    workers: Sequence[WorkerRecord] = ()
    unproved = 0

    def __init__(
        self,
        recording: Recording,
        boot: Factory,
        stats: ExplorationStats,
        *,
        checkers: int = 2,
        smallest: bool = True,
        cold: bool = True,
    ) -> None:
        """``boot`` boots a checker; ``stats`` judges whether an observation breaks a promise, which fsck follows.

        ``smallest`` and ``cold``: see `shrink.explain`.
        """
        self._stats = stats
        self._smallest, self._cold = smallest, cold
        self.cursor = RecordingCursor(recording)
        self.seats = [CheckerWorker(number, boot) for number in range(1, checkers + 1)]
        self._undo = ExitStack()
        self._running: dict[Future[CheckResult], tuple[Request, CheckerWorker]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            for seat in self.seats:
                undo.enter_context(seat)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()
        self._undo.close()

    def read(self, recording: Recording, stats: ExplorationStats) -> Self:
        """Check states of another recording of the same disks from now on, judged by ``stats``; no request is open."""
        self.cursor.read(recording)
        self._stats = stats
        return self

    def boot(self) -> None:
        """See `Checkers.boot`."""
        if not all(seat.booted for seat in self.seats):
            step(f"booting {len(self.seats)} checker machines")
        for booted in [seat.boot() for seat in self.seats]:
            booted.result()

    def at(self, cut: int) -> DiskStates:
        """See `Checkers.at`."""
        self.cursor.go(cut)
        return self.cursor.window

    @property
    def full(self) -> bool:
        """See `Checkers.full`."""
        return min(seat.waiting for seat in self.seats) >= QUEUE

    @property
    def open(self) -> int:
        """See `Checkers.open`."""
        return len(self._running)

    def submit(self, request: Request) -> None:
        """See `Checkers.submit`."""
        seat = min(self.seats, key=lambda one: one.waiting)
        seat.waiting += 1
        self._running[seat.submit(job_of(request, self.cursor, self._stats))] = (request, seat)

    def collect(self) -> Sequence[Answer]:
        """See `Checkers.collect`."""
        ended, _ = wait(self._running, return_when=FIRST_COMPLETED)
        answers = []
        for future in ended:
            request, seat = self._running.pop(future)
            seat.waiting -= 1
            answers.append(Answer(request, future.result()))
        return answers

    def end_batch(self) -> bool:
        """Return True: the next batch begins at an early cut again, and its content replaces that of this batch."""
        return True

    def cancel(self) -> None:
        """Cancel all checks that have not begun; running checks end with their checkers."""
        for future, (_, seat) in self._running.items():
            future.cancel()
            seat.waiting -= 1
        self._running.clear()

    def explain(
        self,
        failures: list[FailureRecord],
        stats: ExplorationStats,
        replay: Callable[[str], list[str]],
        most: int,
        until: Deadline | None,
    ) -> None:
        """See `Checkers.explain`."""
        seat = self.seats[0]
        replayer, owners = Replayer(seat, self.cursor, stats), WriteOwners(seat, self.cursor)
        explain(
            failures,
            replayer,
            owners,
            replay,
            most=most,
            until=until,
            structure_of=owners.structure_of,
            smallest=self._smallest,
            cold=self._cold,
        )


def job_of(request: Request, cursor: RecordingCursor, stats: ExplorationStats) -> Job:
    """Return the job of a checker machine for a request; the cursor is at the cut of the request's state."""
    return cursor.job(
        request.state,
        cold=request.cold,
        nfsd=request.nfsd,
        fsck=request.fsck,
        breaks=partial(stats.breaks, request.state),
    )
