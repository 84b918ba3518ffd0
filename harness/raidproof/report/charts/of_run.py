"""All charts of a run's page."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from raidproof.record.cell import CellRecord
from raidproof.record.run import RunRecord
from raidproof.report.cells import Ranking, expected_value, numbered, rankings
from raidproof.report.charts import block_life, cell_values, heat_map, medians, monitors, timeline, tradeoff
from raidproof.report.charts.figure import Chart, Figures, Row
from raidproof.report.charts.tradeoff import Tradeoff
from raidproof.report.words import number, plural, some, span, titled
from raidproof.verdict.recommendation import Recommendation, recommend

MOST_AXES = 8
"""Greatest number of axes that a heat map offers: those with the greatest effect."""
MOST_POINTS, LEAST_POINTS = 60, 6
"""Greatest and least number of points over time of one repetition."""
MOST_ROWS = 15_000
"""Greatest number of points over time of all repetitions of a page, so that the page is small."""
MOST_NAMED = 12
"""Limit of the configurations that the text about missing points names for one reason."""
ROOM = 1.02
"""End of an axis divided by the greatest value, so that the mark of this value is whole."""


@dataclass(frozen=True)
class HeatMap:
    """A heat map with the axes between which a reader can choose."""

    chart: Chart
    axes: Sequence[str]
    """Names of the axes: the two with the greatest effect on the measured value, then the others by their effect."""


@dataclass(frozen=True)
class Life:
    """The chart of the life of one lost block."""

    chart: Chart
    title: str
    steps: Sequence[tuple[str, str, str, str]]
    """Layer, step, times and note of each step, as text."""


@dataclass
class RunCharts:
    """The charts of a run's page; cells, crash tests and workloads are named by their numbers."""

    figures: Figures = field(default_factory=Figures)
    tradeoffs: dict[int, Chart] = field(default_factory=dict)
    """By workload; 0: the crash tests of a run without a plan."""
    captions: dict[int, str] = field(default_factory=dict)
    """Of the charts of `tradeoffs`, by the same number."""
    missing: dict[int, str] = field(default_factory=dict)
    """Configurations without a point in the chart of the same number, with the reasons, as text."""
    recommended: dict[int, Recommendation] = field(default_factory=dict)
    """By workload."""
    medians: dict[int, Chart] = field(default_factory=dict)
    heat_maps: dict[int, HeatMap] = field(default_factory=dict)
    cells: dict[int, list[Chart]] = field(default_factory=dict)
    timelines: dict[int, Chart] = field(default_factory=dict)
    lives: dict[int, list[Life]] = field(default_factory=dict)


def charts_of(record: RunRecord) -> RunCharts:
    """Return all charts of a run's page."""
    charts = RunCharts()
    if record.plan is None:
        draw_crash_tests(charts, record)
    else:
        draw_cells(charts, record)
    draw_timelines(charts, record)
    draw_lives(charts, record)
    return charts


def draw_crash_tests(charts: RunCharts, record: RunRecord) -> None:
    """Add the chart of speed against loss of a run without a plan."""
    found = tradeoff.of_crash_tests(record)
    if found.rows:
        charts.figures.hold("points", found.rows)
        charts.figures.specifications["tradeoff-0"] = tradeoff.specification(found.rows, "sequential write [MB/s]")
        charts.tradeoffs[0] = chart_of(found, 0, "Sequential write speed against acknowledged work lost")
        charts.captions[0] = tradeoff.caption(found.rows)
    charts.missing[0] = not_drawn(found)


def draw_cells(charts: RunCharts, record: RunRecord) -> None:
    """Add the charts of a plan's cells."""
    numbers, figures = numbered(record), charts.figures
    by_workload = {one.workload: one for one in recommend(record)}
    points: list[Row] = []
    repeats: list[Row] = []
    matrix: list[Row] = []
    series: list[Row] = []
    moments: list[Row] = []
    most = max(LEAST_POINTS, MOST_ROWS // max(1, sum(len(cell.repeats) for cell in record.cells)))
    for ranking in rankings(record):
        place = ranking.place
        measured = titled(ranking.measure, ranking.unit)
        advice = by_workload[ranking.cells[0].compared_with]
        charts.recommended[place] = advice
        found = tradeoff.of_cells(record, ranking, numbers, [cell.name for cell in advice.cells])
        points += found.rows
        charts.missing[place] = not_drawn(found)
        if found.rows:
            figures.specifications[f"tradeoff-{place}"] = tradeoff.specification(found.rows, measured)
            title = f"{ranking.title} against acknowledged work lost at the power cut"
            charts.tradeoffs[place] = chart_of(found, place, title)
            charts.captions[place] = tradeoff.caption(found.rows)
        rows = medians.rows_of(record, ranking, numbers)
        repeats += rows
        draw_medians(charts, ranking, len(rows))
        matrix += draw_heat_map(charts, record, ranking, numbers)
        draw_each_cell(charts, ranking, numbers, measured)
        for cell in ranking.cells:
            series += cell_values.series_rows(cell, numbers[cell.name], min(most, MOST_POINTS))
            moments += monitors.rows_of(cell, numbers[cell.name], min(most, MOST_POINTS))
    held = {"points": points, "repetitions": repeats, "matrix": matrix, "series": series, "moments": moments}
    for name, held_rows in held.items():
        figures.hold(name, held_rows)


def draw_medians(charts: RunCharts, ranking: Ranking, rows: int) -> None:
    """Add the chart of the medians of a workload's cells."""
    if not rows:
        return
    place = ranking.place
    charts.figures.specifications[f"medians-{place}"] = medians.specification(ranking.unit)
    drawn = [cell for cell in ranking.cells if cell.median is not None][: medians.MOST_ROWS]
    said = "; ".join(
        f"{f'rank {cell.rank}' if cell.rank else 'no rank'}, {cell.name}: {number(cell.median)} {ranking.unit} "
        f"({span(cell.spread)}, {plural(len(cell.measured), 'repetition')})"
        for cell in drawn
    )
    charts.medians[place] = Chart(
        id=f"medians-{place}",
        drawn_as=f"medians-{place}",
        title=f"Median of each cell, {ranking.title}",
        description=said,
        where={"workload": place},
        params={"top": ROOM * medians.greatest(ranking)},
        filtered=True,
    )


def draw_heat_map(charts: RunCharts, record: RunRecord, ranking: Ranking, numbers: dict[str, int]) -> list[Row]:
    """Add the heat map of a workload's cells, if they vary on two axes; return its rows."""
    cells = sorted(ranking.cells, key=lambda one: numbers[one.name])
    axes = heat_map.axes_of(cells)[:MOST_AXES]
    if len(axes) < 2 or all(cell.median is None for cell in cells):
        return []
    # The axis with fewer values across, so that its tiles are wide on a narrow screen, too.
    axes[:2] = sorted(axes[:2], key=lambda axis: len({cell.settings.get(axis) for cell in cells}))
    place = ranking.place
    charts.figures.specifications[f"heat-{place}"] = heat_map.specification(ranking.unit)
    charts.heat_maps[place] = HeatMap(
        Chart(
            id=f"heat-{place}",
            drawn_as=f"heat-{place}",
            title=f"Median by two axes, {ranking.title}",
            description=f"the axes {axes[0]} and {axes[1]} have the greatest effect on the median",
            where={"workload": place},
            params={"across": f"axis:{axes[0]}", "down": f"axis:{axes[1]}", "top": ROOM * heat_map.greatest(cells)},
            filtered=True,
        ),
        axes,
    )
    return heat_map.rows_of(record, cells, place, numbers)


def draw_each_cell(charts: RunCharts, ranking: Ranking, numbers: dict[str, int], measured: str) -> None:
    """Add the charts of each cell of a workload: repetitions, values over time, monitors over time."""
    place, specifications = ranking.place, charts.figures.specifications
    specifications[f"repetitions-{place}"] = cell_values.repetitions(measured)
    specifications[f"series-{place}"] = cell_values.series(measured)
    last = max((at for cell in ranking.cells for repeat in cell.repeats for at, _ in repeat.series), default=0.0)
    shared = medians.greatest(ranking)
    for cell in ranking.cells:
        count = numbers[cell.name]
        top = max([shared, *cell.measured, expected_value(cell) or 0.0])
        drawn = charts.cells.setdefault(count, [])
        if cell.measured:
            said = f"{span(cell.spread)} in {plural(len(cell.measured), 'repetition')}"
            aim = expected_value(cell)
            said += f", median {number(cell.median)}, expected of the hardware: {number(aim)}"
            drawn.append(
                Chart(
                    f"repetitions-{count}",
                    f"repetitions-{place}",
                    "Repetitions",
                    said,
                    {"number": count},
                    {"top": ROOM * top},
                )
            )
        if seen := [value for repeat in cell.repeats if len(repeat.series) > 1 for _, value in repeat.series]:
            said = f"values from {number(min(seen))} to {number(max(seen))} {ranking.unit}".strip()
            limits = {"top": ROOM * max(seen), "last": last}
            drawn.append(
                Chart(f"series-{count}", f"series-{place}", "Values over time", said, {"cell": count}, limits)
            )
        drawn += monitor_charts(charts, cell, count)


def monitor_charts(charts: RunCharts, cell: CellRecord, count: int) -> list[Chart]:
    """Return the charts of a cell's monitors over time; ``count``: the number of the cell."""
    made = []
    for name in monitors.measured(cell):
        group = monitors.GROUPS[name]
        charts.figures.specifications[f"monitors-{name}"] = monitors.specification(name)
        title = f"{group.title} [{group.unit}]"
        made.append(Chart(f"monitors-{name}-{count}", f"monitors-{name}", title, title, {"cell": count}))
    return made


def draw_timelines(charts: RunCharts, record: RunRecord) -> None:
    """Add the timelines of all crash tests, on common axes."""
    drawable = timeline.drawable(record.cycles)
    if not drawable:
        return
    bars, limits = timeline.bar_rows(record.cycles), timeline.time_range(record.cycles)
    charts.figures.hold("bars", bars)
    charts.figures.hold("marks", timeline.mark_rows(record.cycles))
    charts.figures.specifications["timeline"] = timeline.specification(bars, limits)
    for place, cycle, one in drawable:
        said = timeline.describe(cycle, one)
        charts.timelines[place] = Chart(f"timeline-{place}", "timeline", cycle.title, said, {"test": place})


def draw_lives(charts: RunCharts, record: RunRecord) -> None:
    """Add the lives of the lost blocks of all crash tests."""
    rows: list[Row] = []
    for test, count, life in block_life.lives(record.cycles):
        mine = block_life.rows_of(test, count, life)
        rows += mine
        charts.lives.setdefault(test, []).append(
            Life(
                Chart(
                    id=f"life-{test}-{count}",
                    drawn_as="life",
                    title=block_life.title(life),
                    description=block_life.describe(life),
                    where={"test": test, "block": count},
                ),
                block_life.title(life),
                [step_words(row) for row in mine],
            )
        )
    if rows:
        charts.figures.hold("lives", rows)
        charts.figures.specifications["life"] = block_life.specification()


def step_words(row: Row) -> tuple[str, str, str, str]:
    """Return layer, step, times in ms from the cut, and note of a step as text."""
    at, end = row["at"], row["end"]
    if at is None:
        return row["layer"], row["step"], "-", row["note"]
    times = f"{1000 * at:+,.2f}" if end == at else f"{1000 * at:+,.2f} to {1000 * end:+,.2f}"
    return row["layer"], row["step"], times, row["note"]


def chart_of(found: Tradeoff, place: int, title: str) -> Chart:
    """Return the chart of speed against loss of one workload."""
    return Chart(
        id=f"tradeoff-{place}",
        drawn_as=f"tradeoff-{place}",
        title=title,
        description=found.description,
        where={"workload": place},
        params={"points": len(found.rows)},
        filtered=True,
    )


def not_drawn(found: Tradeoff) -> str:
    """Return the configurations without a point as text, grouped by the values that are not known."""
    reasons: dict[str, list[str]] = {}
    for count, name, unknown in found.missing:
        reasons.setdefault(unknown, []).append(f"{count} {name}")
    return "; ".join(f"{some(names, MOST_NAMED, ', ')} ({why} not known)" for why, names in reasons.items())
