"""The charts of one cell: its repetitions, and its values over time; all cells of a workload have the same axes."""

from functools import cache

from raidproof.record.cell import CellRecord
from raidproof.report.charts.drawing import BLUE, DASHES, PURPLE, SERIES, finished, library
from raidproof.report.charts.figure import Row, Specification


def series_rows(cell: CellRecord, number: int, most: int) -> list[Row]:
    """Return a row for each interval of each repetition of a cell.

    ``number``: the number of the cell; ``most``: greatest number of points of a repetition: of more, means of
    neighbours are drawn.
    """
    rows: list[Row] = []
    for repeat in cell.repeats:
        if len(repeat.series) < 2:
            continue
        every = -(-len(repeat.series) // most)
        for begin in range(0, len(repeat.series), every):
            part = repeat.series[begin : begin + every]
            mean = sum(value for _, value in part) / len(part)
            rows.append(
                {"cell": number, "repetition": repeat.round, "at_s": part[-1][0], "value": float(f"{mean:.4g}")}
            )
    return rows


@cache
def repetitions(unit: str) -> Specification:
    """Return the specification of a cell's repetitions; parameter ``top``: end of the axis of values."""
    alt = library()
    base = alt.Chart(alt.NamedData("repetitions"))
    scale = alt.Scale(domainMin=0, domainMax=alt.ExprRef("top"), nice=True)
    y = alt.Y("value:Q", title=unit or "value", scale=scale, axis=alt.Axis(tickCount=4))
    x = alt.X("round:O", title="round", axis=alt.Axis(labelAngle=0))
    tooltip = [alt.Tooltip("round:O"), alt.Tooltip("value:Q", format=",.5~r")]
    dots = base.mark_point(filled=True, size=70, color=BLUE, opacity=1).encode(x=x, y=y, tooltip=tooltip)
    middle = base.mark_rule(color=BLUE, strokeWidth=1.5).encode(
        y=alt.Y("median:Q"), tooltip=[alt.Tooltip("median:Q", title="median", format=",.5~r")]
    )
    aim = base.transform_filter("datum.expected != null").mark_rule(color=PURPLE, strokeWidth=2, strokeDash=[6, 3])
    aim = aim.encode(
        y=alt.Y("expected:Q"), tooltip=[alt.Tooltip("expected:Q", title="expected of the hardware", format=",.5~r")]
    )
    return finished(alt.layer(middle, aim, dots).add_params(alt.param(name="top", value=1)), 170)


@cache
def series(unit: str) -> Specification:
    """Return the specification of a cell's values over time; parameters ``top`` and ``last``: ends of the axes."""
    alt = library()
    scale = alt.Scale(domainMin=0, domainMax=alt.ExprRef("top"), nice=True)
    chart = (
        alt.Chart(alt.NamedData("series"))
        .mark_line(interpolate="step-before", strokeWidth=2)
        .encode(
            x=alt.X("at_s:Q", title="seconds", scale=alt.Scale(domainMin=0, domainMax=alt.ExprRef("last"))),
            y=alt.Y("value:Q", title=unit or "value", scale=scale, axis=alt.Axis(tickCount=4)),
            color=alt.Color("repetition:O", scale=alt.Scale(range=list(SERIES))),
            strokeDash=alt.StrokeDash("repetition:O", scale=alt.Scale(range=list(DASHES))),
            tooltip=[
                alt.Tooltip("repetition:O"),
                alt.Tooltip("at_s:Q", title="seconds"),
                alt.Tooltip("value:Q", format=",.4~r"),
            ],
        )
        .add_params(alt.param(name="top", value=1), alt.param(name="last", value=1))
    )
    return finished(chart, 170)
