"""Checker workers: threads with disks of their own that check states and return a result for each."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple, Protocol, Self, TypeVar

from raidproof.core.errors import RigError
from raidproof.core.log import logger
from raidproof.crash.check import End, Observation, Rows
from raidproof.crash.recording import Recording
from raidproof.crash.redundancy import Redundancy
from raidproof.crash.states import BLOCK, CrashState, DiskStates, Patch

_BLANK = bytes(BLOCK)
T = TypeVar("T")


class Checks(Protocol):
    """What a checker does; see `raidproof.crash.checker`."""

    def advance(self, patch: Patch) -> None:
        """Change what all states that follow have in common."""

    def check(self, patch: Patch, *, nfsd: bool = False, fsck: bool = False) -> Observation:
        """Look at one state, if asked through nfsd and with the file system's own checker too."""

    def cold(self, patch: Patch) -> Observation:
        """Look at one state on a machine that has just booted."""


Factory = Callable[[int], AbstractContextManager[Checks]]
"""Boots the checker of this number."""


def never(_: Observation) -> bool:
    """Return that nothing breaks a promise: this caller does not judge what was seen."""
    return False


class Job(NamedTuple):
    """A state to be looked at."""

    base: int
    """How many patches of the bases it stands on."""
    patch: Patch
    rows: Rows
    cold: bool = False
    """Whether a machine that has just booted looks at it, too."""
    nfsd: bool = False
    """Whether it is read through nfsd, too."""
    fsck: bool = False
    """Whether the file system's own checker looks at it, too."""
    breaks: Callable[[Observation], bool] = never
    """Whether what was seen breaks a promise: then that checker looks in any case."""

    def seen(self, observation: Observation) -> Observation:
        """Return what a checker has seen, and what was computed of the state beside it."""
        return observation.model_copy(update={"rows": self.rows})


class CheckResult(NamedTuple):
    """What came of a job."""

    observation: Observation
    cold: Observation | None


def look_at(look: Callable[[], Observation]) -> Observation:
    """Look at a state, and once more if the first look was silent: what is the state's own comes again."""
    first = look()
    return look().model_copy(update={"hung": first.said}) if first.silent else first


class RecordingCursor:
    """Follows the recording, and keeps what each checker must write to follow it.

    While jobs are under way it only goes forward.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._begin()
        self.bases: list[Patch] = []
        self.epoch = 0
        """Rises when the bases begin anew."""
        self._touched: set[tuple[int, int]] = set()

    def _begin(self) -> None:
        self.window = DiskStates(self.recording)
        self.redundancy = Redundancy(self.window)

    def _move(self, cut: int) -> Patch:
        patch = self.window.move(cut)
        self.redundancy.moved(patch)
        return patch

    def go(self, cut: int) -> None:
        """Go to a cut; to an earlier one from the beginning again."""
        if cut < self.window.cut:
            self._begin()
            # What later cuts had written is on the checkers' disks.
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
        """Return the job of a state of the cut at which this is."""
        return Job(len(self.bases), self.window.patch(state), self.redundancy.rows(state), cold, nfsd, fsck, breaks)

    def between(self, first: int, last: int) -> Patch:
        """Return what these bases write, one after the other."""
        blocks: dict[tuple[int, int], bytes] = {}
        for patch in self.bases[first:last]:
            blocks |= patch.blocks
        return Patch(blocks)


class CheckerWorker:
    """One checker. A context manager: leaving it ends the checker."""

    def __init__(self, number: int, boot: Factory, cursor: RecordingCursor) -> None:
        self.number = number
        self.waiting = 0
        """Jobs that were given to it and have not ended."""
        self._boot = boot
        self._roller = cursor
        self._checker: Checks | None = None
        self._undo = ExitStack()
        self._at = (0, 0)
        # A machine dies with the thread that started it (prctl(2), PR_SET_PDEATHSIG): one thread, from first to last.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"checker{number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._thread.submit(self._end).result()
        finally:
            self._thread.shutdown(cancel_futures=True)

    def boot(self) -> "Future[None]":
        """Boot the machine, in the background."""
        return self._thread.submit(self._ensure)

    def submit(self, job: Job) -> "Future[CheckResult]":
        """Look at a state, after those that were given before."""
        return self._thread.submit(self._look, job, self._roller.epoch)

    def use(self, action: Callable[[Checks], T]) -> "Future[T]":
        """Do something with the checker as the last job has left it."""

        def done() -> T:
            if self._checker is None:
                raise RigError(f"checker {self.number} is not there")
            return action(self._checker)

        return self._thread.submit(done)

    def _ensure(self) -> None:
        if self._checker is None:
            self._checker = self._undo.enter_context(self._boot(self.number))
            self._at = (self._roller.epoch, 0)

    def _look(self, job: Job, epoch: int) -> CheckResult:
        try:
            return self._try(job, epoch)
        except RigError:
            # Once more on a new one: after an error of the rig nobody knows its state.
            logger.exception("checker %d", self.number)
            self._end()
            return self._try(job, epoch)

    def _try(self, job: Job, epoch: int) -> CheckResult:
        self._ensure()
        checker = self._checker
        assert checker is not None  # noqa: S101  it has just been booted
        applied = self._at[1] if self._at[0] == epoch else 0
        if (self._at[0] != epoch) or job.base > applied:
            checker.advance(self._roller.between(applied, job.base))
            self._at = (epoch, job.base)
        observation = job.seen(look_at(lambda: checker.check(job.patch, nfsd=job.nfsd, fsck=job.fsck)))
        if not job.fsck and observation.end is End.READ and job.breaks(observation):
            again = look_at(lambda: checker.check(job.patch, nfsd=job.nfsd, fsck=True))
            observation = observation.model_copy(update={"filesystem": again.filesystem})
        return CheckResult(observation, look_at(lambda: checker.cold(job.patch)) if job.cold else None)

    def _end(self) -> None:
        undo, self._undo, self._checker = self._undo, ExitStack(), None
        undo.close()
