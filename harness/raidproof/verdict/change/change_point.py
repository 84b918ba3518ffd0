"""Changes of level in a series of values: recursive binary segmentation with a permutation test on ranks.

The test statistic of a segment is the greatest standardized difference of the mean ranks before and after a split,
over all permitted splits. Its distribution without a change is that under permutations of the ranks, which holds for
any distribution of the values if these are exchangeable (equally distributed, without a trend or memory). The test
accounts for the search over the splits. If a segment has a change, both parts are tested in the same way; so the
probability of any change in a series without one is that of the first test, ``LEVEL``.

Sources: A. N. Pettitt, A non-parametric approach to the change-point problem, Applied Statistics 28 (1979);
L. Y. Vostrikova, Detecting disorder in multidimensional random processes, Soviet Mathematics Doklady 24 (1981).
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import comb
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

LEVEL = 0.02
"""Greatest probability that a series without a change of level shows one."""
LEAST_PART = 2
"""Least number of values before and after a change: one value that deviates is no change of level."""
PERMUTATIONS = 19_999
"""Number of random permutations for the distribution of the statistic."""
SEED = 1
"""Seed of the permutations."""
_CHUNK = 2_000_000
"""Greatest number of ranks that are permuted at a time, to bound the memory."""
_TOLERANCE = 1e-9
"""Differences of statistics below this value are rounding errors."""


@dataclass(frozen=True)
class Change:
    """A change of level in a series."""

    index: int
    """Index of the first value after the change."""
    p_value: float
    """Probability of a difference at least this great at any permitted split, without a change."""
    before: float
    """Median of the values from the previous change on."""
    after: float
    """Median of the values up to the next change."""

    @property
    def ratio(self) -> float | None:
        """Median after the change divided by the median before the change; None if the latter is 0."""
        return self.after / self.before if self.before else None


def least_values() -> int:
    """Return the least number of values that can show a change.

    With n values, the least probability is that of two perfectly ordered halves: 2 / C(n, n/2); twice as much if n is
    odd, because the two splits in the middle are equally good.
    """
    return next(n for n in range(2 * LEAST_PART, 1000) if 2 * (1 + n % 2) / comb(n, n // 2) <= LEVEL)


def find_changes(values: Sequence[float], *, splits: Collection[int] | None = None) -> list[Change]:
    """Return the changes of level in a series, in order.

    ``splits``: the indices of values at which a change may begin; None: all.
    """
    allowed = sorted(range(len(values)) if splits is None else set(splits))
    series = np.asarray(values, dtype=np.float64)
    found = sorted(_changes_in(series, 0, len(series), allowed))
    edges = [0, *(index for index, _ in found), len(values)]
    levels = [median(values[first:end]) for first, end in pairwise(edges)] if values else []
    return [Change(index, p_value, levels[place], levels[place + 1]) for place, (index, p_value) in enumerate(found)]


def _changes_in(series: NDArray[np.float64], first: int, end: int, allowed: Sequence[int]) -> list[tuple[int, float]]:
    """Return index and probability of each change in the values from ``first`` up to ``end``."""
    splits = tuple(index - first for index in allowed if first + LEAST_PART <= index <= end - LEAST_PART)
    if not splits:
        return []
    ranks = rankdata(series[first:end])
    observed = _differences(ranks[np.newaxis, :], splits)[0]
    # The middle of equally good splits does not depend on the direction of time.
    best = np.flatnonzero(observed >= observed.max() - _TOLERANCE)
    place = int(best[len(best) // 2])
    p_value = _probability(float(observed[place]), tuple(sorted(map(float, ranks))), splits)
    if p_value > LEVEL:
        return []
    index = first + splits[place]
    return [
        (index, p_value),
        *_changes_in(series, first, index, allowed),
        *_changes_in(series, index, end, allowed),
    ]


def _differences(ranks: NDArray[np.float64], splits: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the standardized differences of mean ranks at each split (columns), for each row of ``ranks``.

    The differences are divided by the standard deviation of a difference of means of k and n - k values, up to a
    factor that all splits share.
    """
    n = ranks.shape[1]
    before = np.array(splits, dtype=np.float64)
    sums = np.cumsum(ranks, axis=1)
    left = sums[:, np.array(splits) - 1]
    difference = left / before - (sums[:, -1:] - left) / (n - before)
    return np.asarray(np.abs(difference) * np.sqrt(before * (n - before) / n))


def _probability(observed: float, ranks: tuple[float, ...], splits: tuple[int, ...]) -> float:
    """Return the probability of a statistic of at least ``observed`` under permutations of the ranks.

    The observed order counts as one of the permutations, so that the probability is never 0.
    """
    null = _null(ranks, splits)
    as_great = len(null) - bisect_left(null, observed - _TOLERANCE)
    return (1 + as_great) / (1 + len(null))


@lru_cache(maxsize=256)
def _null(ranks: tuple[float, ...], splits: tuple[int, ...]) -> list[float]:
    """Return the statistics of random permutations of the ranks, in increasing order."""
    generator = np.random.default_rng(SEED)
    rows = max(1, _CHUNK // len(ranks))
    found = []
    for start in range(0, PERMUTATIONS, rows):
        number = min(rows, PERMUTATIONS - start)
        permuted = generator.permuted(np.tile(np.array(ranks), (number, 1)), axis=1)
        found.append(_differences(permuted, splits).max(axis=1))
    return sorted(map(float, np.concatenate(found)))
