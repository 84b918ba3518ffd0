"""The charts of a comparison: two bars a cell, one a side, with a dot a visit; and what power cuts cost likewise."""

from collections.abc import Sequence
from dataclasses import dataclass

from raidproof.report import sides
from raidproof.report.axis import Axis
from raidproof.report.words import count, number
from raidproof.verdict.comparison import BASE, NEW, ComparisonRecord, Finding, SideCell

WIDTH, LEFT, RIGHT = 960.0, 108.0, 930.0
TOP, ROW, BAR = 10.0, 66.0, 14.0
NAME_LINE = 15.0
"""From the top of a row to the baseline of its name; the bars lie below."""
STEP = 19.0
"""From one bar of a row to the next."""


@dataclass(frozen=True)
class Bar:
    """One side of a row."""

    side: str
    words: str
    """The value, as it stands beside the bar."""
    top: float
    end: float
    """Where the bar ends; at the axis if there is no value."""
    dots: list[float]
    hatched: bool
    """The figure says nothing of the hardware."""


@dataclass(frozen=True)
class Row:
    """One cell, or one configuration whose power was cut."""

    name: str
    said: str
    """What the two bars show."""
    strong: bool
    """Whether a difference is shown."""
    top: float
    bars: list[Bar]

    @property
    def words(self) -> str:
        """The row in words, for those who do not see it."""
        return f"{self.name}: {', '.join(f'{bar.side} {bar.words}' for bar in self.bars)}; {self.said}"


@dataclass(frozen=True)
class Bars:
    """A chart."""

    id: str
    title: str
    x: Axis
    rows: list[Row]

    @property
    def bottom(self) -> float:
        """Where the rows end."""
        return TOP + ROW * len(self.rows)

    @property
    def height(self) -> float:
        """The whole chart's."""
        return self.bottom + 30

    @property
    def description(self) -> str:
        """The chart in words, for those who do not see it."""
        return "; ".join(row.words for row in self.rows)


def speed(group: sides.Group) -> Bars:
    """Lay out the medians of a workload, in the plan's order."""
    values = [value for pair in group.pairs for side in (pair.base, pair.new) for value in side.values]
    x = Axis.from_zero(values, LEFT, RIGHT)
    rows = []
    for place, pair in enumerate(group.pairs):
        said = f"new/base {sides.ratio(pair)}, {pair.finding}" if pair.ratio is not None else pair.finding.value
        top = TOP + ROW * place
        hatched = pair.finding is Finding.NOT_COMPARABLE
        bars = [
            bar(name, side, x, top + NAME_LINE + 6 + STEP * line, hatched=hatched)
            for line, (name, side) in enumerate(((BASE, pair.base), (NEW, pair.new)))
        ]
        rows.append(Row(pair.name, said, pair.finding in {Finding.HIGHER, Finding.LOWER}, top, bars))
    return Bars(f"speed-{group.place}", f"{group.title}, base and new", x, rows)


def bar(name: str, side: SideCell, x: Axis, top: float, *, hatched: bool) -> Bar:
    """Lay out one side of a cell."""
    words = "not measured" if side.median is None else number(side.median)
    return Bar(name, words, top, x.at(side.median or 0.0), [x.at(value) for value in side.values], hatched)


def loss(comparison: ComparisonRecord) -> Bars | None:
    """Lay out the acknowledged operations that power cuts cost; None where no side could be looked at."""
    known = [cut for cut in comparison.cuts if any(one and one.lost is not None for one in (cut.base, cut.new))]
    if not known:
        return None
    x = Axis.from_zero(_losses(comparison), LEFT, RIGHT)
    rows = []
    for place, cut in enumerate(known):
        top = TOP + ROW * place
        bars = []
        for line, (name, side) in enumerate(((BASE, cut.base), (NEW, cut.new))):
            value = side.lost if side else None
            words = count(value) if side is None or value is not None else side.lost_words
            bars.append(Bar(name, words, top + NAME_LINE + 6 + STEP * line, x.at(value or 0), [], hatched=False))
        ends = [one.outcome.value if one else "not made" for one in (cut.base, cut.new)]
        rows.append(Row(cut.title, f"base {ends[0]}, new {ends[1]}", strong=False, top=top, bars=bars))
    return Bars("loss", "Acknowledged operations lost at the power cut, base and new", x, rows)


def _losses(comparison: ComparisonRecord) -> Sequence[float]:
    return [side.lost or 0 for cut in comparison.cuts for side in (cut.base, cut.new) if side is not None]
