"""The chart of speed against loss: MB/s over seconds of acknowledged work lost, one point a cycle."""

from collections.abc import Sequence
from dataclasses import dataclass

from raidproof.record.run import CycleRecord
from raidproof.report.axis import Axis
from raidproof.report.columns import export, sequential_write
from raidproof.report.frame import Frame
from raidproof.report.words import number

WIDE = Frame("wide", width=960, height=400, left=76, right=924, top=40, bottom=330)
NARROW = Frame("narrow", width=400, height=350, left=52, right=384, top=40, bottom=280)
LINE_HEIGHT = 18.0
LABEL_GAP = 14.0
ROUNDING = 0.1
MOST_TITLES = 12
"""With more points than this, labels are numbers alone; the table has the titles."""
CHARACTER = 7.2
"""Width of a label's character in pixels, generously."""


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


def scatter(cycles: Sequence[CycleRecord], frame: Frame = WIDE) -> Scatter:
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
