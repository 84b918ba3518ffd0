"""What charts have in common: size, axes, rows of horizontal bars, and bars over time; figures.j2 draws them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raidproof.report.words import number, plural

MAX_LINEAR_SPAN = 50.0
"""Ratio of largest to smallest value above which an axis becomes logarithmic."""
TOP, BAR = 10.0, 14.0
"""Top of the first row, and height of a horizontal bar, in pixels."""
NAME_LINE = 14.0
"""Distance in pixels from the top of a row to the baseline of its label; the bars are below."""
STEP = 19.0
"""Distance in pixels between the bars of a row."""
LEAST_HEIGHT = 1.5
"""Least height in pixels of a bar over time, so that a single operation is visible beside thousands."""


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
    """Values from ``low`` to ``high`` on pixels from ``start`` to ``end``.

    The axis is linear, or logarithmic above a knee if its values span a wide range.
    """

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


@dataclass(frozen=True)
class Bar:
    """A horizontal bar, with the values of which it shows the median."""

    kind: str
    """CSS class of the bar; ``unranked`` is hatched."""
    top: float
    end: float
    """Right end of the bar in pixels; at the axis if there is no value."""
    dots: list[float]
    """Positions of the single values."""
    side: str = ""
    """Name of the bar, left of it."""
    words: str = ""
    """The value as text, left of the bar."""
    expected: float | None = None
    """Position of the expected value."""

    @property
    def middle(self) -> float:
        """Vertical middle of the bar, in pixels."""
        return self.top + BAR / 2


@dataclass(frozen=True)
class Row:
    """The bars of one thing, below its label."""

    name: str
    label: Sequence[tuple[str, str]]
    """Pieces of the label, each with its CSS class."""
    words: str
    """Text alternative for the row."""
    top: float
    bars: list[Bar]

    @property
    def base(self) -> float:
        """Baseline of the label, in pixels."""
        return self.top + NAME_LINE


@dataclass(frozen=True)
class Bars:
    """A laid-out chart of horizontal bars."""

    id: str
    title: str
    x: Axis
    rows: list[Row]
    row_height: float
    legend: Sequence[tuple[str, str]]
    """Kinds of marks with their meanings."""
    note: str = ""
    """A remark for the caption."""
    width: float = 960.0
    top: float = TOP
    bar_height: float = BAR

    @property
    def bottom(self) -> float:
        """Bottom of the rows, in pixels."""
        return self.top + self.row_height * len(self.rows)

    @property
    def height(self) -> float:
        """Height of the chart, in pixels."""
        return self.bottom + 30

    @property
    def description(self) -> str:
        """Text alternative for the chart."""
        return "; ".join(row.words for row in self.rows)


def bar_top(row_top: float, line: int = 0) -> float:
    """Return the top of a row's bar number ``line``, in pixels."""
    return row_top + NAME_LINE + 6 + STEP * line


@dataclass(frozen=True)
class TimeBar:
    """A bar of the operations acknowledged in an interval."""

    x: float
    y: float
    width: float
    height: float
    status: str
    """CSS class: ``kept``, ``doubtful`` (after the last durable point) or ``after`` the fault."""
    words: str


def time_bar(begin_s: float, width_s: float, count: int, x: Axis, y: Axis, status: str = "kept") -> TimeBar:
    """Return the bar of one interval."""
    left, right, top = x.at(begin_s), x.at(begin_s + width_s), min(y.at(count), y.start - LEAST_HEIGHT)
    words = f"{number(begin_s)} s to {number(begin_s + width_s)} s: {plural(count, 'operation')} acknowledged"
    return TimeBar(left, top, round(max(right - left - 0.6, 0.8), 1), round(y.start - top, 1), status, words)
