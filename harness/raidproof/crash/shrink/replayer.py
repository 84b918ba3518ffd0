"""Single states of an exploration shown once more."""

from raidproof.crash.checker.observation import End, Observation
from raidproof.crash.checker.worker import CheckerWorker, RecordingCursor
from raidproof.crash.judge import FILESYSTEM, NFSD, Damage, Judgement
from raidproof.crash.states.sampler import Choice
from raidproof.crash.states.state import CrashState
from raidproof.crash.stats import ExplorationStats


class Replayer:
    """Shows single states on one checker, and judges them."""

    def __init__(self, bench: CheckerWorker, roller: RecordingCursor, tally: ExplorationStats) -> None:
        self.bench = bench
        self.roller = roller
        self.tally = tally
        self._known: dict[str, Observation] = {}
        self._also: dict[str, frozenset[str]] = {}

    def cold(self, choice: Choice, state: CrashState) -> None:
        """Show a state again, and to a machine that has just booted with it too; the tally compares what they saw.

        Raises:
            RigError: the checker failed twice.
        """
        self.roller.go(state.cut)
        looked = self.bench.submit(self.roller.job(state, cold=True)).result()
        if looked.cold is not None:
            self.tally.compare(choice, state, looked.observation, looked.cold)

    def judge(self, state: CrashState, *, anew: bool = False, nfsd: bool = False, fsck: bool = False) -> Judgement:
        """Judge a state; one whose content was seen is shown only if it is to be seen ``anew``, or more of it.

        Raises:
            RigError: the checker failed twice.
        """
        self.roller.go(state.cut)
        digest = self.roller.window.digest(state)
        also = frozenset(word for word, asked in (("nfsd", nfsd), ("fsck", fsck)) if asked)
        if anew or digest not in self._known or not also <= self._also[digest]:
            looked = self.bench.submit(self.roller.job(state, nfsd=nfsd, fsck=fsck)).result()
            self._known[digest], self._also[digest] = looked.observation, also
        return self.tally.judge(state, self._known[digest])

    def shows(self, damage: Damage, state: CrashState, *, anew: bool = False) -> bool:
        """Return whether a state shows a failure.

        Raises:
            RigError: the checker failed twice.
        """
        # A look may also have come to no end because of nfsd.
        nfsd = damage.promise == NFSD or damage.end == End.WEDGED
        fsck = damage.promise == FILESYSTEM
        return damage in self.judge(state, anew=anew, nfsd=nfsd, fsck=fsck).damages
