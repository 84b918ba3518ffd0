"""Parts of charts: frame, axes, rows of horizontal bars, and bars over time. figures.j2 draws them as SVG."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raidproof.report.words import number, plural

MAX_LINEAR_SPAN = 50.0
"""Ratio of the largest to the smallest positive value above which an axis becomes logarithmic."""
TOP, BAR = 10.0, 14.0
"""Top of the first row, and height of a horizontal bar, in pixels."""
NAME_LINE = 14.0
"""Distance in pixels from the top of a row to the baseline of its label; the row's bars are below the label."""
STEP = 19.0
"""Distance in pixels between the bars of a row."""
LEAST_HEIGHT = 1.5
"""Least height in pixels of a bar over time, so that a single operation is visible beside thousands."""


@dataclass(frozen=True)
class Frame:
    """The size of a chart and the edges of its plot area, in pixels from the chart's top left corner."""

    name: str
    """CSS class of the chart's element: the style sheet shows ``wide`` or ``narrow`` charts by the browser's width."""
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    @property
    def suffix(self) -> str:
        """Suffix of the ids of the chart's elements: it differs from frame to frame, so that each id is unique."""
        return "" if self.name == "wide" else f"-{self.name}"


@dataclass(frozen=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    """Position in pixels: horizontal on an x axis, vertical on a y axis."""
    label: str
    """The value as text."""


@dataclass(frozen=True)
class Axis:
    """An axis of a chart: it maps values to pixels.

    An axis whose values span a wide range is linear from 0 to a knee, and logarithmic above the knee.
    """

    low: float
    """Value at the axis's beginning."""
    high: float
    """Value at the axis's end."""
    start: float
    """Position of the axis's beginning, in pixels."""
    end: float
    """Position of the axis's end, in pixels; less than ``start`` on a y axis."""
    values: tuple[float, ...]
    """Values of the ticks."""
    knee: float | None = None
    """The value above which the axis is logarithmic; None if the axis is linear."""

    @classmethod
    def from_zero(cls, values: Iterable[float], start: float, end: float) -> "Axis":
        """Return an axis from zero to at least the greatest value; ``start`` and ``end``: its ends in pixels."""
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
        """Return a linear axis from ``low`` to ``high``; ``start`` and ``end``: its ends in pixels."""
        step = nice_step(high - low, 12)
        first, last = math.ceil(low / step), math.floor(high / step)
        return cls(low, high, start, end, tuple(step * turn for turn in range(first, last + 1)))

    def at(self, value: float) -> float:
        """Return the position of a value in pixels; the position of a value outside the axis is the nearer end."""
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
        """The labelled positions on the axis."""
        return [Tick(self.at(value), plain(value)) for value in self.values]

    @property
    def scale(self) -> str:
        """A note for the reader if the axis is logarithmic; empty for a linear axis."""
        return "" if self.knee is None else f"logarithmic above {plain(self.knee)}"


def nice_step(span: float, most: int) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that divides a span into at most ``most`` parts."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step for factor in (1, 2, 5, 10, 20) if span / (step := factor * power) <= most + 1e-9)


def plain(value: float) -> str:
    """Return the value of a tick as text, without trailing zeros."""
    text = f"{value:.6g}"
    return number(value) if "e" in text else f"{float(text):,.10g}".replace("-", "\u2212")


@dataclass(frozen=True)
class Bar:
    """A horizontal bar that shows the median of several values, with a dot for each value; positions in pixels."""

    kind: str
    """CSS class of the bar; ``unranked`` is hatched."""
    top: float
    """Position of the bar's top."""
    end: float
    """Position of the bar's right end; without a value, that of its left end."""
    dots: list[float]
    """Horizontal positions of the single values."""
    side: str = ""
    """Label to the left of the bar: the side of a comparison."""
    words: str = ""
    """The median as text, to the left of the bar."""
    expected: float | None = None
    """Horizontal position of the expected value; None without one."""

    @property
    def middle(self) -> float:
        """Vertical middle of the bar, in pixels."""
        return self.top + BAR / 2


@dataclass(frozen=True)
class Row:
    """One row of a chart: the label of a cell or a configuration, and its bars below the label."""

    name: str
    label: Sequence[tuple[str, str]]
    """Parts of the label, each with its CSS class."""
    words: str
    """Text alternative for the row."""
    top: float
    """Position of the row's top, in pixels."""
    bars: list[Bar]

    @property
    def base(self) -> float:
        """Position of the label's baseline, in pixels."""
        return self.top + NAME_LINE


@dataclass(frozen=True)
class Bars:
    """A chart of horizontal bars, laid out for the template; lengths and positions in pixels."""

    id: str
    """HTML id of the chart."""
    title: str
    x: Axis
    rows: list[Row]
    row_height: float
    legend: Sequence[tuple[str, str]]
    """The kind of each mark (its CSS class), with its meaning for the reader."""
    note: str = ""
    """A remark for the chart's caption."""
    width: float = 960.0
    top: float = TOP
    bar_height: float = BAR

    @property
    def bottom(self) -> float:
        """Position of the last row's bottom, in pixels."""
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
    """Return the position of the top of a row's bar in pixels; ``line``: the number of the bar in the row, from 0."""
    return row_top + NAME_LINE + 6 + STEP * line


@dataclass(frozen=True)
class TimeBar:
    """A vertical bar whose height is the number of operations acknowledged in an interval; in pixels."""

    x: float
    """Position of the bar's left edge."""
    y: float
    """Position of the bar's top."""
    width: float
    height: float
    status: str
    """CSS class: ``kept``, ``doubtful`` (after the last durable point) or ``after`` (the fault)."""
    words: str
    """Text alternative for the bar."""


def time_bar(begin_s: float, width_s: float, count: int, x: Axis, y: Axis, status: str = "kept") -> TimeBar:
    """Return the bar of the interval of ``width_s`` seconds from ``begin_s`` on, with ``count`` acknowledgements."""
    left, right, top = x.at(begin_s), x.at(begin_s + width_s), min(y.at(count), y.start - LEAST_HEIGHT)
    words = f"{number(begin_s)} s to {number(begin_s + width_s)} s: {plural(count, 'operation')} acknowledged"
    return TimeBar(left, top, round(max(right - left - 0.6, 0.8), 1), round(y.start - top, 1), status, words)
