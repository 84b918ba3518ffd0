"""Axes and size of a chart; an axis is linear, or logarithmic above a knee if its values span a wide range."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from raidproof.report.words import number

MAX_LINEAR_SPAN = 50.0
"""Ratio of largest to smallest value above which an axis becomes logarithmic."""


@dataclass(frozen=True)
class Frame:
    """The size of a chart and the positions of its axes, in pixels."""

    name: str
    """CSS class of the chart's element; the style sheet shows or hides it by page width."""
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    @property
    def suffix(self) -> str:
        """Suffix of element ids, so that they differ from those of the same chart in the wide frame."""
        return "" if self.name == "wide" else f"-{self.name}"


@dataclass(frozen=True)
class Tick:
    """A labelled position."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` on pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    values: tuple[float, ...]
    """Values of the ticks."""
    knee: float | None = None
    """Above this the axis is logarithmic; None for a linear one."""

    @classmethod
    def from_zero(cls, values: Iterable[float], start: float, end: float) -> "Axis":
        """Return an axis that contains zero and all values."""
        positive = [value for value in values if value > 0]
        if not positive:
            return cls(0, 1, start, end, (0, 1))
        if max(positive) / min(positive) > MAX_LINEAR_SPAN:
            knee = 10.0 ** math.floor(math.log10(min(positive)))
            decades = math.ceil(math.log10(max(positive) / knee))
            powers = tuple(knee * 10**power for power in range(decades + 1))
            return cls(0, powers[-1], start, end, (0, *powers), knee)
        step = nice_step(max(positive), 5)
        steps = math.ceil(max(positive) / step * (1 - 1e-9))
        return cls(0, steps * step, start, end, tuple(step * turn for turn in range(steps + 1)))

    @classmethod
    def between(cls, low: float, high: float, start: float, end: float) -> "Axis":
        """Return a linear axis with exactly these ends."""
        step = nice_step(high - low, 12)
        first, last = math.ceil(low / step), math.floor(high / step)
        return cls(low, high, start, end, tuple(step * turn for turn in range(first, last + 1)))

    def at(self, value: float) -> float:
        """Return the pixel of a value; a value outside the axis gets the nearer end."""
        bounded = min(max(value, self.low), self.high)
        share = (self._stretched(bounded) - self._stretched(self.low)) / (
            self._stretched(self.high) - self._stretched(self.low)
        )
        return round(self.start + share * (self.end - self.start), 1)

    def _stretched(self, value: float) -> float:
        if self.knee is None:
            return value
        return value / self.knee if value < self.knee else 1 + math.log10(value / self.knee)

    @property
    def ticks(self) -> list[Tick]:
        """The labelled positions."""
        return [Tick(self.at(value), plain(value)) for value in self.values]

    @property
    def scale(self) -> str:
        """A note for the reader about the scale; empty for a linear axis."""
        return "" if self.knee is None else f"logarithmic above {plain(self.knee)}"


def nice_step(span: float, most: int) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that divides a span into at most ``most`` parts."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step for factor in (1, 2, 5, 10, 20) if span / (step := factor * power) <= most + 1e-9)


def plain(value: float) -> str:
    """Return a round value without trailing zeros."""
    text = f"{value:.6g}"
    return number(value) if "e" in text else f"{float(text):,.10g}".replace("-", "\u2212")
