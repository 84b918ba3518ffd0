"""Checker workers: threads, each with its own checker machine, that check crash states in parallel."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

from raidproof.core.errors import RigError
from raidproof.core.log import logger
from raidproof.crash.checker import Recovered
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.redundancy import Redundancy
from raidproof.crash.states import BLANK, CrashState, Patch, Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Stored
from raidproof.record.exploration import End, Observation, Rows

T = TypeVar("T")


class Checks(Protocol):
    """The interface of a checker, which `raidproof.crash.checker.Checker` implements.

    The disks of a checker hold a base content. A patch has the blocks in which a crash state differs from the base.
    """

    def advance(self, patch: Patch) -> None:
        """Apply a patch to the base content of all later checks."""

    def check(self, patch: Patch, *, nfsd: bool = False, fsck: bool = False) -> Observation:
        """Check the state that a patch makes of the base.

        ``nfsd``: scan the ledger through nfsd also. ``fsck``: run the file system's checker (fsck) also.
        """

    def cold(self, patch: Patch) -> Observation:
        """Check the state that a patch makes of the base, on a newly booted machine."""

    def recover(self, patch: Patch, modes: Sequence[CacheMode], log: Path, *, resync_first_s: float) -> Recovered:
        """Recover the state that a patch makes of the base, on a machine whose disks record the write log ``log``."""


Factory = Callable[[int], AbstractContextManager[Checks]]
"""A function that boots and returns the checker with the given number; the first checker has number 1."""


def never(_: Observation) -> bool:
    """Return False; the default of `Job.breaks`, for callers that do not judge observations."""
    return False


class Base(NamedTuple):
    """The durable content at a cut, as patches of any content that the disks had at an earlier position."""

    patches: list[Patch]
    """Patches of the recording from its beginning on; the cursor appends those of later cuts."""
    length: int
    """Number of the first patches that lead to the content."""

    def after(self, earlier: "Base | None") -> Patch:
        """Return the patch that disks with ``earlier`` as their base need; it has no blocks if they have this base."""
        # A cursor that has moved back has a new list, whose first patch undoes the writes of later cuts.
        applied = earlier.length if earlier is not None and earlier.patches is self.patches else 0
        blocks: dict[tuple[int, int], bytes | Stored] = {}
        for patch in self.patches[applied : self.length]:
            blocks |= patch.blocks
        return Patch(blocks)


class Job(NamedTuple):
    """A request to check one crash state."""

    base: Base
    """The base content of the disks."""
    patch: Patch
    """Blocks in which the state differs from the base content."""
    rows: Rows
    """Rows of the array whose copies or parity differ in the state, computed without a machine."""
    cold: bool = False
    """Whether a newly booted machine checks the state also."""
    nfsd: bool = False
    """Whether the checker scans the ledger through nfsd also."""
    fsck: bool = False
    """Whether the checker runs the file system's checker (fsck) also."""
    breaks: Callable[[Observation], bool] = never
    """Returns whether an observation breaks a promise; the checker then runs fsck even if ``fsck`` is False."""

    def seen(self, observation: Observation) -> Observation:
        """Return a checker's observation with the computed ``rows`` added."""
        return observation.model_copy(update={"rows": self.rows})


class CheckResult(NamedTuple):
    """The result of a `Job`: what the machines observed when they checked one crash state."""

    observation: Observation
    cold: Observation | None
    """Observation on the newly booted machine; None if the job did not request it."""


def repeat_if_silent(check: Callable[[], Observation]) -> Observation:
    """Check a state; check it a second time if the machine gave no answer and its kernel log shows no cause.

    A hang that the state causes occurs again in the second check.
    """
    first = check()
    return check().model_copy(update={"hung": first.said}) if first.silent else first


class RecordingCursor:
    """A power cut in a recording, with the patches that bring a checker's disks to the durable content at this cut."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._rewound = False
        self._begin()
        self._patches: list[Patch] = []
        self._touched: set[tuple[int, int]] = set()

    def _begin(self) -> None:
        self.window = DiskStates(self.recording)
        self.redundancy = Redundancy(self.window)

    def read(self, recording: Recording) -> None:
        """Read another recording of the same disks, from its beginning; the caller then moves to a cut of it."""
        self.recording = recording
        self._rewound = True
        self._begin()

    def _move(self, cut: int) -> Patch:
        patch = self.window.move(cut)
        self.redundancy.moved(patch)
        return patch

    def go(self, cut: int) -> None:
        """Move to a power cut; for a cut before the current one, read the recording again from its beginning."""
        if cut < self.window.cut or self._rewound:
            self._begin()
            self._rewound = False
            # The checkers' disks hold writes of later cuts: the new base first blanks the blocks of these writes. Jobs
            # that wait for a checker keep the list that they began with.
            self._patches = [Patch(dict.fromkeys(self._touched, BLANK)).then(self._move(cut))]
        elif cut > self.window.cut or not self._patches:
            self._patches.append(self._move(cut))
        self._touched.update(self._patches[-1].blocks)

    @property
    def base(self) -> Base:
        """The durable content at the current cut."""
        return Base(self._patches, len(self._patches))

    def job(
        self,
        state: CrashState,
        *,
        cold: bool = False,
        nfsd: bool = False,
        fsck: bool = False,
        breaks: Callable[[Observation], bool] = never,
    ) -> Job:
        """Return the job that checks a state of the current cut; the flags are those of `Job`."""
        return Job(self.base, self.window.patch(state), self.redundancy.rows(state), cold, nfsd, fsck, breaks)


class CheckerWorker:
    """A thread with one checker machine. A context manager: leaving the context ends the machine."""

    def __init__(self, number: int, boot: Factory) -> None:
        self.number = number
        self.waiting = 0
        """Number of jobs that the caller has submitted and whose results it has not collected."""
        self._boot = boot
        self._checker: Checks | None = None
        self._undo = ExitStack()
        self._base: Base | None = None
        self._ending = False
        """Whether no further job begins."""
        # The kernel kills a machine when the thread that started it ends (PR_SET_PDEATHSIG in prctl(2)): the same
        # thread therefore boots the machine and executes all jobs.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"checker{number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        try:
            self._thread.submit(self._end).result()
        finally:
            self._thread.shutdown(cancel_futures=True)

    @property
    def booted(self) -> bool:
        """Whether the checker machine has booted."""
        return self._checker is not None

    def boot(self) -> "Future[None]":
        """Boot the checker machine in the background."""
        return self._thread.submit(self._ensure)

    def submit(self, job: Job) -> "Future[CheckResult]":
        """Execute a job in the background, after the jobs that were submitted earlier."""
        return self._thread.submit(self._check, job)

    def recover(self, job: Job, modes: Sequence[CacheMode], log: Path, resync_first_s: float) -> "Future[Recovered]":
        """Recover the state of a job in the background, on a machine whose disks record the write log ``log``."""

        def recorded() -> Recovered:
            def once() -> Recovered:
                log.unlink(missing_ok=True)
                return self._at_base(job).recover(job.patch, modes, log, resync_first_s=resync_first_s)

            try:
                recovered = once()
            except RigError:
                logger.exception("checker %d: the recovery is repeated on a new machine", self.number)
                self._end()
                recovered = once()
            return once() if recovered.observation.silent else recovered

        return self._thread.submit(recorded)

    def use(self, action: Callable[[Checks], T]) -> "Future[T]":
        """Call a function with the checker in the background; the checker's disks hold the state of the last job."""

        def done() -> T:
            if self._checker is None:
                raise RigError(f"checker {self.number} is not booted")
            return action(self._checker)

        return self._thread.submit(done)

    def _ensure(self) -> None:
        if self._checker is None:
            self._checker = self._undo.enter_context(self._boot(self.number))
            self._base = None

    def _check(self, job: Job) -> CheckResult:
        if self._ending:
            raise RigError(f"checker {self.number} is ending")
        try:
            return self._try(job)
        except RigError:
            if self._ending:
                raise
            # After an error of the rig the state of the machine is unknown: repeat the job once on a new machine.
            logger.exception("checker %d failed; the check is repeated on a new machine", self.number)
            self._end()
            return self._try(job)

    def _at_base(self, job: Job) -> Checks:
        """Return the checker, booted and with the base content of a job."""
        self._ensure()
        checker = self._checker
        assert checker is not None  # noqa: S101  `_ensure` has booted the checker
        if (patch := job.base.after(self._base)).blocks:
            checker.advance(patch)
        self._base = job.base
        return checker

    def _try(self, job: Job) -> CheckResult:
        checker = self._at_base(job)
        observation = job.seen(repeat_if_silent(lambda: checker.check(job.patch, nfsd=job.nfsd, fsck=job.fsck)))
        if not job.fsck and observation.end is End.READ and job.breaks(observation):
            again = repeat_if_silent(lambda: checker.check(job.patch, nfsd=job.nfsd, fsck=True))
            update = {"filesystem": again.filesystem, "scrubbed": again.scrubbed}
            observation = observation.model_copy(update=update)
        return CheckResult(observation, repeat_if_silent(lambda: checker.cold(job.patch)) if job.cold else None)

    def _end(self) -> None:
        undo, self._undo, self._checker = self._undo, ExitStack(), None
        undo.close()
