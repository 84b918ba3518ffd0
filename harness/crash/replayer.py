"""Single states of an exploration shown once more."""

from harness.crash.bench import Bench, Roller
from harness.crash.choice import Choice
from harness.crash.judge import NFSD, Damage, Judgement
from harness.crash.observation import End, Observation
from harness.crash.state import CrashState
from harness.crash.tally import Tally


class Replayer:
    """Shows single states on one checker, and judges them."""

    def __init__(self, bench: Bench, roller: Roller, tally: Tally) -> None:
        self.bench = bench
        self.roller = roller
        self.tally = tally
        self._known: dict[str, Observation] = {}
        self._through_nfsd: set[str] = set()

    def cold(self, choice: Choice, state: CrashState) -> None:
        """Show a state again, and to a machine that has just booted with it too; the tally compares what they saw.

        Raises:
            RigError: the checker failed twice.
        """
        self.roller.go(state.cut)
        looked = self.bench.submit(self.roller.job(state, cold=True)).result()
        if looked.cold is not None:
            self.tally.compare(choice, state, looked.observation, looked.cold)

    def judge(self, state: CrashState, *, anew: bool = False, nfsd: bool = False) -> Judgement:
        """Judge a state; one whose content was seen is shown only if it is to be seen ``anew``, or through ``nfsd``.

        Raises:
            RigError: the checker failed twice.
        """
        self.roller.go(state.cut)
        digest = self.roller.window.digest(state)
        if anew or digest not in self._known or (nfsd and digest not in self._through_nfsd):
            self._known[digest] = self.bench.submit(self.roller.job(state, nfsd=nfsd)).result().observation
            (self._through_nfsd.add if nfsd else self._through_nfsd.discard)(digest)
        return self.tally.judge(state, self._known[digest])

    def shows(self, damage: Damage, state: CrashState, *, anew: bool = False) -> bool:
        """Return whether a state shows a failure.

        Raises:
            RigError: the checker failed twice.
        """
        # A look may also have come to no end because of nfsd.
        nfsd = damage.promise == NFSD or damage.end == End.WEDGED
        return damage in self.judge(state, anew=anew, nfsd=nfsd).damages
