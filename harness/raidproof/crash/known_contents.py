"""The judgements of crash states whose content was checked in another state."""

from collections.abc import Hashable
from functools import lru_cache

from raidproof.crash.journal import Journal
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import Observation
from raidproof.verdict.exploration import Judgement

KEPT = 4096
"""Number of judgements that are kept. States with equal content have cuts near each other, and are judged in turn."""


class KnownContents:
    """Judges states by the journal's observation of their content; equal questions are answered once."""

    def __init__(self, journal: Journal, stats: ExplorationStats) -> None:
        self._journal = journal
        self._stats = stats
        self._state: CrashState | None = None
        """The state that is judged now."""
        self._judged = lru_cache(KEPT)(self._judge)

    def judge(self, state: CrashState, digest: str) -> tuple[Observation, Judgement]:
        """Return the observation of a content without the scan of the ledger, and the judgement of a state with it."""
        self._state = state
        moment = self._stats.moment(state)
        if moment is not None:
            observation, judgement = self._judged(digest, self._journal.place(digest), moment)
            if not judgement.missing:
                return observation, judgement
        # The judgement of a state that lacks operations depends on the instant of its cut.
        return self._judge(digest)

    def _judge(self, digest: str, *_: Hashable) -> tuple[Observation, Judgement]:
        assert self._state is not None  # noqa: S101  `judge` has set it
        observation = self._journal.observation(digest)
        return observation.without_scan(), self._stats.judge(self._state, observation)
