"""The history of a cell on the terminal and as HTML: a row or a point for each run, and the changes of level."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raidproof.core.errors import RequestError
from raidproof.core.files import write_durably
from raidproof.core.terminal import printable
from raidproof.monitor.bottleneck import Limit
from raidproof.report.cells import measure
from raidproof.report.charts import Chart, Figures, drawing
from raidproof.report.charts.history import level_rows, percent, run_rows, specification
from raidproof.report.html import templates
from raidproof.report.sensitivity import noticed_in_words
from raidproof.report.table import Cell, Field, Table, say
from raidproof.report.words import UNKNOWN, number, plural, span, titled
from raidproof.verdict.change.change_point import LEVEL, least_values
from raidproof.verdict.change.history import NO_REFERENCE, CellHistory, HistoryPoint, LevelChange, Order, name_of_plan

MOST_ROWS = 40
"""Greatest number of runs that the terminal lists: the last ones; the HTML report lists all."""
PLOT = 16
"""Width of the plot on the terminal, in characters."""
TESTED, UNTESTED = "\u25cf", "\u25cb"
"""Marks of a run whose value is tested for changes of level, and of a run whose value is not."""
METHOD = (
    "A change of level is shown by a permutation test on the ranks of the runs' medians, at each place where at least "
    "two runs precede and two follow; a history without a change shows one with a probability of at most "
    f"{LEVEL:.0%}. A change is shown only if the values and the values relative to the speed of the host, by the "
    "reference measurement before each repetition, both have it. "
    "Values that do not measure the requested hardware are not tested."
)
"""How a reader must interpret the changes."""


def title(history: CellHistory) -> str:
    """Return the title of a history: the cell, the measured value with its unit, and the plan."""
    value = titled(*measure(history.unit))
    workload = f", {history.workload}" if history.workload not in history.cell else ""
    host = f", measured by workers on {history.worker_host}" if history.worker_host else ""
    return f"{history.cell}{workload}: {value}, plan {name_of_plan(history)}{host}"


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
    notes = list(not_tested(history))
    if history.changes:
        return [*(change_sentence(history, change) for change in history.changes), *notes]
    if tested < least_values():
        need = least_values()
        found = plural(tested, "tested run") if tested else "no tested runs"
        return [f"{found}: a change can be shown with at least {need}", *notes]
    kernels = {point.kernel for point in history.tested}
    if history.order is Order.KERNEL and len(kernels) < 2:
        return ["all runs have the same kernel: no change can be shown by kernel", *notes]
    return [f"no change of level shown in {plural(tested, 'run')}", *notes]


def not_tested(history: CellHistory) -> Iterator[str]:
    """Yield sentences on the runs that the test for changes of level leaves out, one for each reason."""
    reasons: Counter[str] = Counter()
    for point in history.points:
        if point.median is None:
            reasons["without a value"] += 1
        elif point.limit in set(Limit) and not Limit(point.limit).rankable:
            reasons[f"whose speed this host limited ({point.limit})"] += 1
        elif point.why_not == NO_REFERENCE:
            reasons["without a reference measurement that tells a change from drift of the host"] += 1
        elif not point.tested:
            reasons["whose workload measured a cache"] += 1
    for reason, number_of_runs in reasons.items():
        yield f"not tested: {plural(number_of_runs, 'run')}, {reason}"


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

    known = any(point.noticed for point in points)

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
            Field("run", name, "word", names_row=True),
            Field("kernel", lambda point: point.kernel or "-", "word"),
            Field("median", value, "number", unit),
            Field("n", lambda point: str(len(point.values)), "number"),
            *plotted,
            Field("change", lambda point: size(changes[point.run]) if point.run in changes else "", "word"),
            *([Field("noticed", lambda point: noticed_in_words(point.noticed), "number")] if known else []),
            Field("verdict", verdict, "word"),
        ],
        points,
        note="Median (least to greatest) of the n repetitions of a run."
        + (
            " Noticed: missing flushes of a member that its power cut, or a checked crash state, would have shown."
            if known
            else ""
        ),
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
    charts, figures = charts_of_histories(histories)
    words = {
        "conclusion": conclusion,
        "method": METHOD,
        "other_request": other_request,
        "table": table,
        "title": title,
    }
    return page.render(
        histories=histories,
        cell=cell,
        results=str(results),
        words=words,
        charts=charts,
        figures=figures,
        script=drawing.script(),
    )


def charts_of_histories(histories: Sequence[CellHistory]) -> tuple[list[Chart], Figures]:
    """Return the chart of each history, and the data of all charts."""
    figures, made = Figures(), []
    figures.hold("runs", [row for place, one in enumerate(histories, 1) for row in run_rows(one, place)])
    figures.hold("levels", [row for place, one in enumerate(histories, 1) for row in level_rows(one, place)])
    for place, history in enumerate(histories, start=1):
        name = f"history-{history.unit}"
        figures.specifications.setdefault(name, specification(titled(*measure(history.unit))))
        said = "; ".join(conclusion(history))
        made.append(Chart(f"history-{place}", name, title(history), said, {"history": place}))
    return made, figures
