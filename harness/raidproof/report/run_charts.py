"""The charts of a run: speed against loss, acknowledgements over time, medians by rank, values over time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raidproof.record.cell import CellRecord
from raidproof.record.run import CrashTestRecord, RunRecord, Timeline
from raidproof.report.cells import Ranking, expected_value
from raidproof.report.chart import TOP, Axis, Bar, Bars, Frame, Row, TimeBar, bar_top, time_bar
from raidproof.report.columns.crash_test import export, sequential_write
from raidproof.report.terminal import happening
from raidproof.report.words import count, number, plural, span

WIDE = Frame("wide", width=960, height=400, left=76, right=924, top=40, bottom=330)
NARROW = Frame("narrow", width=400, height=350, left=52, right=384, top=40, bottom=280)
WIDE_TIMELINE = Frame("wide", width=960, height=240, left=76, right=924, top=54, bottom=196)
NARROW_TIMELINE = Frame("narrow", width=400, height=220, left=48, right=388, top=54, bottom=176)
LEAST_BAR = 2.0
"""Least width of a timeline's bar in pixels; several bins share a bar if their bars would be narrower."""
LABEL_ROW = 16.0
"""Vertical distance in pixels between the labels of a timeline's marks."""
MARK_CHARACTER = 7.0
"""Width in pixels of a character in the label of a timeline's mark."""
LINE_HEIGHT = 18.0
"""Least vertical distance in pixels between the labels of a scatter chart's points."""
LABEL_GAP = 14.0
"""Horizontal distance in pixels from a point to its label."""
ROUNDING = 0.1
"""Rounding error of positions, in pixels."""
MOST_TITLES = 12
"""Greatest number of points whose labels have titles; in a chart with more points the labels are numbers."""
CHARACTER = 7.2
"""Upper estimate of the width in pixels of a character in the label of a scatter chart's point."""

LEFT, RIGHT, ROW = 12.0, 930.0, 44.0
LEGEND = (
    ("ranked", "median, with a rank"),
    ("unranked", "median, without a rank"),
    ("repetition", "one repetition"),
    ("expected", "expected of the hardware"),
)
MOST_BEYOND = 2.0
"""An unranked value that exceeds the greatest ranked value by at most this factor extends the axis of the medians."""
SPARK_WIDTH, SPARK_HEIGHT = 220.0, 64.0
SPARK_LEFT, SPARK_RIGHT, SPARK_TOP, SPARK_BOTTOM = 2.0, 218.0, 6.0, 58.0


@dataclass(frozen=True)
class Known:
    """The values of a crash test or a cell from which a scatter chart draws a point."""

    number: int
    """Number of the crash test or cell in the report."""
    title: str
    export: str
    """``sync``, ``async``, or ``-`` if it is not known."""
    hollow: bool
    """Whether the point is drawn hollow: a control, or a cell without a rank."""
    lost: float
    """The loss, in `Words.lost_unit`."""
    speed: float
    """The speed, in `Words.speed_unit`."""
    lost_words: str
    """The loss as text."""
    each: tuple[float, ...] = ()
    """Each measurement of the speed; empty if only one is known."""


@dataclass(frozen=True)
class Words:
    """The texts of a scatter chart."""

    id: str
    """HTML id of the chart, without the suffix of its frame."""
    title: str
    speed: str
    """Title of the vertical axis."""
    speed_unit: str
    lost: str
    """Title of the horizontal axis."""
    lost_unit: str
    hollow: str
    """Meaning of a hollow point, in the legend."""


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
    """A point of a scatter chart, laid out for the template: a crash test or a cell; positions in pixels."""

    number: int
    title: str
    label: str
    """The text after the number: the title, or empty if the chart has no room for it."""
    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str
    """SVG ``text-anchor`` of the label: ``start`` or ``end``."""
    export: str
    """``sync``, ``async``, or ``-`` if it is not known."""
    hollow: bool
    """Whether the point is drawn hollow."""
    speed: str
    """The speed as text."""
    lost: str
    """The loss as text."""
    range: tuple[float, float] | None = None
    """Vertical positions of the least and the greatest speed; None with a single measurement."""


@dataclass(frozen=True)
class Scatter:
    """A scatter chart of speed against loss, laid out for the template."""

    x: Axis
    y: Axis
    points: list[Point]
    missing: list[tuple[int, str, str]]
    """Crash tests or cells without a point: number, title, and the values that are not known."""
    words: Words = CYCLES
    frame: Frame = WIDE

    @property
    def id(self) -> str:
        """HTML id of the chart in this frame."""
        return f"{self.words.id}{self.frame.suffix}"

    @property
    def description(self) -> str:
        """Text alternative for the chart."""
        return "; ".join(self.described(one) for one in self.points)

    def described(self, one: Point) -> str:
        """Return the text alternative for a point."""
        words = self.words
        return f"{one.number} {one.title}: {one.speed} {words.speed_unit}, {one.lost} {words.lost_unit} lost"


def scatter(cycles: Sequence[CrashTestRecord], frame: Frame = WIDE) -> Scatter:
    """Lay out the scatter chart of crash tests; ``Scatter.missing`` lists the crash tests with an unknown value."""
    known: list[Known] = []
    missing = []
    for place, cycle in enumerate(cycles, start=1):
        speed, lost = sequential_write(cycle), cycle.loss_window_s
        if speed is None and cycle.control is not None:
            continue  # the speed of a control is not measured
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
    """Lay out a scatter chart; ``known``: its points; ``missing``: see `Scatter`."""
    x = Axis.from_zero((one.lost for one in known), frame.left, frame.right - 20)
    y = Axis.from_zero((speed for one in known for speed in (one.speed, *one.each)), frame.bottom, frame.top)
    return Scatter(x, y, place_labels(known, x, y, frame), missing, words, frame)


def place_labels(known: Sequence[Known], x: Axis, y: Axis, frame: Frame = WIDE) -> list[Point]:
    """Return the points with their labels, on the side with more room, at heights at which labels do not overlap."""
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
    """Return the height nearest to ``wanted`` at which a label from ``begin`` to ``end`` overlaps no other label.

    ``taken``: the placed labels: left end, right end, height. All positions are in pixels. Labels are placed from the
    top down: labels that move down keep their order, so that their leader lines do not cross. A label moves up only
    if there is no room below, and overlaps others only in a full chart.
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
class Spark:
    """A small chart of the values of one cell over time.

    The vertical axis ends at the cell's greatest value. All cells of a workload have the same time axis.
    """

    place: int
    """Number of the cell in the report."""
    rank: int | None
    name: str
    """Name of the cell."""
    lines: list[str]
    """Points of an SVG polyline for each repetition."""
    most: str
    """The greatest value with its unit, as text."""
    words: str
    """Text alternative for the chart."""


@dataclass(frozen=True)
class Sparks:
    """The small charts of one workload's cells."""

    cells: list[Spark]
    seconds: str
    """The end of the time axis with its unit, as text."""


def numbered(record: RunRecord) -> dict[str, int]:
    """Return the number of each cell in the report, by name."""
    return {cell.name: place for place, cell in enumerate(record.cells, start=1)}


def bars(ranking: Ranking) -> Bars:
    """Lay out the chart of the medians of a workload's cells, ranked cells first, without cells that have no value."""
    drawn = [cell for cell in ranking.cells if cell.median is not None]
    top = max((value for cell in ranking.ranked for value in values(cell)), default=math.inf)
    x = Axis.from_zero((value for cell in drawn for value in values(cell) if value < MOST_BEYOND * top), LEFT, RIGHT)
    rows = [row(cell, place, ranking.unit, x) for place, cell in enumerate(drawn)]
    note = "»: the median exceeds the axis." if any(beyond(cell, x) for cell in drawn) else ""
    return Bars(f"bars-{ranking.place}", f"Median of each cell, {ranking.title}", x, rows, ROW, LEGEND, note)


def values(cell: CellRecord) -> Iterable[float]:
    """Return the values of a cell for the axis: every repetition, and the expected value."""
    expected = expected_value(cell)
    return [*cell.measured, *([] if expected is None else [expected])]


def beyond(cell: CellRecord, x: Axis) -> bool:
    """Return whether a cell's median exceeds the axis, which a high unranked value does not extend (`MOST_BEYOND`)."""
    return (cell.median or 0.0) > x.high


def row(cell: CellRecord, place: int, unit: str, x: Axis) -> Row:
    """Lay out the row of one cell in the chart of medians; ``place``: index of the row."""
    expected, top = expected_value(cell), ROW * place + TOP
    rank = f"rank {cell.rank}" if cell.rank else "no rank"
    aim = "" if expected is None else f"expected {number(expected)}"
    said = (
        f"{cell.name}: {number(cell.median)} {unit} ({span(cell.spread)}, {plural(len(cell.measured), 'repetition')})"
    )
    bar = Bar(
        kind="ranked" if cell.rank else "unranked",
        top=bar_top(top),
        end=x.at(cell.median or 0.0),
        # Values beyond the end of the axis have no dot.
        dots=[x.at(value) for value in cell.measured if value <= x.high],
        expected=None if expected is None or expected > x.high else x.at(expected),
    )
    median = f"{number(cell.median)} {unit}".strip() + (" \u00bb" if beyond(cell, x) else "")
    label = [(str(cell.rank or "no rank"), "strong"), (cell.name, ""), (median, "strong"), (aim, "soft")]
    return Row(cell.name, label, f"{rank}, {said}{', ' if aim else ''}{aim}", top, [bar])


def speed_and_loss(
    ranking: Ranking, cycles: Sequence[CrashTestRecord], numbers: dict[str, int], frame: Frame = WIDE
) -> Scatter | None:
    """Lay out the scatter chart of the cells' medians against the losses by their power cuts; None without power cuts.

    ``numbers``: the number of each cell in the report, by name.
    """
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
    """Return the numbers of the cells without a point in a scatter chart as text, with their unknown values."""
    reasons: dict[str, list[int]] = {}
    for place, _, unknown in chart.missing:
        reasons.setdefault(unknown, []).append(place)
    return "; ".join(f"{', '.join(map(str, sorted(places)))} ({why} not known)" for why, places in reasons.items())


def sparks(ranking: Ranking, numbers: dict[str, int]) -> Sparks | None:
    """Lay out the small charts of a workload's cells over time; None if no cell has a time series."""
    drawn = [cell for cell in ranking.cells if any(len(repeat.series) > 1 for repeat in cell.repeats)]
    if not drawn:
        return None
    last = max(at for cell in drawn for repeat in cell.repeats for at, _ in repeat.series)
    return Sparks([spark(cell, numbers[cell.name], last, ranking.unit) for cell in drawn], f"{number(last)} s")


def spark(cell: CellRecord, place: int, last: float, unit: str) -> Spark:
    """Lay out the small chart of one cell; ``place``: its number; ``last``: end of the time axis in seconds."""
    drawn = [repeat.series for repeat in cell.repeats if len(repeat.series) > 1]
    seen = [value for series in drawn for _, value in series]
    most = max(seen)
    lines = [" ".join(f"{across(at, last)},{down(value, most)}" for at, value in series) for series in drawn]
    words = f"{plural(len(lines), 'repetition')}, values from {number(min(seen))} to {number(most)} {unit}".strip()
    return Spark(place, cell.rank, cell.name, lines, f"{number(most)} {unit}".strip(), words)


def across(at_s: float, last_s: float) -> float:
    """Return the horizontal position of a time in a small chart, in pixels; ``last_s``: the end of the time axis."""
    return round(SPARK_LEFT + (SPARK_RIGHT - SPARK_LEFT) * (at_s / last_s if last_s else 0.0), 1)


def down(value: float, most: float) -> float:
    """Return the vertical position of a value in a small chart, in pixels; ``most``: the value at the chart's top."""
    return round(SPARK_BOTTOM - (SPARK_BOTTOM - SPARK_TOP) * (value / most if most else 0.0), 1)


@dataclass(frozen=True)
class Mark:
    """An instant on a timeline: a vertical line with a label above; positions in pixels."""

    x: float
    kind: str
    """CSS class: ``durable`` (the last durable point), ``fault`` or ``served`` (first acknowledgement afterwards)."""
    label: str
    label_x: float
    label_y: float
    anchor: str
    """SVG ``text-anchor`` of the label: ``start`` or ``end``."""


@dataclass(frozen=True)
class Moments:
    """The timeline of one crash test, laid out for the template."""

    number: int
    """Number of the crash test in the report."""
    title: str
    bin_ms: int
    """Width of the interval of one bar, in milliseconds."""
    x: Axis
    y: Axis
    bars: list[TimeBar]
    marks: list[Mark]
    doubtful: tuple[float, float] | None
    """Left and right end, in pixels, of the zone in which acknowledged operations were lost; None without a loss."""
    silent: tuple[float, float] | None
    """Left and right end, in pixels, of the zone without service."""
    description: str
    """Text alternative for the chart."""
    frame: Frame = WIDE_TIMELINE

    @property
    def id(self) -> str:
        """HTML id of the timeline in this frame."""
        return f"timeline-{self.number}{self.frame.suffix}"


def time_range(cycles: Sequence[CrashTestRecord]) -> tuple[float, float]:
    """Return the begin and the end of the common time axis of all timelines, in seconds from the fault."""
    timelines = [cycle.timeline for cycle in cycles if cycle.timeline]
    begins = [timeline.begin_s for timeline in timelines]
    ends = [timeline.begin_s + len(timeline.acknowledged) * timeline.bin_ms / 1000 for timeline in timelines]
    return min([*begins, -1.0]), max([*ends, 1.0])


def timelines(cycles: Sequence[CrashTestRecord], frame: Frame = WIDE_TIMELINE) -> list[Moments]:
    """Return the timelines of all crash tests, on common axes.

    A crash test without a fault, or without an acknowledged operation, has no timeline.
    """
    limits = time_range(cycles)
    known = [cycle.timeline for cycle in cycles if cycle.timeline]
    # The highest bars of the timelines determine the vertical axis.
    highest = [max(acknowledged for _, acknowledged in join(one, joined_bins(one, limits, frame))) for one in known]
    y = Axis.from_zero(highest, frame.bottom, frame.top)
    laid = (moments(place, cycle, limits, y, frame) for place, cycle in enumerate(cycles, start=1))
    return [one for one in laid if one is not None]


def joined_bins(timeline: Timeline, limits: tuple[float, float], frame: Frame) -> int:
    """Return the number of bins that share one bar, so that no bar is narrower than `LEAST_BAR`."""
    most = int((frame.right - frame.left) / LEAST_BAR)
    return max(1, -(-int((limits[1] - limits[0]) * 1000 / timeline.bin_ms) // most))


def moments(
    place: int, cycle: CrashTestRecord, limits: tuple[float, float], y: Axis, frame: Frame = WIDE_TIMELINE
) -> Moments | None:
    """Lay out the timeline of one crash test; None without acknowledgements or without a fault.

    ``place``: its number in the report; ``limits``: begin and end of the time axis in seconds from the fault.
    """
    timeline = cycle.timeline
    if timeline is None:
        return None
    x = Axis.between(*limits, frame.left, frame.right)
    each = joined_bins(timeline, limits, frame)
    joined = join(timeline, each)
    width_s = each * timeline.bin_ms / 1000
    doubtful_s, served_s = timeline.last_durable_s, timeline.served_again_s
    return Moments(
        number=place,
        title=cycle.title,
        bin_ms=each * timeline.bin_ms,
        x=x,
        y=y,
        bars=[
            time_bar(begin, width_s, acknowledged, x, y, status(begin, width_s, timeline))
            for begin, acknowledged in joined
            if acknowledged
        ],
        marks=marks(cycle, timeline, x, frame),
        doubtful=None if doubtful_s is None else (x.at(doubtful_s), x.at(0)),
        silent=(x.at(0), x.at(served_s)) if served_s is not None else (x.at(0), frame.right),
        description=describe(cycle, timeline),
        frame=frame,
    )


def join(timeline: Timeline, each: int) -> list[tuple[float, int]]:
    """Return the begin (seconds) and the sum of each ``each`` bins; the fault, at 0 s, is always between two sums."""
    sums: dict[int, int] = {}
    first = round(timeline.begin_s * 1000 / timeline.bin_ms)
    for place, acknowledged in enumerate(timeline.acknowledged, start=first):
        sums[place // each] = sums.get(place // each, 0) + acknowledged
    return [(group * each * timeline.bin_ms / 1000, acknowledged) for group, acknowledged in sums.items()]


def status(begin_s: float, width_s: float, timeline: Timeline) -> str:
    """Return the CSS class of a bar; a bar that contains the last durable point is ``doubtful``, see `TimeBar`."""
    last = timeline.last_durable_s
    if begin_s >= 0:
        return "after"
    return "doubtful" if last is not None and begin_s + width_s > last else "kept"


def marks(cycle: CrashTestRecord, timeline: Timeline, x: Axis, frame: Frame = WIDE_TIMELINE) -> list[Mark]:
    """Return the marks of a timeline in order of time; labels that would overlap are in separate rows."""
    wanted = [("fault", 0.0, happening(cycle))]
    if timeline.last_durable_s is not None:
        last = timeline.last_durable_s
        wanted.insert(0, ("durable", last, f"last durable point, {number(last)} s"))
    if timeline.served_again_s is not None:
        served = timeline.served_again_s
        wanted.append(("served", served, f"first acknowledgement, +{number(served)} s"))
    placed: list[Mark] = []
    ends: list[float] = []
    for kind, second, label in wanted:
        at, length = x.at(second), MARK_CHARACTER * len(label)
        starts = at + length < frame.right
        begin = at if starts else at - length
        row = next((row for row, end in enumerate(ends) if begin > end + 8), len(ends))
        ends[row : row + 1] = [begin + length]
        label_y = frame.top - 10 - LABEL_ROW * row
        placed.append(Mark(at, kind, label, at + 4 if starts else at - 4, label_y, "start" if starts else "end"))
    return placed


def describe(cycle: CrashTestRecord, timeline: Timeline) -> str:
    """Return the text alternative for a timeline."""
    before = sum(acknowledged for begin, acknowledged in join(timeline, 1) if begin < 0)
    seconds = f"{number(-timeline.begin_s)} s before the fault ({cycle.fault})"
    parts = [f"{plural(before, 'operation')} acknowledged in the {seconds}"]
    last, served = timeline.last_durable_s, timeline.served_again_s
    until = "" if last is None else f" that were acknowledged until {number(-last)} s before the fault"
    parts.append(f"all operations{until} survived")
    parts.append(
        "no acknowledgement after the fault"
        if served is None
        else f"first acknowledgement {number(served)} s after the fault"
    )
    return "; ".join(parts)
