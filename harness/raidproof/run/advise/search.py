"""The search of `raidproof advise`: which configurations to measure next, as a pure function of the results so far.

Each rung is one round: one repetition of each chosen configuration, so that the drift of the host affects all alike.
The first rung has the configurations that the model of the hardware expects to be fast, and a share that is chosen at
random, by which a wrong model is found out. Each later rung has the faster half of the rung before (successive
halving), and configurations that a regression of the measured speeds predicts to be fast.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

from raidproof.record.advice import Drop, Dropped, Picked, PickedBy, RungRecord
from raidproof.verdict.change import statistics

FINALISTS = 4
"""Number of configurations whose power is cut."""
ENOUGH_ROUNDS = 5
"""Number of repetitions of the finalists at which the search ends."""
SETTLED_ROUNDS = 3
"""Least number of repetitions with which leaders count as settled."""
RANDOM_SHARE = 0.25
"""Share of the first rung that is chosen at random."""
PROPOSED_SHARE = 0.4
"""Share of a rung, relative to the rung before, that is proposed by the regression."""
PROPOSING_RUNGS = 4
"""Number of rungs after the first in which the regression proposes configurations."""
COST_OF_RUNGS = 3.4
"""Repetitions of all rungs divided by those of the first: 1 + 0.9 + 0.6 + ..., and the rounds of the finalists."""
PENALTY = 0.5
"""Penalty of the regression of the logarithms of the speeds; a column of a value has 0 or 1."""
PAIR_WEIGHT = 0.6
"""Entry of a column for a pair of values: below 1, so that the penalty of pairs is greater than that of values."""
NO_EFFECT = 0.01
"""Predicted change of the speed, as a share, below which a change of a setting has no effect."""
NEAR = 0.03
"""Leaders are settled if the speeds of all are certainly within this share of the fastest."""


class Candidate(NamedTuple):
    """One configuration that may be measured."""

    name: str
    places: tuple[int | None, ...]
    """For each free axis the place of the value, from 0, the current value; None if the axis does not apply."""
    expected: float | None = None
    """The speed that the model expects; None if no formula applies."""


class Result(NamedTuple):
    """The result of one repetition."""

    name: str
    round: int
    speed: float | None
    """The measured speed, greater is better; None if the repetition failed."""


class Search:
    """The search over candidates; its methods are pure functions of the rungs and the results so far.

    ``base``: name of the current configuration, which is measured in each rung. ``seed``: seed of all random choices.
    """

    def __init__(self, candidates: Sequence[Candidate], base: str, seed: int) -> None:
        self.candidates = {one.name: one for one in candidates}
        self.base, self.seed = base, seed
        self._rows = _rows_of(candidates)

    def next_rung(self, rungs: Sequence[RungRecord], results: Sequence[Result], left: int) -> RungRecord | None:
        """Return the next rung; None if the search has ended.

        ``left``: the number of repetitions that the budget of the search still allows.
        """
        if not rungs:
            return self._first(left)
        alive = [name for name in rungs[-1].names if _works(name, results)]
        scores = self.scores(results)
        alive.sort(key=lambda name: -scores[name])
        few = len(alive) <= FINALISTS + 2
        if not alive or left < min(len(alive), FINALISTS + 1) or (few and self._ended(alive, results)):
            return None
        kept = alive if few else alive[: max(FINALISTS, math.ceil(len(alive) / 2))]
        tried = {name for rung in rungs for name in rung.names}
        proposed = self._proposed(len(rungs), tried, results, max(1, int(PROPOSED_SHARE * len(alive))))
        plainer = self._plainer(kept[0], {*tried, *proposed}, results) if few else []
        by = {
            **dict.fromkeys(kept, PickedBy.RESULTS),
            **dict.fromkeys(plainer, PickedBy.PLAINER),
            **dict.fromkeys(proposed, PickedBy.REGRESSION),
        }
        picked = self._picked(by)[: max(FINALISTS, left)]
        chosen = {one.name for one in picked}
        failed = [name for name in rungs[-1].names if not _works(name, results)]
        dropped = [Dropped(name=name, why=Drop.FAILED) for name in failed]
        dropped += [Dropped(name=name, why=Drop.SLOWER) for name in alive if name not in chosen]
        return RungRecord(round=len(rungs) + 1, picked=picked, dropped=dropped, left=left)

    def _first(self, left: int) -> RungRecord | None:
        number = min(len(self.candidates), int(left / COST_OF_RUNGS))
        if number < 2:
            return None
        chance = Random(f"{self.seed}/first")  # noqa: S311  a seeded choice, no secret
        others = [one for one in self.candidates.values() if one.name != self.base]
        # Candidates with equal expectation in random order.
        chance.shuffle(others)
        by_model = sorted((one for one in others if one.expected), key=lambda one: -(one.expected or 0.0))
        wanted = number - 1
        modelled = by_model[: wanted - math.ceil(RANDOM_SHARE * wanted)]
        names = {one.name for one in modelled}
        rest = [one for one in others if one.name not in names][: wanted - len(modelled)]
        by = dict.fromkeys([one.name for one in modelled], PickedBy.MODEL)
        by |= dict.fromkeys([one.name for one in rest], PickedBy.CHANCE)
        return RungRecord(round=1, picked=self._picked(by), left=left)

    def _picked(self, by: Mapping[str, PickedBy]) -> list[Picked]:
        """Return the chosen candidates with the current configuration first."""
        return [
            Picked(name=name, by=why, expected=self.candidates[name].expected)
            for name, why in ({self.base: PickedBy.CURRENT} | dict(by) | {self.base: PickedBy.CURRENT}).items()
        ]

    def _proposed(self, rungs: int, tried: set[str], results: Sequence[Result], most: int) -> list[str]:
        """Return the names of untried candidates that the regression predicts to be among the fastest.

        Half of them differ from the leader in one axis, so that a maximum that the regression does not describe is
        found too.
        """
        new = [name for name in self.candidates if name not in tried]
        if not new or rungs > PROPOSING_RUNGS:
            return []
        speeds, scores = self.predictions(results), self.scores(results)
        new.sort(key=lambda name: -speeds[name])
        leader = self.candidates[max(scores, key=scores.__getitem__)].places
        near = [name for name in new if _distance(self.candidates[name].places, leader) == 1][: most - most // 2]
        return [*near, *(name for name in new if name not in near)][:most]

    def _plainer(self, leader: str, tried: set[str], results: Sequence[Result]) -> list[str]:
        """Return the name of the leader without the changes that have no predicted effect; empty if it was tried."""
        speeds, by_places = self.predictions(results), {one.places: one.name for one in self.candidates.values()}
        places = self.candidates[leader].places
        least = speeds[leader] + math.log1p(-NO_EFFECT)
        for axis, place in enumerate(places):
            plain = (*places[:axis], 0, *places[axis + 1 :])
            if place and speeds.get(by_places.get(plain, ""), -math.inf) >= least:
                places = plain
        name = by_places[places]
        return [] if name in tried else [name]

    def leaders(self, rungs: Sequence[RungRecord], results: Sequence[Result]) -> list[str]:
        """Return the names of the configurations of the last rung that work, the fastest first, then all others."""
        scores = self.scores(results)
        last = set(rungs[-1].names) if rungs else set()
        working = [name for name in scores if _works(name, results)]
        return sorted(working, key=lambda name: (name not in last, -scores[name]))

    def scores(self, results: Sequence[Result]) -> dict[str, float]:
        """Return the logarithm of the speed of each measured candidate, without the effects of the rounds."""
        return adjusted(results)

    def predictions(self, results: Sequence[Result]) -> dict[str, float]:
        """Return the logarithm of the speed that the regression predicts, for each candidate."""
        known = adjusted(results)
        names = [name for name in known if name in self._rows]
        if not names:
            return {}
        values = statistics.predicted(
            [self._rows[name] for name in names], [known[name] for name in names], list(self._rows.values()), PENALTY
        )
        return dict(zip(self._rows, values, strict=True))

    def _ended(self, alive: Sequence[str], results: Sequence[Result]) -> bool:
        speeds = by_round(results)
        rounds = [len(speeds[name]) for name in alive]
        if min(rounds) >= ENOUGH_ROUNDS:
            return True
        leader = alive[0]
        return min(rounds) >= SETTLED_ROUNDS and all(
            settled(speeds[leader], speeds[other]) for other in alive[1:] if other != self.base
        )


def settled(leader: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Return whether a candidate is certainly slower than the leader, or certainly equal within `NEAR`."""
    shared = sorted(leader.keys() & other.keys())
    ratio = statistics.paired_ratio([leader[one] for one in shared], [other[one] for one in shared])
    if ratio is None or ratio.low is None or ratio.high is None:
        return False
    return ratio.high < 1 or (ratio.low >= 1 - NEAR and ratio.high <= 1 + NEAR)


def by_round(results: Iterable[Result]) -> dict[str, dict[int, float]]:
    """Return the measured speeds by name and round, without failed repetitions."""
    found: dict[str, dict[int, float]] = {}
    for one in results:
        if one.speed is not None and one.speed > 0:
            found.setdefault(one.name, {})[one.round] = one.speed
    return found


def adjusted(results: Sequence[Result]) -> dict[str, float]:
    """Return the logarithm of the speed of each candidate without the effects of the rounds.

    By alternating means: the effect of a round is the mean of what its candidates deviate in this round from their own
    means. This is the least-squares solution of log speed = candidate + round.
    """
    speeds = {
        name: {round_: math.log(speed) for round_, speed in of.items()} for name, of in by_round(results).items()
    }
    rounds = {round_: 0.0 for of in speeds.values() for round_ in of}
    means: dict[str, float] = {}
    for _ in range(20):
        means = {
            name: sum(speed - rounds[round_] for round_, speed in of.items()) / len(of) for name, of in speeds.items()
        }
        for round_ in rounds:
            apart = [of[round_] - means[name] for name, of in speeds.items() if round_ in of and len(of) > 1]
            if apart:
                rounds[round_] = sum(apart) / len(apart)
    return means


def _works(name: str, results: Iterable[Result]) -> bool:
    """Return whether a candidate has results, and none of them failed."""
    mine = [one.speed for one in results if one.name == name]
    return bool(mine) and None not in mine


def _distance(one: Sequence[int | None], other: Sequence[int | None]) -> int:
    """Return the number of axes on which two candidates have different values."""
    return sum(mine != its for mine, its in zip(one, other, strict=True))


def _rows_of(candidates: Sequence[Candidate]) -> dict[str, tuple[float, ...]]:
    """Return the row of the regression for each candidate: its values, its pairs of values, and the log expectation.

    A value other than the current one, and each pair of such values of two axes, has a column.
    """
    columns = sorted({(axis, place) for one in candidates for axis, place in enumerate(one.places) if place})
    pairs = [(one, other) for one, other in combinations(columns, 2) if one[0] != other[0]]
    logs = [math.log(one.expected) for one in candidates if one.expected]
    middle = sum(logs) / len(logs) if logs else 0.0
    rows = {}
    for one in candidates:
        has = {(axis, place) for axis, place in enumerate(one.places) if place}
        rows[one.name] = (
            *(float(column in has) for column in columns),
            *(PAIR_WEIGHT * (first in has and second in has) for first, second in pairs),
            math.log(one.expected) - middle if one.expected else 0.0,
        )
    return rows
