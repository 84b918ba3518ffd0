"""Whether a run had settled, as the makers of solid-state disks define it (SNIA SSS PTS 2.0, steady state)."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, linear_regression

from raidproof.core.errors import RigError
from raidproof.core.layer import State
from raidproof.workload.sample import Point

WINDOW = 5
"""Points that are judged together."""
EXCURSION = 0.20
"""How far apart the largest and the smallest value of a window may be, as a share of its mean."""
SLOPE = 0.10
"""How far the least-squares line may rise or fall over a window, as a share of its mean."""


class Steady(State):
    """Whether a run ended in steady state, and since when."""

    steady: bool | None
    """None: too few points to say."""
    since_s: float | None
    """From the run's beginning; from here to its end every window is steady."""
    window: int
    excursion: float | None
    """Of the last window, as a share of its mean; None where there is no window or nothing moved."""
    slope: float | None
    """The line's rise over the last window, negative if it falls, as a share of its mean."""
    reason: str


def find_steady(series: Sequence[Point]) -> Steady:
    """Judge a series by its windows of five points.

    The standard stops at the first steady window. Here the run goes on, so it is the last window that decides: a
    cache that fills up late looks steady twice, and only the second time counts.

    Raises:
        RigError: the points are not in the order of time.
    """
    if any(late.at_s <= early.at_s for early, late in pairwise(series)):
        raise RigError("the points of a series are not in the order of time")
    if len(series) < WINDOW:
        return _found(None, None, (None, None), f"{len(series)} points are fewer than a window of {WINDOW}")
    windows = [series[first : first + WINDOW] for first in range(len(series) - WINDOW + 1)]
    last = _shape(windows[-1])
    if reason := _unsteady(last):
        return _found(False, None, last, reason)
    first = len(windows) - 1
    while first and not _unsteady(_shape(windows[first - 1])):
        first -= 1
    since_s = series[first - 1].at_s if first else 0.0
    return _found(True, since_s, last, f"steady since {since_s:g} s")


Shape = tuple[float | None, float | None]
"""Excursion and slope of a window, as shares of its mean."""


def _shape(window: Sequence[Point]) -> Shape:
    values = [point.value for point in window]
    if (mean := fmean(values)) <= 0:
        return None, None
    times = [point.at_s for point in window]
    line = linear_regression(times, values)
    return (max(values) - min(values)) / mean, line.slope * (times[-1] - times[0]) / mean


def _unsteady(shape: Shape) -> str:
    excursion, slope = shape
    if excursion is None or slope is None:
        return "nothing moved"
    if excursion > EXCURSION:
        return f"values {excursion:.0%} of their mean apart, more than {EXCURSION:.0%}"
    if abs(slope) > SLOPE:
        return f"{'rising' if slope > 0 else 'falling'} by {abs(slope):.0%} in a window, more than {SLOPE:.0%}"
    return ""


def _found(steady: bool | None, since_s: float | None, last: Shape, reason: str) -> Steady:
    return Steady(steady=steady, since_s=since_s, window=WINDOW, excursion=last[0], slope=last[1], reason=reason)
