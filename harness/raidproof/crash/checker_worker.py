"""Checker workers: threads with disks of their own that check states and return a result for each."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple, Protocol, Self, TypeVar

from raidproof.core.errors import RigError
from raidproof.core.log import logger
from raidproof.crash.redundancy import Redundancy
from raidproof.crash.states import BLOCK, CrashState, DiskStates, Patch, Recording
from raidproof.record.exploration import End, Observation, Rows

_BLANK = bytes(BLOCK)
T = TypeVar("T")


class Checks(Protocol):
    """The interface of a checker; see `raidproof.crash.checker`."""

    def advance(self, patch: Patch) -> None:
        """Apply a patch to the base of all following states."""

    def check(self, patch: Patch, *, nfsd: bool = False, fsck: bool = False) -> Observation:
        """Check one state; ``nfsd``: through nfsd too; ``fsck``: with the file system's checker too."""

    def cold(self, patch: Patch) -> Observation:
        """Check one state on a newly booted machine."""


Factory = Callable[[int], AbstractContextManager[Checks]]
"""Boots the checker with this number."""


def never(_: Observation) -> bool:
    """Return False: for callers that do not judge observations."""
    return False


class Job(NamedTuple):
    """A crash state to be checked."""

    base: int
    """Number of base patches that the state is built on."""
    patch: Patch
    rows: Rows
    cold: bool = False
    """Whether a newly booted machine checks it, too."""
    nfsd: bool = False
    """Whether the ledger is scanned through nfsd, too."""
    fsck: bool = False
    """Whether the file system's checker is run, too."""
    breaks: Callable[[Observation], bool] = never
    """Whether an observation breaks a promise: then the file system's checker is run in any case."""

    def seen(self, observation: Observation) -> Observation:
        """Return a checker's observation with the computed rows added."""
        return observation.model_copy(update={"rows": self.rows})


class CheckResult(NamedTuple):
    """The result of a job."""

    observation: Observation
    cold: Observation | None


def repeat_if_silent(check: Callable[[], Observation]) -> Observation:
    """Check a state, and once more if the first check was silent: a failure caused by the state occurs again."""
    first = check()
    return check().model_copy(update={"hung": first.said}) if first.silent else first


class RecordingCursor:
    """A position in the recording, with the patches that each checker must write to follow it.

    While jobs are running, the position only moves forward.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._begin()
        self.bases: list[Patch] = []
        self.epoch = 0
        """Incremented when the bases begin anew."""
        self._touched: set[tuple[int, int]] = set()

    def _begin(self) -> None:
        self.window = DiskStates(self.recording)
        self.redundancy = Redundancy(self.window)

    def _move(self, cut: int) -> Patch:
        patch = self.window.move(cut)
        self.redundancy.moved(patch)
        return patch

    def go(self, cut: int) -> None:
        """Move to a power cut of the recording; for an earlier cut, start again from its beginning."""
        if cut < self.window.cut:
            self._begin()
            # The checkers' disks hold the writes of later cuts.
            self.bases = [Patch(dict.fromkeys(self._touched, _BLANK)).then(self._move(cut))]
            self.epoch += 1
        elif cut > self.window.cut or not self.bases:
            self.bases.append(self._move(cut))
        self._touched.update(self.bases[-1].blocks)

    def job(
        self,
        state: CrashState,
        *,
        cold: bool = False,
        nfsd: bool = False,
        fsck: bool = False,
        breaks: Callable[[Observation], bool] = never,
    ) -> Job:
        """Return the job of a state of the current cut."""
        return Job(len(self.bases), self.window.patch(state), self.redundancy.rows(state), cold, nfsd, fsck, breaks)

    def between(self, first: int, last: int) -> Patch:
        """Return the combined patch of the bases from ``first`` up to ``last``."""
        blocks: dict[tuple[int, int], bytes] = {}
        for patch in self.bases[first:last]:
            blocks |= patch.blocks
        return Patch(blocks)


class CheckerWorker:
    """A thread with one checker. A context manager: leaving it ends the checker."""

    def __init__(self, number: int, boot: Factory, cursor: RecordingCursor) -> None:
        self.number = number
        self.waiting = 0
        """Number of submitted jobs that have not ended."""
        self._boot = boot
        self._cursor = cursor
        self._checker: Checks | None = None
        self._undo = ExitStack()
        self._at = (0, 0)
        # A machine dies with the thread that started it (prctl(2), PR_SET_PDEATHSIG): one thread does everything.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"checker{number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._thread.submit(self._end).result()
        finally:
            self._thread.shutdown(cancel_futures=True)

    def boot(self) -> "Future[None]":
        """Boot the machine in the background."""
        return self._thread.submit(self._ensure)

    def submit(self, job: Job) -> "Future[CheckResult]":
        """Check a state after the jobs that were submitted before."""
        return self._thread.submit(self._check, job, self._cursor.epoch)

    def use(self, action: Callable[[Checks], T]) -> "Future[T]":
        """Call a function with the checker as the last job left it."""

        def done() -> T:
            if self._checker is None:
                raise RigError(f"checker {self.number} is not booted")
            return action(self._checker)

        return self._thread.submit(done)

    def _ensure(self) -> None:
        if self._checker is None:
            self._checker = self._undo.enter_context(self._boot(self.number))
            self._at = (self._cursor.epoch, 0)

    def _check(self, job: Job, epoch: int) -> CheckResult:
        try:
            return self._try(job, epoch)
        except RigError:
            # Once more on a new checker: after an error of the rig the state of this one is unknown.
            logger.exception("checker %d", self.number)
            self._end()
            return self._try(job, epoch)

    def _try(self, job: Job, epoch: int) -> CheckResult:
        self._ensure()
        checker = self._checker
        assert checker is not None  # noqa: S101  it has just been booted
        applied = self._at[1] if self._at[0] == epoch else 0
        if (self._at[0] != epoch) or job.base > applied:
            checker.advance(self._cursor.between(applied, job.base))
            self._at = (epoch, job.base)
        observation = job.seen(repeat_if_silent(lambda: checker.check(job.patch, nfsd=job.nfsd, fsck=job.fsck)))
        if not job.fsck and observation.end is End.READ and job.breaks(observation):
            again = repeat_if_silent(lambda: checker.check(job.patch, nfsd=job.nfsd, fsck=True))
            observation = observation.model_copy(update={"filesystem": again.filesystem})
        return CheckResult(observation, repeat_if_silent(lambda: checker.cold(job.patch)) if job.cold else None)

    def _end(self) -> None:
        undo, self._undo, self._checker = self._undo, ExitStack(), None
        undo.close()
