"""Statistics of samples: permutation test, confidence interval, correction, groups, power, shares.

Pure functions of numbers. `scipy` imports its submodules at their first use, which takes a second.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, combinations
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

MOST_ARRANGEMENTS = 200_000
"""Greatest number of arrangements that the test enumerates; of more, it draws `DRAWN`."""
DRAWN = 99_999
"""Number of arrangements that the test draws if it cannot enumerate all; their seed is fixed."""
ROUNDS_IN_BLOCK = 5
"""Least number of rounds in a block, if there are several blocks."""
POWER = 0.95
"""The probability with which `least_change` is found."""
SETTLED = 0.8
"""The probability with which `repetitions_to_settle` repetitions decide a cell."""
MOST_REPETITIONS = 1000
"""Greatest number of repetitions that the functions below consider."""
GREATEST = math.log(100.0)
"""Greatest change that `least_change` considers, as a difference of logarithms."""
ENOUGH = 1e-5
"""Accuracy of the result of `least_change`, as a difference of logarithms."""
LEAST_VALUES, LEAST_GROUP, GAP = 8, 3, 3.0
"""`groups` needs 8 values, 3 in each group, and a gap that is 3 times as wide as the wider group."""
_TIE = 1e-9
"""Difference of logarithms below which two sums are equal."""

Sizes = tuple[tuple[int, int], ...]
"""For each block, the number of its values on base and on new."""


class Shift(NamedTuple):
    """The difference of the logarithms of two samples, new minus base."""

    estimate: float
    low: float | None
    """Lower limit of the confidence interval; None if there are too few arrangements for a limit."""
    high: float | None
    """Upper limit of the confidence interval; None if there are too few arrangements for a limit."""
    p: float
    """Two-sided probability of a difference at least as great if both samples come from the same distribution."""
    variation: float
    """Standard deviation of the logarithms of a sample within its block."""


def blocks_of(rounds: int) -> list[int]:
    """Return the numbers of consecutive rounds in each block of the test, from the number of rounds.

    The sides are measured in turn, so that slow drift of the host moves both sides of a block. A block has 5 to 9
    rounds: within pairs, the smallest p of 10 rounds would be 2/1,024, which 24 corrected cells seldom reach.
    """
    return evenly(rounds, max(1, rounds // ROUNDS_IN_BLOCK))


def evenly(count: int, parts: int) -> list[int]:
    """Return the sizes of parts whose sizes differ by at most 1; without empty parts."""
    return [size for place in range(parts) if (size := count // parts + (place < count % parts))]


def blocks_over(rounds: int, workers: int) -> list[int]:
    """Return the blocks of rounds that are spread evenly over workers; a block has rounds of one worker only."""
    return [size for share in evenly(rounds, workers) for size in blocks_of(share)]


def shift(base: Sequence[float], new: Sequence[float], blocks: Sequence[int], confidence: float = 0.95) -> Shift:
    """Return the difference of the logarithms of two samples of positive values, with its exact interval and p.

    ``blocks``: the numbers of consecutive values of both sides in each block; a single block may have different
    numbers of values on the sides, then its own number is not used.

    The test permutes the sides of the values within each block; its statistic is the difference of the means of the
    logarithms, weighted by the sizes of the blocks. It enumerates all arrangements, or draws `DRAWN` of them, which
    gives a valid p too (Phipson and Smyth 2010). The interval has the shifts that the same test does not reject: for
    each arrangement, there is one shift at which the arrangement's statistic equals the observed one (Garthwaite
    1996), and the limits are order statistics of these shifts.
    """
    sizes = tuple((size, size) for size in blocks) if len(blocks) > 1 else ((len(base), len(new)),)
    possible = arrangements(sizes)
    logs = np.log(np.array([*base, *new], dtype=float))
    observed = float(possible.observed @ logs)
    shifts = (observed - possible.others @ logs) / possible.swapped
    certain, total = possible.same, possible.same + len(shifts)
    above = certain + int(np.count_nonzero(shifts <= _TIE))
    below = certain + int(np.count_nonzero(shifts >= -_TIE))
    place = math.floor((1 - confidence) / 2 * total + _TIE) - certain
    limited = 0 <= place < len(shifts)
    if limited:
        shifts.partition([place, len(shifts) - 1 - place])
    return Shift(
        estimate=observed,
        low=float(shifts[place]) if limited else None,
        high=float(shifts[-1 - place]) if limited else None,
        p=min(1.0, 2 * min(above, below) / total),
        variation=variation([base, new], sizes),
    )


def variation(samples: Sequence[Sequence[float]], sizes: Sizes | None = None) -> float:
    """Return the standard deviation of the logarithms within samples, pooled; of a part of a sample in each block.

    If no block has more than one value of a side, it follows from the differences within blocks, whose variance is
    twice as great.
    """
    if sizes is not None and len(sizes) > 1 and set(sizes) == {(1, 1)}:
        base, new = (np.log(np.array(values, dtype=float)) for values in samples)
        return float((new - base).std(ddof=1)) / math.sqrt(2)
    parts: list[NDArray[np.float64]] = []
    for side, values in enumerate(samples):
        ends = accumulate(size[side] for size in sizes) if sizes else [len(values)]
        parts += np.split(np.log(np.array(values, dtype=float)), list(ends)[:-1])
    freedom = sum(len(part) - 1 for part in parts if len(part))
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in parts if len(part))
    return math.sqrt(squares / freedom) if freedom > 0 else 0.0


class Arrangements(NamedTuple):
    """The arrangements of the sides of values, as weights of the values in the statistic: first base, then new."""

    observed: NDArray[np.float64]
    """The weights of the observed arrangement."""
    others: NDArray[np.float64]
    """A row of weights for each arrangement that differs from the observed one."""
    swapped: NDArray[np.float64]
    """For each row of ``others``, by how much a shift of new by 1 lowers its statistic below the observed one."""
    same: int
    """Number of arrangements that are equal to the observed one, itself included."""


@lru_cache(maxsize=4)
def arrangements(sizes: Sizes) -> Arrangements:
    """Return the arrangements of the sides within blocks of these sizes."""
    worth = np.array([base * new / (base + new) for base, new in sizes])
    worth /= worth.sum()
    starts_new = sum(base for base, _ in sizes)
    columns = _columns(sizes, starts_new)
    count = math.prod(math.comb(base + new, new) for base, new in sizes)
    rows = min(count, DRAWN + 1) if count > MOST_ARRANGEMENTS else count
    weights = np.zeros((rows, starts_new + sum(new for _, new in sizes)))
    repeat = rows
    generator = np.random.default_rng(1)
    for (base, new), value, places in zip(sizes, worth, columns, strict=True):
        observed = np.r_[np.zeros(base, dtype=bool), np.ones(new, dtype=bool)]
        if count > MOST_ARRANGEMENTS:
            is_new = generator.permuted(np.tile(observed, (rows, 1)), axis=1)
            is_new[0] = observed
        else:
            # Of the combinations in lexicographic order, the last one is the observed one: reversed, it is the first.
            chosen = list(combinations(range(base + new), new))[::-1]
            block = np.zeros((len(chosen), base + new), dtype=bool)
            block[np.arange(len(chosen))[:, None], chosen] = True
            repeat //= len(chosen)
            is_new = np.tile(np.repeat(block, repeat, axis=0), (rows // (repeat * len(chosen)), 1))
        weights[:, places] = np.where(is_new, value / new, -value / base)
    swapped = 1 - weights[:, starts_new:].sum(axis=1)
    other = swapped > _TIE
    return Arrangements(weights[0].copy(), weights[other], swapped[other], int(np.count_nonzero(~other)))


def _columns(sizes: Sizes, starts_new: int) -> list[NDArray[np.int_]]:
    """Return the places of each block's values among all values."""
    base, new, places = 0, starts_new, []
    for bases, news in sizes:
        places.append(np.r_[base : base + bases, new : new + news])
        base, new = base + bases, new + news
    return places


def corrected(probabilities: Sequence[float]) -> list[float]:
    """Return each p corrected for the number of tests by Hochberg's method (1988), in the given order.

    If every test with a corrected p of at most 4 % is called, the probability of any false call is at most 4 %. The
    method has the factors of Holm's (1979) and begins with the greatest p, so that it finds more; it supposes that the
    tests are independent or positively dependent, as of cells that were measured one after the other. Benjamini and
    Hochberg's method limits the share of false calls instead: if half of 24 cells are changed, it calls an equal one
    in 25 % of comparisons (`benchmarks/comparison_power.py`).
    """
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__, reverse=True)
    each = accumulate((min(1.0, factor * probabilities[one]) for factor, one in enumerate(order, start=1)), min)
    by_place = dict(zip(order, each, strict=True))
    return [by_place[place] for place in range(len(order))]


def groups(values: Sequence[float], least_gap: float) -> tuple[list[float], list[float]] | None:
    """Return two separate groups of positive values; None if the values are not bimodal, or fewer than 8.

    Two groups are separate if each has at least 3 values, and if the gap between them, on a logarithmic scale, is more
    than 3 times as wide as the wider group, and wider than ``least_gap``. Of samples of 8 (10) values without groups
    it finds groups in 0.08 % (0.01 %) if they are normal, 0.5 % (0.1 %) if uniform, and 0.3 % (0.1 %) if exponential,
    by simulation of 200,000 samples (`benchmarks/comparison_power.py`).
    """
    ordered = sorted(values)
    if len(ordered) < LEAST_VALUES or ordered[0] <= 0:
        return None
    logs = [math.log(value) for value in ordered]
    for place in range(LEAST_GROUP, len(logs) - LEAST_GROUP + 1):
        widest = max(logs[place - 1] - logs[0], logs[-1] - logs[place])
        if logs[place] - logs[place - 1] > max(GAP * widest, least_gap):
            return ordered[:place], ordered[place:]
    return None


def least_repetitions(level: float, *, paired: bool = False) -> int:
    """Return the least number of repetitions of each side with which the exact test can reach a two-sided p.

    ``paired``: if each repetition may be of another worker, so that each block has one value of each side.
    """
    return next(n for n in range(2, MOST_REPETITIONS) if 2 / _count([1] * n if paired else blocks_of(n)) <= level)


def _count(blocks: Sequence[int]) -> int:
    """Return the number of arrangements of blocks with as many values on each side, at most about 10^15."""
    return min(10**15, math.prod(math.comb(2 * size, size) for size in blocks))


def power(
    change: float, spread: float, repetitions: int, level: float, *, blocks: Sequence[int] | None = None
) -> float:
    """Return the probability that the test finds a change, from 0 to 1.

    ``change``: difference of the logarithms. ``spread``: standard deviation of the logarithms. ``level``: the p to
    reach. ``blocks``: the sizes of the test's blocks; None: as `blocks_of`. By the noncentral t distribution of the
    test of two means, whose power the permutation test has for normal noise, except for few repetitions, with which
    it cannot reach the level.
    """
    blocks = blocks_of(repetitions) if blocks is None else blocks
    if repetitions < 2 or 2 / _count(blocks) > level:
        return 0.0
    return _power(change, spread, repetitions, level, 2 * repetitions - 1 - len(blocks))


def _power(change: float, spread: float, repetitions: int, level: float, freedom: int) -> float:
    """Return the power of the t test of two means, from 0 to 1; ``freedom``: degrees of freedom of the variation."""
    if spread <= 0:
        return float(change != 0)
    limit = -scipy.special.stdtrit(freedom, level / 2)
    offset = abs(change) / (spread * math.sqrt(2 / repetitions))
    missed = float(scipy.special.nctdtr(freedom, offset, limit))
    # For a great offset, the function of scipy has no result.
    return 1 - missed if math.isfinite(missed) else 1.0


def least_change(
    spread: float, repetitions: int, level: float, *, blocks: Sequence[int] | None = None
) -> float | None:
    """Return the smallest change that the test finds with probability `POWER`, as a share; None if it finds none.

    Parameters as for `power`. A share of 0.1 is an increase by 10 %, or the reverse decrease by 9.1 %.
    """

    def found(change: float) -> float:
        return power(change, spread, repetitions, level, blocks=blocks)

    if spread <= 0:
        return 0.0 if found(1.0) else None
    if found(GREATEST) < POWER:
        return None

    low, high = 0.0, GREATEST
    while high - low > ENOUGH:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) >= POWER else (middle, high)
    return math.expm1(high)


def repetitions_to_settle(
    found: Shift, margin: float, level: float, *, confidence: float = 0.95, least: int = 2, workers: int = 1
) -> int | None:
    """Return the number of repetitions of each side that decide a cell with probability `SETTLED`; None if too many.

    The cell is decided if the test finds the change, or if the interval lies within the margin, supposed that change
    and variation are as measured. ``least``: a number that is certainly too small, or the present one. ``workers``:
    the number of workers over which the repetitions are spread.
    """

    def finds(repetitions: int) -> bool:
        blocks = blocks_over(repetitions, workers)
        return power(found.estimate, found.variation, repetitions, level, blocks=blocks) >= SETTLED

    def same(repetitions: int) -> bool:
        return _is_same_with(found, margin, repetitions, confidence, workers)

    numbers = range(max(2, least), MOST_REPETITIONS + 1)
    return min(filter(None, (_least(numbers, finds), _least(numbers, same))), default=None)


def _is_same_with(found: Shift, margin: float, repetitions: int, confidence: float, workers: int) -> bool:
    """Return whether the interval will lie within the margin with probability `SETTLED`, for normal noise."""
    if math.floor((1 - confidence) / 2 * _count(blocks_over(repetitions, workers))) < 1:
        return False
    error = found.variation * math.sqrt(2 / repetitions)
    half = -float(scipy.special.stdtrit(2 * repetitions - 2, (1 - confidence) / 2)) * error
    low, high = math.log1p(-margin) + half, math.log1p(margin) - half
    if low >= high:
        return False
    if error <= 0:
        return low <= found.estimate <= high
    below, inside = (float(scipy.special.ndtr((limit - found.estimate) / error)) for limit in (low, high))
    return inside - below >= SETTLED


def differing(samples: Sequence[Sequence[float]], level: float) -> list[list[bool]]:
    """Return for each two samples of positive values whether they differ, as a square matrix.

    By Welch's t test (1947) of the logarithms, corrected over all pairs by Hochberg's method. The test supposes normal
    noise, as an exact test of 3 repetitions, the default number, could show nothing. A sample with a single value, or
    with a value that is not positive, differs from none.
    """
    count = len(samples)
    usable = np.array([len(values) > 1 and min(values) > 0 for values in samples], dtype=bool)
    logs = [np.log(values) if good else np.zeros(2) for values, good in zip(samples, usable, strict=True)]
    means = np.array([values.mean() for values in logs])
    errors = np.array([values.var(ddof=1) / len(values) for values in logs])
    freedoms = np.array([len(values) - 1 for values in logs])
    first, second = np.triu_indices(count, 1)
    both = errors[first] + errors[second]
    shares = errors[first] ** 2 / freedoms[first] + errors[second] ** 2 / freedoms[second]
    # Without any variation, as on a virtual clock, every difference is certain.
    certain = both <= _TIE**2
    apart = means[first] - means[second]
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * scipy.special.stdtr(both**2 / shares, -np.abs(apart) / np.sqrt(both))
    p = np.where(certain, np.abs(apart) <= _TIE, p)
    return _square(count, called(np.where(usable[first] & usable[second], p, 1.0), level))


def _square(count: int, pairs: NDArray[np.bool_]) -> list[list[bool]]:
    """Return the results of all pairs of ``count`` samples, in the order of `numpy.triu_indices`, as a square."""
    first, second = np.triu_indices(count, 1)
    square = np.zeros((count, count), dtype=bool)
    square[first, second] = square[second, first] = pairs
    return [[bool(one) for one in row] for row in square]


def called(p: NDArray[np.float64], level: float) -> NDArray[np.bool_]:
    """Return which tests are called by Hochberg's method, from their probabilities; see `corrected`."""
    order = np.argsort(p)[::-1]
    low_enough = p[order] * np.arange(1, len(order) + 1) <= level
    found = np.zeros(len(order), dtype=bool)
    if low_enough.any():
        found[order[int(np.argmax(low_enough)) :]] = True
    return found


def repetitions_to_part(one: Sequence[float], other: Sequence[float], level: float) -> int | None:
    """Return the number of repetitions that show a difference of two samples with probability `SETTLED`.

    Supposed that difference and variation are as measured. None if more than `MOST_REPETITIONS`, or not known.
    """
    if min(len(one), len(other)) < 2 or min(*one, *other) <= 0:
        return None
    apart = float(np.log(one).mean() - np.log(other).mean())
    spread = variation([one, other])
    numbers = range(max(2, min(len(one), len(other)) + 1), MOST_REPETITIONS + 1)

    def enough(repetitions: int) -> bool:
        return _power(apart, spread, repetitions, level, 2 * repetitions - 2) >= SETTLED

    return _least(numbers, enough)


def _least(numbers: Sequence[int], enough: Callable[[int], bool]) -> int | None:
    """Return the least of ascending numbers that is enough, as all greater ones are; None if none is."""
    place = bisect_left(numbers, True, key=enough)
    return numbers[place] if place < len(numbers) else None


class Components(NamedTuple):
    """The variation of values of several workers, as standard deviations of the logarithms."""

    between: float
    """Of the levels of the workers."""
    within: float
    """Of the values of one worker."""


def components(samples: Sequence[Sequence[float]]) -> Components | None:
    """Return the variation between and within samples of positive values, one of each worker.

    By the analysis of variance of one random factor with unequal numbers (Searle, Casella and McCulloch 1992). None
    with fewer than two samples, or if no sample has two values.
    """
    logs = [np.log(np.array(values, dtype=float)) for values in samples if len(values)]
    sizes = np.array([len(one) for one in logs], dtype=float)
    total, groups_ = float(sizes.sum()), len(logs)
    if groups_ < 2 or total <= groups_ or min(map(min, samples)) <= 0:
        return None
    means = np.array([one.mean() for one in logs])
    within = sum(float(((one - one.mean()) ** 2).sum()) for one in logs) / (total - groups_)
    middle = float((sizes * means).sum() / total)
    between = float((sizes * (means - middle) ** 2).sum()) / (groups_ - 1)
    each = (total - float((sizes**2).sum()) / total) / (groups_ - 1)
    return Components(math.sqrt(max(0.0, (between - within) / each)), math.sqrt(within))


Rounds = Mapping[Any, float]
"""The positive value of a cell in each round; rounds of two workers have different keys."""


def levels(samples: Sequence[Rounds]) -> list[float]:
    """Return the level of each sample, as a logarithm, without the effects of the rounds that they have in common.

    By least squares of the model: logarithm = level of the sample + effect of the round.
    """
    logs = _table(samples)
    level = np.zeros(len(samples))
    if logs.size:
        there = ~np.isnan(logs)
        for _ in range(FITS):
            rounds = _means(logs - level[:, None], there, axis=0)
            level = _means(logs - (rounds - rounds.mean()), there, axis=1)
    return [float(one) for one in level]


FITS = 100
"""Number of steps in which `levels` fits the effects of samples and rounds in turn; without gaps, one is enough."""


def _means(values: NDArray[np.float64], there: NDArray[np.bool_], axis: int) -> NDArray[np.float64]:
    means: NDArray[np.float64] = np.where(there, values, 0.0).sum(axis=axis) / np.maximum(1, there.sum(axis=axis))
    return means


def _table(samples: Sequence[Rounds]) -> NDArray[np.float64]:
    """Return the logarithms with a row for each sample and a column for each round; NaN without a value."""
    rounds = list(dict.fromkeys(key for one in samples for key in one))
    table = [[one.get(key, math.nan) for key in rounds] for one in samples]
    logs: NDArray[np.float64] = np.log(np.array(table, dtype=float).reshape(len(samples), len(rounds)))
    return logs


def differing_in_rounds(samples: Sequence[Rounds], level: float) -> list[list[bool]]:
    """Return for each two samples whether they differ within rounds, as a square matrix.

    By the t test of the differences of the logarithms within the rounds that both have, so that the speed of the
    worker of a round has no effect; corrected over all pairs by Hochberg's method. Two samples with fewer than two
    common rounds do not differ.
    """
    logs, count = _table(samples), len(samples)
    first, second = np.triu_indices(count, 1)
    p = np.array([_p_of_pairs(logs[one] - logs[other]) for one, other in zip(first, second, strict=True)])
    return _square(count, called(p, level))


def _p_of_pairs(apart: NDArray[np.float64]) -> float:
    """Return the two-sided p of the t test of differences; NaN is no value."""
    found = apart[~np.isnan(apart)]
    if len(found) < 2:
        return 1.0
    middle, error = float(found.mean()), float(found.std(ddof=1)) / math.sqrt(len(found))
    if error <= _TIE:
        # Without any variation, as on a virtual clock, every difference is certain.
        return float(abs(middle) <= _TIE)
    return float(2 * scipy.special.stdtr(len(found) - 1, -abs(middle) / error))


def rounds_to_part(one: Rounds, other: Rounds, level: float) -> int | None:
    """Return the number of common rounds that show a difference, as `repetitions_to_part` for other samples."""
    both = [key for key in one if key in other]
    if len(both) < 2:
        return None
    apart = np.log([one[key] for key in both]) - np.log([other[key] for key in both])
    spread = float(apart.std(ddof=1)) / math.sqrt(2)
    numbers = range(len(both) + 1, MOST_REPETITIONS + 1)

    def enough(rounds: int) -> bool:
        return _power(float(apart.mean()), spread, rounds, level, rounds - 1) >= SETTLED

    return _least(numbers, enough)


def same_share(broken_base: int, of_base: int, broken_new: int, of_new: int) -> float:
    """Return the two-sided probability of shares at least as different if both sides have the same share.

    By Fisher's exact test, which keeps its level for any numbers.
    """
    table = np.array([[broken_base, of_base - broken_base], [broken_new, of_new - broken_new]])
    return float(scipy.stats.fisher_exact(table).pvalue)


def share_interval(count: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of a probability, from ``count`` events in ``of`` > 0 independent trials.

    By Clopper and Pearson (1934), whose interval has at least this confidence for each probability.
    """
    tail = (1 - confidence) / 2
    low = float(scipy.special.betaincinv(count, of - count + 1, tail)) if count else 0.0
    high = float(scipy.special.betaincinv(count + 1, of - count, 1 - tail)) if count < of else 1.0
    return low, high


class Ratio(NamedTuple):
    """The ratio of two configurations that were measured in the same rounds, with its confidence interval."""

    estimate: float
    low: float | None
    """Lower limit of the interval; None with fewer than two rounds."""
    high: float | None
    rounds: int


def paired_ratio(base: Sequence[float], new: Sequence[float], confidence: float = 0.95) -> Ratio | None:
    """Return new divided by base, as the geometric mean over rounds; None without a round.

    ``base`` and ``new``: positive values of the same rounds, in the same order. The interval is that of the t test of
    the differences of the logarithms within rounds, so that a drift of the host between rounds does not widen it.
    """
    if not base:
        return None
    apart = np.log(np.array(new, dtype=float)) - np.log(np.array(base, dtype=float))
    middle, rounds = float(apart.mean()), len(apart)
    if rounds < 2:
        return Ratio(math.exp(middle), None, None, rounds)
    error = float(apart.std(ddof=1)) / math.sqrt(rounds)
    half = -float(scipy.special.stdtrit(rounds - 1, (1 - confidence) / 2)) * error
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half), rounds)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, from -1 to 1; equal values share a rank.

    None with fewer than 3 pairs, or if all values of a side are equal.
    """
    if len(one) < 3:
        return None
    ranks = [_ranks(np.array(values, dtype=float)) for values in (one, other)]
    if any(float(np.ptp(each)) <= 0 for each in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value, from 1; equal values get their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: NDArray[np.float64] = last - (counts - 1) / 2
    return means[inverse]


def predicted(
    known: Sequence[Sequence[float]], values: Sequence[float], asked: Sequence[Sequence[float]], penalty: float
) -> list[float]:
    """Return the values that a linear regression predicts for the rows ``asked``, from the values of ``known`` rows.

    By least squares with a quadratic penalty on all coefficients except the constant (ridge regression, Hoerl and
    Kennard 1970), so that a column without evidence has no effect.
    """
    rows, observed = np.array(known, dtype=float), np.array(values, dtype=float)
    middle = rows.mean(axis=0)
    centred = rows - middle
    normal = centred.T @ centred + penalty * np.eye(rows.shape[1])
    weights = np.linalg.solve(normal, centred.T @ (observed - observed.mean()))
    result: NDArray[np.float64] = (np.array(asked, dtype=float) - middle) @ weights + observed.mean()
    return [float(one) for one in result]
