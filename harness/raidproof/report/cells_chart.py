"""The charts of a plan: medians in rank order, speed against loss, each cell over time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raidproof.record.cell import CellRecord
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.report.axis import Axis, Frame
from raidproof.report.cells import Ranking, expected_value, spread
from raidproof.report.columns.crash_test import export, sequential_write
from raidproof.report.words import count, number, plural

WIDE = Frame("wide", width=960, height=400, left=76, right=924, top=40, bottom=330)
NARROW = Frame("narrow", width=400, height=350, left=52, right=384, top=40, bottom=280)
LINE_HEIGHT = 18.0
LABEL_GAP = 14.0
ROUNDING = 0.1
MOST_TITLES = 12
"""With more points than this, labels are numbers alone; the table has the titles."""
CHARACTER = 7.2
"""Width of a label's character in pixels, generously."""

WIDTH, LEFT, RIGHT = 960.0, 12.0, 930.0
TOP, ROW, BAR = 10.0, 44.0, 14.0
NAME_LINE = 14.0
"""From the top of a row to the baseline of its name; the bar lies below."""
MOST_BEYOND = 2.0
"""How far beyond all cells with a rank the axis may reach for one without."""
SPARK_WIDTH, SPARK_HEIGHT = 220.0, 64.0
SPARK_LEFT, SPARK_RIGHT, SPARK_TOP, SPARK_BOTTOM = 2.0, 218.0, 6.0, 58.0


@dataclass(frozen=True)
class Known:
    """What stands on the chart, before it has a place there."""

    number: int
    title: str
    export: str
    hollow: bool
    """Drawn hollow: a control, or a cell without a rank."""
    lost: float
    speed: float
    lost_words: str
    each: tuple[float, ...] = ()
    """Each measurement of the speed, where there are more than one."""


@dataclass(frozen=True)
class Words:
    """What the chart is about."""

    id: str
    title: str
    speed: str
    speed_unit: str
    lost: str
    lost_unit: str
    hollow: str
    """What a hollow point is."""


CYCLES = Words(
    id="scatter",
    title="Sequential write speed against seconds of acknowledged work lost",
    speed="sequential write",
    speed_unit="MB/s",
    lost="acknowledged work lost",
    lost_unit="s",
    hollow="a control",
)


@dataclass(frozen=True)
class Point:
    """One cycle, or one cell of a plan, on the chart."""

    number: int
    title: str
    label: str
    """What stands behind the number: the title, or nothing where there is no room."""
    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str
    export: str
    hollow: bool
    speed: str
    lost: str
    range: tuple[float, float] | None = None
    """Where the least and the greatest speed stand; None where it was measured once."""


@dataclass(frozen=True)
class Scatter:
    """Everything that the template draws."""

    x: Axis
    y: Axis
    points: list[Point]
    missing: list[tuple[int, str, str]]
    """Cycles without a point: number, title, what is not known of them."""
    words: Words = CYCLES
    frame: Frame = WIDE

    @property
    def id(self) -> str:
        """What identifies the chart on the page."""
        return f"{self.words.id}{self.frame.suffix}"

    @property
    def description(self) -> str:
        """The chart in words, for those who do not see it."""
        return "; ".join(self.said(one) for one in self.points)

    def said(self, one: Point) -> str:
        """Return a point in words."""
        words = self.words
        return f"{one.number} {one.title}: {one.speed} {words.speed_unit}, {one.lost} {words.lost_unit} lost"


def scatter(cycles: Sequence[CrashTestRecord], frame: Frame = WIDE) -> Scatter:
    """Lay the chart out; a cycle of which a value is unknown has no point, and is named instead."""
    known: list[Known] = []
    missing = []
    for place, cycle in enumerate(cycles, start=1):
        speed, lost = sequential_write(cycle), cycle.loss_window_s
        if speed is None and cycle.control is not None:
            continue  # its speed would say nothing, and is not measured
        if speed is None or lost is None:
            unknown = [name for name, value in (("MB/s", speed), ("seconds lost", lost)) if value is None]
            missing.append((place, cycle.title, " and ".join(unknown)))
        else:
            control, each = cycle.control is not None, tuple(cycle.throughput.sequential_write_each)
            known.append(Known(place, cycle.title, export(cycle), control, lost, speed, number(lost), each))
    return laid_out(known, missing, CYCLES, frame)


def laid_out(
    known: Sequence[Known], missing: list[tuple[int, str, str]], words: Words, frame: Frame = WIDE
) -> Scatter:
    """Give everything that is known its place."""
    x = Axis.from_zero((one.lost for one in known), frame.left, frame.right - 20)
    y = Axis.from_zero((speed for one in known for speed in (one.speed, *one.each)), frame.bottom, frame.top)
    return Scatter(x, y, place_labels(known, x, y, frame), missing, words, frame)


def place_labels(known: Sequence[Known], x: Axis, y: Axis, frame: Frame = WIDE) -> list[Point]:
    """Put each label beside its point, on the side with more room, and clear of the labels placed before."""
    taken: list[tuple[float, float, float]] = []
    points = []
    for one in sorted(known, key=lambda one: (y.at(one.speed), one.number)):
        px, py = x.at(one.lost), y.at(one.speed)
        label = one.title if len(known) <= MOST_TITLES else ""
        right = px < (frame.left + frame.right) / 2
        if LABEL_GAP + CHARACTER * len(f"{one.number} {label}") > (frame.width - px if right else px):
            label = ""
        length = CHARACTER * len(f"{one.number} {label}")
        begin = px + LABEL_GAP if right else px - LABEL_GAP - length
        label_y = clear_of(taken, begin, begin + length, py, frame)
        taken.append((begin, begin + length, label_y))
        points.append(
            Point(
                number=one.number,
                title=one.title,
                label=label,
                x=px,
                y=py,
                label_x=px + LABEL_GAP if right else px - LABEL_GAP,
                label_y=label_y,
                anchor="start" if right else "end",
                export=one.export,
                hollow=one.hollow,
                speed=number(one.speed),
                lost=one.lost_words,
                range=(y.at(min(one.each)), y.at(max(one.each))) if len(one.each) > 1 else None,
            )
        )
    return points


def clear_of(
    taken: Sequence[tuple[float, float, float]], begin: float, end: float, wanted: float, frame: Frame = WIDE
) -> float:
    """Return the height nearest to the wanted one at which a label from ``begin`` to ``end`` touches no other.

    Points come from the top: labels that give way downwards keep their order, and leaders do not cross. Only where
    there is no room below they go up; where the chart is full, they overlap.
    """
    below = sorted({wanted, *(height + LINE_HEIGHT for *_, height in taken)})
    above = sorted((height - LINE_HEIGHT for *_, height in taken), reverse=True)
    for height in (*(one for one in below if one >= wanted), *(one for one in above if one < wanted)):
        free = all(
            end < other_begin or begin > other_end or abs(height - other) >= LINE_HEIGHT - ROUNDING
            for other_begin, other_end, other in taken
        )
        if free and frame.top <= height <= frame.bottom:
            return round(height, 1)
    return wanted


@dataclass(frozen=True)
class Row:
    """One cell: its bar, its repeats, and what was expected."""

    place: int
    """The cell's number in the report."""
    rank: int | None
    name: str
    median: str
    """With its unit."""
    aim: str
    """What was expected, in words."""
    top: float
    end: float
    """Where the bar ends."""
    dots: list[float]
    expected: float | None
    beyond: bool
    """The bar is longer than the chart: a figure without a rank must not squeeze all others."""
    words: str


@dataclass(frozen=True)
class Bars:
    """The medians of one workload."""

    id: str
    title: str
    x: Axis
    rows: list[Row]
    missing: list[str]
    """Cells that measured nothing."""

    @property
    def bottom(self) -> float:
        """Where the rows end."""
        return TOP + ROW * len(self.rows)

    @property
    def height(self) -> float:
        """The whole chart's."""
        return self.bottom + 44

    @property
    def description(self) -> str:
        """The chart in words, for those who do not see it."""
        return "; ".join(row.words for row in self.rows)


@dataclass(frozen=True)
class Spark:
    """One cell over time, small: from zero to its own greatest value; all of a workload share the seconds."""

    place: int
    rank: int | None
    name: str
    lines: list[str]
    """A polyline a visit."""
    most: str
    """The value at the top, with its unit."""
    words: str


@dataclass(frozen=True)
class Sparks:
    """The cells of one workload over time."""

    cells: list[Spark]
    seconds: str
    """The time at the right end."""


def numbered(record: RunRecord) -> dict[str, int]:
    """Return the number of each cell in the report, by its name."""
    return {cell.name: place for place, cell in enumerate(record.cells, start=1)}


def bars(ranking: Ranking, numbers: dict[str, int]) -> Bars:
    """Lay out the medians of a workload, those with a rank first."""
    drawn = [cell for cell in ranking.cells if cell.median is not None]
    top = max((value for cell in ranking.ranked for value in values(cell)), default=math.inf)
    x = Axis.from_zero((value for cell in drawn for value in values(cell) if value < MOST_BEYOND * top), LEFT, RIGHT)
    rows = [row(cell, place, ranking, x, numbers[cell.name]) for place, cell in enumerate(drawn)]
    missing = [cell.name for cell in ranking.cells if cell.median is None]
    return Bars(f"bars-{ranking.place}", ranking.title, x, rows, missing)


def values(cell: CellRecord) -> Iterable[float]:
    """Return all that has to be on the axis."""
    expected = expected_value(cell)
    return [*cell.measured, *([] if expected is None else [expected])]


def row(cell: CellRecord, place: int, ranking: Ranking, x: Axis, number_: int) -> Row:
    """Lay out one cell."""
    expected = expected_value(cell)
    # Only what the axis holds has a place on it.
    dots = [x.at(value) for value in cell.measured if value <= x.high]
    said = f"{cell.name}: {number(cell.median)} {ranking.unit} ({spread(cell)}, {plural(len(cell.measured), 'visit')})"
    said += "" if expected is None else f", expected {number(expected)}"
    return Row(
        place=number_,
        rank=cell.rank,
        name=cell.name,
        median=f"{number(cell.median)} {ranking.unit}".strip(),
        aim="" if expected is None else f"expected {number(expected)}",
        top=TOP + ROW * place,
        end=x.at(cell.median or 0.0),
        dots=dots,
        expected=None if expected is None or expected > x.high else x.at(expected),
        beyond=(cell.median or 0.0) > x.high,
        words=f"rank {cell.rank}, {said}" if cell.rank else f"no rank, {said}",
    )


def speed_and_loss(
    ranking: Ranking, cycles: Sequence[CrashTestRecord], numbers: dict[str, int], frame: Frame = WIDE
) -> Scatter | None:
    """Lay out the medians over what a power cut cost; None where none was made."""
    cut = {cycle.name: cycle for cycle in cycles if cycle.on_server is not None}
    known, missing = [], []
    for cell in ranking.cells:
        cycle = cut.get(cell.cycle or "")
        place = numbers[cell.name]
        if cycle is not None and cycle.on_server is not None and cell.median is not None:
            lost = cycle.on_server.lost_total
            known.append(Known(place, cell.name, export(cycle), cell.rank is None, lost, cell.median, count(lost)))
        else:
            unknown = [ranking.measure or "speed"] * (cell.median is None) + ["loss"] * (cycle is None)
            missing.append((place, cell.name, " and ".join(unknown)))
    known.sort(key=lambda one: one.number)
    words = Words(
        id=f"loss-{ranking.place}",
        title=f"{ranking.title} against acknowledged operations lost at the power cut",
        speed=ranking.measure,
        speed_unit=ranking.unit,
        lost="acknowledged operations lost at the power cut",
        lost_unit="ops",
        hollow="no rank",
    )
    return laid_out(known, missing, words, frame) if known else None


def not_drawn(chart: Scatter) -> str:
    """Say which cells a chart has no point for, and what is not known of them."""
    reasons: dict[str, list[int]] = {}
    for place, _, unknown in chart.missing:
        reasons.setdefault(unknown, []).append(place)
    return "; ".join(f"{', '.join(map(str, sorted(places)))} ({why} not known)" for why, places in reasons.items())


def sparks(ranking: Ranking, numbers: dict[str, int]) -> Sparks | None:
    """Lay out the series of each cell; None where no workload told one."""
    told = [cell for cell in ranking.cells if any(len(repeat.series) > 1 for repeat in cell.repeats)]
    if not told:
        return None
    last = max(at for cell in told for repeat in cell.repeats for at, _ in repeat.series)
    return Sparks([spark(cell, numbers[cell.name], last, ranking.unit) for cell in told], f"{number(last)} s")


def spark(cell: CellRecord, place: int, last: float, unit: str) -> Spark:
    """Lay out the visits of one cell."""
    told = [repeat.series for repeat in cell.repeats if len(repeat.series) > 1]
    seen = [value for series in told for _, value in series]
    most = max(seen)
    lines = [" ".join(f"{across(at, last)},{down(value, most)}" for at, value in series) for series in told]
    said = f"{plural(len(lines), 'visit')}, between {number(min(seen))} and {number(most)} {unit}".strip()
    return Spark(place, cell.rank, cell.name, lines, f"{number(most)} {unit}".strip(), said)


def across(at_s: float, last_s: float) -> float:
    """Return the pixel of a moment."""
    return round(SPARK_LEFT + (SPARK_RIGHT - SPARK_LEFT) * (at_s / last_s if last_s else 0.0), 1)


def down(value: float, most: float) -> float:
    """Return the pixel of a value."""
    return round(SPARK_BOTTOM - (SPARK_BOTTOM - SPARK_TOP) * (value / most if most else 0.0), 1)
