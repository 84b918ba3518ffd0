"""The history of a cell on the terminal and as HTML: a row or a point for each run, and the changes of level."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raidproof.core.errors import RequestError
from raidproof.core.files import write_durably
from raidproof.report.cells import measure
from raidproof.report.chart import Axis
from raidproof.report.html import templates
from raidproof.report.table import Cell, Field, Table, say
from raidproof.report.words import UNKNOWN, number, plural, printable, span
from raidproof.verdict.change_point import LEVEL, least_values
from raidproof.verdict.history import CellHistory, HistoryPoint, LevelChange, Order, name_of_plan

MOST_ROWS = 40
"""Greatest number of runs that the terminal lists: the last ones; the HTML report lists all."""
PLOT = 16
"""Width of the plot on the terminal, in characters."""
TESTED, UNTESTED = "\u25cf", "\u25cb"
"""Marks of a run whose value is tested for changes of level, and of a run whose value is not."""
LEFT, RIGHT, TOP, BOTTOM, WIDTH, HEIGHT = 74.0, 940.0, 24.0, 240.0, 960.0, 290.0
"""Edges of the plot area of the chart, and its size, in pixels."""
METHOD = (
    "A change of level is shown by a permutation test on the ranks of the runs' medians, at each place where at least "
    "two runs precede and two follow; a history without a change shows one with a probability of at most "
    f"{LEVEL:.0%}. The test takes the runs as independent: a slow drift of the host's speed also appears as a change. "
    "Values that do not measure the requested hardware are not tested."
)
"""How a reader must interpret the changes."""


@dataclass(frozen=True)
class Dot:
    """A run in the chart; positions in pixels."""

    x: float
    y: float
    range: tuple[float, float]
    """Positions of the least and the greatest repetition."""
    tested: bool
    words: str
    """Text alternative."""


@dataclass(frozen=True)
class Level:
    """The median of the runs between two changes, as a horizontal line; positions in pixels."""

    x: float
    end: float
    y: float
    words: str


@dataclass(frozen=True)
class Chart:
    """The chart of a cell's history, laid out for the template."""

    id: str
    title: str
    y: Axis
    dots: list[Dot]
    levels: list[Level]
    changes: list[tuple[float, str]]
    """Horizontal position and text of each change."""
    labels: list[tuple[float, str, str]]
    """Position, text and alignment of labels of the horizontal axis."""
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = RIGHT
    top: float = TOP
    bottom: float = BOTTOM

    @property
    def description(self) -> str:
        """Text alternative for the chart."""
        return "; ".join(dot.words for dot in self.dots)


def title(history: CellHistory) -> str:
    """Return the title of a history: the cell, the measured value with its unit, and the plan."""
    what, unit = measure(history.unit)
    value = f"{what} [{unit}]" if unit else what
    workload = f", {history.workload}" if history.workload not in history.cell else ""
    return f"{history.cell}{workload}: {value}, plan {name_of_plan(history)}"


def percent(change: LevelChange) -> str:
    """Return the size of a change in percent, with the word slower or faster."""
    return f"{size(change)}, {'slower' if change.slower else 'faster'}"


def size(change: LevelChange) -> str:
    """Return the size of a change in percent."""
    return UNKNOWN if change.ratio is None else f"{100 * (change.ratio - 1):+.1f} %"


def change_sentence(history: CellHistory, change: LevelChange) -> str:
    """Return a sentence on a change of level."""
    _, unit = measure(history.unit)
    runs = {point.run: point for point in history.points}
    first, last = runs[change.run], runs[change.after]
    kernels = f"kernel {first.kernel or 'unknown'}, before {last.kernel or 'unknown'}"
    levels = f"{number(change.level_before)} to {number(change.level)} {unit}".strip()
    p = "< 0.001" if change.p_value < 0.001 else f"= {change.p_value:.3f}"
    said = f"change of level from {levels} ({percent(change)}) with run {change.run}, after {change.after}"
    return f"{said}: {kernels}; p {p}"


def conclusion(history: CellHistory) -> list[str]:
    """Return sentences on the changes of level, or why none is shown."""
    tested = len(history.tested)
    left = len(history.points) - tested
    notes = [f"not tested: {plural(left, 'run')}, without a value of the requested hardware"] if left else []
    if history.changes:
        return [*(change_sentence(history, change) for change in history.changes), *notes]
    if tested < least_values():
        need = least_values()
        return [f"{plural(tested, 'tested run')}: a change can be shown with at least {need}", *notes]
    kernels = {point.kernel for point in history.tested}
    if history.order is Order.KERNEL and len(kernels) < 2:
        return ["all runs have the same kernel: no change can be shown by kernel", *notes]
    return [f"no change of level shown in {plural(tested, 'run')}", *notes]


def other_request(history: CellHistory, most: int = 3) -> str:
    """Return a sentence on how the request differs from that of the newest history; empty for the newest one."""
    if not history.differs:
        return ""
    more = f"; and {len(history.differs) - most:,} more" if len(history.differs) > most else ""
    fields = "; ".join(history.differs[:most])
    return f"these runs requested other hardware or settings, or ran on another host: {fields}{more}"


def show_histories(histories: Sequence[CellHistory], console: Console, page: Path | None = None) -> None:
    """Print the histories of cells, each with its changes of level."""
    for history in histories:
        console.print(Text(printable(title(history)), style="bold"))
        if sentence := other_request(history):
            say(console, sentence)
        console.print(table(history, history.points[-MOST_ROWS:], plot=True).drawn(console.width))
        if len(history.points) > MOST_ROWS:
            say(console, f"the last {MOST_ROWS} of {len(history.points):,} runs; the page of --output has all")
        for sentence in conclusion(history):
            say(console, sentence)
        console.print()
    say(console, METHOD)
    if page is not None:
        console.print(Text(f"report: {printable(str(page))}"), soft_wrap=True)


def table(history: CellHistory, points: Sequence[HistoryPoint], *, plot: bool = False) -> Table[HistoryPoint]:
    """Return the table of a history's runs; ``plot``: with a plot of the medians for the terminal."""
    _, unit = measure(history.unit)
    changes = {change.run: change for change in history.changes}
    plotted = [Field("", plotter(history), "word")] if plot else []

    def name(point: HistoryPoint) -> Cell:
        return Cell(point.run, short=f"{point.started:%Y-%m-%d %H:%M}")

    def value(point: HistoryPoint) -> Cell:
        several = len(point.values) > 1
        return Cell(number(point.median), aside=f"({span((min(point.values), max(point.values)))})" if several else "")

    def verdict(point: HistoryPoint) -> Cell:
        lost = f"lost {point.lost}" if point.lost is not None else ""
        reasons = [one for one in (lost, point.why_not) if one]
        return Cell(verdict=point.outcome, more=reasons)

    return Table(
        [
            Field(
                "run", lambda point: Cell(point.run, short=f"{point.started:%Y-%m-%d %H:%M}"), "word", names_row=True
            ),
            Field("kernel", lambda point: point.kernel or "-", "word"),
            Field("median", value, "number", unit),
            Field("n", lambda point: str(len(point.values)), "number"),
            *plotted,
            Field("change", lambda point: size(changes[point.run]) if point.run in changes else "", "word"),
            Field("verdict", verdict, "word"),
        ],
        points,
        note="Median (least to greatest) of the n repetitions of a run.",
        marked=lambda point: point.run in changes,
    )


def plotter(history: CellHistory) -> Callable[[HistoryPoint], str]:
    """Return a function that draws the median of a run as a mark between the least and the greatest median."""
    medians = [point.median for point in history.points if point.median is not None]
    low, high = (min(medians), max(medians)) if medians else (0.0, 0.0)

    def drawn(point: HistoryPoint) -> str:
        if point.median is None:
            return ""
        place = round((PLOT - 1) * (point.median - low) / (high - low)) if high > low else PLOT // 2
        return "\u00b7" * place + (TESTED if point.tested else UNTESTED) + "\u00b7" * (PLOT - 1 - place)

    return drawn


def chart(history: CellHistory, place: int) -> Chart:
    """Lay out the chart of a history: runs at equal distances; ``place``: its number on the page."""
    points = [point for point in history.points if point.median is not None]
    values = [value for point in points for value in point.values]
    y = axis(values)
    step = (RIGHT - LEFT) / max(1, len(points))
    at = {point.run: round(LEFT + step * (index + 0.5), 1) for index, point in enumerate(points)}
    dots = [
        Dot(
            x=at[point.run],
            y=y.at(point.median or 0.0),
            range=(y.at(min(point.values)), y.at(max(point.values))),
            tested=point.tested,
            words=f"{point.run}, kernel {point.kernel or 'unknown'}: {number(point.median)}",
        )
        for point in points
    ]
    return Chart(
        id=f"history-{place}",
        title=title(history),
        y=y,
        dots=dots,
        levels=levels(history, at, y, step),
        changes=[(at[one.run] - step / 2, percent(one)) for one in history.changes],
        labels=labels(history, points, at),
    )


def axis(values: Sequence[float]) -> Axis:
    """Return a vertical axis with room around the values; it need not begin at 0, because points are no bars."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = (high - low) * 0.1 or abs(high) * 0.1 or 1.0
    return Axis.between(max(0.0, low - room) if low >= 0 else low - room, high + room, BOTTOM, TOP)


def levels(history: CellHistory, at: dict[str, float], y: Axis, step: float) -> list[Level]:
    """Return the lines of the levels between changes."""
    if not history.changes:
        return []
    tested = [point.run for point in history.tested]
    edges = [0, *(tested.index(change.run) for change in history.changes), len(tested)]
    heights = [history.changes[0].level_before, *(change.level for change in history.changes)]
    return [
        Level(
            x=at[tested[edges[place]]] - step / 2,
            end=at[tested[edges[place + 1] - 1]] + step / 2,
            y=y.at(height),
            words=f"level {number(height)}",
        )
        for place, height in enumerate(heights)
    ]


def labels(history: CellHistory, points: Sequence[HistoryPoint], at: dict[str, float]) -> list[tuple[float, str, str]]:
    """Return the labels of the horizontal axis: the kernels where they begin, or the first and the last date."""
    if not points:
        return []
    if history.order is Order.KERNEL:
        firsts = [
            point for place, point in enumerate(points) if place == 0 or point.kernel != points[place - 1].kernel
        ]
        return [(at[point.run], point.kernel or "unknown", "middle") for point in firsts]
    first, last = points[0], points[-1]
    ends = [(LEFT, f"{first.started:%Y-%m-%d}", "start")]
    return [*ends, (RIGHT, f"{last.started:%Y-%m-%d}", "end")] if len(points) > 1 else ends


def write_history(histories: Sequence[CellHistory], cell: str, results: Path, path: Path) -> None:
    """Write the HTML page with the histories of cells atomically; ``cell``: the name or pattern of the cells.

    Raises:
        RequestError: the directory of the page does not exist.
    """
    if not path.parent.is_dir():
        raise RequestError(f"{path}: the directory does not exist", remedy="create it, or give another file")
    write_durably(path, render_history(histories, cell, results))


def render_history(histories: Sequence[CellHistory], cell: str, results: Path) -> str:
    """Return the HTML page with the histories of cells."""
    page = templates().get_template("history.html.j2")
    words = {
        "chart": chart,
        "conclusion": conclusion,
        "method": METHOD,
        "other_request": other_request,
        "table": table,
    }
    return page.render(histories=histories, cell=cell, results=str(results), words=words)
