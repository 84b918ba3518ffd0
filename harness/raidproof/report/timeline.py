"""The timeline of a crash test: a chart of acknowledgements over time with marks at important instants."""

from collections.abc import Sequence
from dataclasses import dataclass

from raidproof.record.run import CrashTestRecord, Timeline
from raidproof.report.axis import Axis, Frame
from raidproof.report.cells import happening
from raidproof.report.words import number, plural

WIDE = Frame("wide", width=960, height=240, left=76, right=924, top=54, bottom=196)
NARROW = Frame("narrow", width=400, height=220, left=48, right=388, top=54, bottom=176)
LEAST_BAR = 2.0
"""Least width of a bar in pixels; bins are joined if their bars would be narrower."""
LEAST_HEIGHT = 1.5
"""Least height of a bar in pixels, so that a single operation is visible beside thousands."""
LABEL_ROW = 16.0
CHARACTER = 7.0


@dataclass(frozen=True)
class Bar:
    """The bar of one bin or of several joined bins."""

    x: float
    y: float
    width: float
    height: float
    fate: str
    """``kept``, ``doubtful`` (after the last durable point) or ``after`` the fault."""
    words: str


@dataclass(frozen=True)
class Mark:
    """An instant: a vertical line with a label above."""

    x: float
    kind: str
    label: str
    label_x: float
    label_y: float
    anchor: str


@dataclass(frozen=True)
class Moments:
    """A laid-out timeline chart for the template."""

    number: int
    title: str
    bin_ms: int
    x: Axis
    y: Axis
    bars: list[Bar]
    marks: list[Mark]
    doubtful: tuple[float, float] | None
    """Zone in which acknowledged operations were lost, in pixels."""
    silent: tuple[float, float] | None
    """Zone without service, in pixels."""
    description: str
    frame: Frame = WIDE

    @property
    def id(self) -> str:
        """Id of the chart on the page."""
        return f"timeline-{self.number}{self.frame.suffix}"


def span(cycles: Sequence[CrashTestRecord]) -> tuple[float, float]:
    """Return the common time range of all timelines in seconds, so that they can be compared."""
    timelines = [cycle.timeline for cycle in cycles if cycle.timeline]
    begins = [timeline.begin_s for timeline in timelines]
    ends = [timeline.begin_s + len(timeline.acknowledged) * timeline.bin_ms / 1000 for timeline in timelines]
    return min([*begins, -1.0]), max([*ends, 1.0])


def timelines(cycles: Sequence[CrashTestRecord], frame: Frame = WIDE) -> list[Moments]:
    """Lay out the timelines of all crash tests that have one, with common axes."""
    limits = span(cycles)
    known = [cycle.timeline for cycle in cycles if cycle.timeline]
    # The highest bar of each timeline sets the scale.
    highest = [max(count for _, count in join(one, joined_bins(one, limits, frame))) for one in known]
    y = Axis.from_zero(highest, frame.bottom, frame.top)
    laid = (moments(place, cycle, limits, y, frame) for place, cycle in enumerate(cycles, start=1))
    return [one for one in laid if one is not None]


def joined_bins(timeline: Timeline, limits: tuple[float, float], frame: Frame) -> int:
    """Return the number of bins per bar."""
    most = int((frame.right - frame.left) / LEAST_BAR)
    return max(1, -(-int((limits[1] - limits[0]) * 1000 / timeline.bin_ms) // most))


def moments(
    place: int, cycle: CrashTestRecord, limits: tuple[float, float], y: Axis, frame: Frame = WIDE
) -> Moments | None:
    """Lay out a crash test's timeline on the given axes; None without acknowledgements or without a fault."""
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
        bars=[bar(begin, count, width_s, timeline, x, y) for begin, count in joined if count],
        marks=marks(cycle, timeline, x, frame),
        doubtful=None if doubtful_s is None else (x.at(doubtful_s), x.at(0)),
        silent=(x.at(0), x.at(served_s)) if served_s is not None else (x.at(0), frame.right),
        description=describe(cycle, timeline),
        frame=frame,
    )


def join(timeline: Timeline, each: int) -> list[tuple[float, int]]:
    """Return begin (seconds) and sum of each group of ``each`` bins; no group extends across the fault."""
    sums: dict[int, int] = {}
    first = round(timeline.begin_s * 1000 / timeline.bin_ms)
    for place, count in enumerate(timeline.acknowledged, start=first):
        sums[place // each] = sums.get(place // each, 0) + count
    return [(group * each * timeline.bin_ms / 1000, count) for group, count in sums.items()]


def bar(begin_s: float, count: int, width_s: float, timeline: Timeline, x: Axis, y: Axis) -> Bar:
    """Return one bar; the bin with the last durable point counts as lost."""
    last = timeline.last_durable_s
    fate = "after" if begin_s >= 0 else "doubtful" if last is not None and begin_s + width_s > last else "kept"
    left, right, top = x.at(begin_s), x.at(begin_s + width_s), min(y.at(count), y.start - LEAST_HEIGHT)
    words = f"{number(begin_s)} s to {number(begin_s + width_s)} s: {plural(count, 'operation')} acknowledged"
    return Bar(left, top, round(max(right - left - 0.6, 0.8), 1), round(y.start - top, 1), fate, words)


def marks(cycle: CrashTestRecord, timeline: Timeline, x: Axis, frame: Frame = WIDE) -> list[Mark]:
    """Return the marks in order of time, with labels in separate rows where they would overlap."""
    wanted = [("fault", 0.0, happening(cycle))]
    if timeline.last_durable_s is not None:
        last = timeline.last_durable_s
        wanted.insert(0, ("durable", last, f"last durable point, {number(last)} s"))
    if timeline.served_again_s is not None:
        served = timeline.served_again_s
        wanted.append(("served", served, f"served again, +{number(served)} s"))
    placed: list[Mark] = []
    ends: list[float] = []
    for kind, second, label in wanted:
        at, length = x.at(second), CHARACTER * len(label)
        starts = at + length < frame.right
        begin = at if starts else at - length
        row = next((row for row, end in enumerate(ends) if begin > end + 8), len(ends))
        ends[row : row + 1] = [begin + length]
        label_y = frame.top - 10 - LABEL_ROW * row
        placed.append(Mark(at, kind, label, at + 4 if starts else at - 4, label_y, "start" if starts else "end"))
    return placed


def describe(cycle: CrashTestRecord, timeline: Timeline) -> str:
    """Return a text alternative for the chart."""
    before = sum(count for begin, count in join(timeline, 1) if begin < 0)
    parts = [f"{plural(before, 'operation')} acknowledged in the {number(-timeline.begin_s)} s before: {cycle.fault}"]
    last, served = timeline.last_durable_s, timeline.served_again_s
    parts.append("all of it survived" if last is None else f"all of it survived up to {number(-last)} s before")
    parts.append("no service afterwards" if served is None else f"served again {number(served)} s after")
    return "; ".join(parts)
