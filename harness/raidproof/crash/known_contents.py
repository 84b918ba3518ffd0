"""The judgements of crash states whose content was checked in another state."""

from collections.abc import Hashable

from raidproof.crash.journal import Journal
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import Observation
from raidproof.verdict.oracle import Judgement

KEPT = 1_000_000
"""Number of judgements that are kept; each takes about 250 bytes, because equal ones share their objects."""


class KnownContents:
    """Judges states by the journal's observation of their content; an equal question is answered once.

    The judgement of a state that lacks operations is not kept: it depends on the instant of the state's cut.
    """

    def __init__(self, journal: Journal, stats: ExplorationStats) -> None:
        self._journal = journal
        self._stats = stats
        self._kept: dict[Hashable, tuple[Observation, Judgement]] = {}
        self._moments: dict[Hashable, Hashable] = {}
        self._observations: dict[str, Observation] = {}
        self._judgements: dict[Hashable, Judgement] = {}
        self.hits = 0
        """Number of questions with a kept answer."""

    def judge(self, state: CrashState, digest: str) -> tuple[Observation, Judgement]:
        """Return the observation of a content, see `Observation.brief`, and the judgement of a state with it."""
        key = self._key(state, digest)
        if (found := self._kept.get(key)) is not None:
            self.hits += 1
            return found
        observation = self._journal.observation(digest)
        judgement = self._stats.judge(state, observation)
        return self._keep(key, observation, judgement)

    def note(self, state: CrashState, digest: str, observation: Observation, judgement: Judgement) -> None:
        """Keep the judgement of a state with this content, whose observation is in the journal."""
        self._keep(self._key(state, digest), observation, judgement)

    def _keep(
        self, key: tuple[int, Hashable] | None, observation: Observation, judgement: Judgement
    ) -> tuple[Observation, Judgement]:
        brief = observation.brief()
        if key is None or judgement.missing:
            return brief, judgement
        brief = self._observations.setdefault(brief.model_dump_json(), brief)
        shared = self._judgements.setdefault(key[1], judgement)
        kept = brief, shared if shared == judgement else judgement
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = kept
        return kept

    def _key(self, state: CrashState, digest: str) -> tuple[int, Hashable] | None:
        if (moment := self._stats.moment(state)) is None:
            return None
        # A content that was checked again has a newer observation at another place.
        return self._journal.place(digest), self._moments.setdefault(moment, moment)
