"""The judgements of crash states whose content was checked in another state."""

from collections import OrderedDict
from collections.abc import Hashable

from raidproof.crash.journal import Journal
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import Observation
from raidproof.verdict.exploration import Judgement

KEPT = 4096
"""Number of judgements that are kept. States with equal content have cuts near each other, and are judged in turn."""


class KnownContents:
    """Judges states by the journal's observation of their content; an equal question is answered once.

    The judgement of a state that lacks operations is not kept: it depends on the instant of the state's cut.
    """

    def __init__(self, journal: Journal, stats: ExplorationStats) -> None:
        self._journal = journal
        self._stats = stats
        self._kept: OrderedDict[Hashable, tuple[Observation, Judgement]] = OrderedDict()
        self.hits = 0
        """Number of questions with a kept answer."""

    def judge(self, state: CrashState, digest: str) -> tuple[Observation, Judgement]:
        """Return the observation of a content without the scan of the ledger, and the judgement of a state with it."""
        if (found := self._kept.get(self._key(state, digest))) is not None:
            self.hits += 1
            return found
        observation = self._journal.observation(digest)
        judgement = self._stats.judge(state, observation)
        brief = observation.without_scan()
        self.note(state, digest, brief, judgement)
        return brief, judgement

    def note(self, state: CrashState, digest: str, observation: Observation, judgement: Judgement) -> None:
        """Keep the judgement of a state with this content, whose observation is in the journal."""
        key = self._key(state, digest)
        if key is not None and not judgement.missing:
            self._kept[key] = observation, judgement
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _key(self, state: CrashState, digest: str) -> Hashable:
        moment = self._stats.moment(state)
        # A content that was checked again has a newer observation at another place.
        return None if moment is None else (digest, self._journal.place(digest), moment)
