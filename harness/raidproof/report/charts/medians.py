"""The chart of the medians of a workload's cells: each repetition, the range, the median and the expected value."""

from collections.abc import Sequence
from functools import cache

from raidproof.record.run import RunRecord
from raidproof.report.cells import Ranking, expected_value
from raidproof.report.charts.drawing import BLUE, CARD, INK, NAMES, PURPLE, SOFT, finished, library
from raidproof.report.charts.figure import Row, Specification
from raidproof.report.words import titled
from raidproof.verdict.cell import safety_in

MOST_ROWS = 40
"""Greatest number of cells in the chart: the first ones of the ranking; the table has all."""
MOST_BEYOND = 2.0
"""An unranked value that exceeds the greatest ranked value by at most this factor extends the axis of the medians."""
STEP = 40
"""Height of a row in pixels: a line of text, and the marks below it."""


def rows_of(record: RunRecord, ranking: Ranking, numbers: dict[str, int]) -> list[Row]:
    """Return a row for each repetition of each cell with a value, the fastest cell first."""
    rows: list[Row] = []
    for order, cell in enumerate(cell for cell in ranking.cells if cell.median is not None):
        low, high = cell.spread or (cell.median, cell.median)
        shared = {
            "workload": ranking.place,
            "order": order,
            "number": numbers[cell.name],
            "name": cell.name,
            "rank": cell.rank,
            "safety": safety_in(record, cell).word.value,
            "median": cell.median,
            "low": low,
            "high": high,
            "expected": expected_value(cell),
        }
        rows += [
            {**shared, "round": repeat.round, "value": repeat.value}
            for repeat in cell.repeats
            if repeat.value is not None
        ]
    return rows


def greatest(ranking: Ranking) -> float:
    """Return the end of the axis: the greatest value that measures the requested hardware, or one near it."""
    ranked = [value for cell in ranking.ranked for value in (*cell.measured, expected_value(cell) or 0.0)]
    every = [value for cell in ranking.cells for value in (*cell.measured, expected_value(cell) or 0.0)]
    limit = MOST_BEYOND * max(ranked) if ranked else max(every, default=1.0)
    return max((value for value in every if value <= limit), default=1.0)


def beyond(ranking: Ranking) -> list[str]:
    """Return the names of the drawn cells whose values exceed the axis."""
    top = greatest(ranking)
    return [cell.name for cell in ranking.cells[:MOST_ROWS] if (cell.median or 0.0) > top]


def drawn(rows: Sequence[Row]) -> int:
    """Return the number of cells in the chart."""
    return min(MOST_ROWS, len({row["number"] for row in rows}))


@cache
def specification(unit: str) -> Specification:
    """Return the specification of the chart; parameter ``top``: end of the axis of values."""
    alt = library()
    base = alt.Chart(alt.NamedData("repetitions")).transform_filter(f"datum.order < {MOST_ROWS}")
    each = base.transform_filter("datum.value <= top")
    title = titled("median and repetitions", unit)
    name = alt.Y(
        "label:N",
        sort=alt.EncodingSortField(field="order", op="min"),
        axis=alt.Axis(**NAMES),
    )

    def x(field: str) -> object:
        scale = alt.Scale(domainMin=0, domainMax=alt.ExprRef("top"), nice=False, clamp=True)
        return alt.X(f"{field}:Q", title=title, scale=scale)

    label = (
        "datum.number + ' ' + datum.name + ': ' + format(datum.median, ',.3~r') + "
        "(datum.median > top ? ' \u00bb' : '') + (datum.rank ? ', rank ' + datum.rank : ', no rank')"
    )
    tooltip = [
        alt.Tooltip("name:N", title="cell"),
        alt.Tooltip("median:Q", format=",.4~r"),
        alt.Tooltip("low:Q", title="least", format=",.4~r"),
        alt.Tooltip("high:Q", title="greatest", format=",.4~r"),
        alt.Tooltip("expected:Q", format=",.4~r"),
        alt.Tooltip("safety:N"),
    ]
    rank = alt.condition("datum.rank != null", alt.value(BLUE), alt.value(SOFT))
    first = alt.Chart(alt.NamedData("repetitions")).transform_filter(f"datum.order < {MOST_ROWS}")
    first = first.transform_joinaggregate(first="min(round)", groupby=["number"])
    first = first.transform_filter("datum.round == datum.first").transform_calculate(label=label)
    bars = first.mark_bar(height=12, opacity=0.55).encode(y=name, x=x("median"), color=rank, tooltip=tooltip)
    ranges = first.transform_filter("datum.low <= top").mark_rule(strokeWidth=2, stroke=INK)
    ranges = ranges.encode(y=name, x=x("low"), x2="high:Q")
    dots = each.transform_calculate(label=label).mark_circle(size=44, color=INK, stroke=CARD, strokeWidth=1, opacity=1)
    dots = dots.encode(y=name, x=x("value"), tooltip=[*tooltip, alt.Tooltip("value:Q", format=",.4~r")])
    aims = first.transform_filter("datum.expected != null && datum.expected <= top")
    aims = aims.mark_tick(thickness=3, size=18, color=PURPLE).encode(y=name, x=x("expected"), tooltip=tooltip)
    chart = alt.layer(bars, ranges, aims, dots).add_params(alt.param(name="top", value=1))
    return finished(chart, {"step": STEP})
