"""The heat map of a plan's cells over two axes, and the effect of each axis on the measured value."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from raidproof.record.cell import CellRecord
from raidproof.record.run import RunRecord
from raidproof.report.charts.drawing import CARD, SOFT, finished, library
from raidproof.report.charts.figure import Row, Specification
from raidproof.report.words import titled
from raidproof.verdict.cell import safety_in

STEP = 46
"""Height of a row in pixels."""


def axes_of(cells: Sequence[CellRecord]) -> list[str]:
    """Return the axes on which cells differ, the axis with the greatest effect on the measured value first."""
    names = dict.fromkeys(name for cell in cells for name in cell.settings)
    varied = [name for name in names if len({cell.settings.get(name) for cell in cells}) > 1]
    return sorted(varied, key=lambda name: -effect(cells, name))


def effect(cells: Sequence[CellRecord], axis: str) -> float:
    """Return the effect of an axis: the share of the variance of the medians' logarithms between its values.

    This is eta squared of a one-way analysis of variance (Fisher 1925); 0 if all medians are equal.
    """
    groups: dict[str | None, list[float]] = defaultdict(list)
    for cell in cells:
        if cell.median is not None and cell.median > 0:
            groups[cell.settings.get(axis)].append(math.log(cell.median))
    every = [value for group in groups.values() for value in group]
    if not every:
        return 0.0
    mean = sum(every) / len(every)
    total = sum((value - mean) ** 2 for value in every)
    between = sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in groups.values())
    return between / total if total else 0.0


def rows_of(record: RunRecord, cells: Sequence[CellRecord], workload: int, numbers: Mapping[str, int]) -> list[Row]:
    """Return a row for each cell: its median, its safety, and its value on each axis in column ``axis:NAME``."""
    return [
        {
            "workload": workload,
            "number": numbers[cell.name],
            "name": cell.name,
            "median": cell.median,
            "safety": safety_in(record, cell).word.value,
            **{f"axis:{axis}": value for axis, value in cell.settings.items()},
        }
        for cell in cells
    ]


def greatest(cells: Sequence[CellRecord]) -> float:
    """Return the end of the colour scale of a workload: the greatest median."""
    return max((cell.median for cell in cells if cell.median is not None), default=1.0)


@cache
def specification(unit: str) -> Specification:
    """Return the specification; parameters ``across`` and ``down``: columns of the axes; ``top``: end of the scale."""
    alt = library()
    base = (
        alt.Chart(alt.NamedData("matrix"))
        .transform_calculate(
            column="datum[across] == null ? '-' : datum[across]",
            line="datum[down] == null ? '-' : datum[down]",
            loses="datum.safety == 'LOSES DATA' ? 1 : 0",
            safe="datum.safety == 'SAFE' ? 1 : 0",
        )
        .transform_aggregate(
            groupby=["column", "line"],
            value="median(median)",
            cells="count()",
            loses="sum(loses)",
            safe="sum(safe)",
            first="min(number)",
        )
        .transform_calculate(
            said="(datum.value == null ? '\u2013' : format(datum.value, ',.3~r'))",
            sign="datum.value == null ? '' : datum.loses > 0 ? '\u2717 ' + datum.loses + '/' + datum.cells : "
            "(datum.safe == datum.cells ? '\u2713 SAFE' : '? ' + (datum.cells - datum.safe) + '/' + datum.cells)",
        )
    )
    x = alt.X(
        "column:N",
        title=None,
        sort=alt.EncodingSortField(field="first", op="min"),
        axis=alt.Axis(labelAngle=0, orient="top", labelLimit=110, labelOverlap=False, ticks=False, domain=False),
    )
    y = alt.Y(
        "line:N",
        title=None,
        sort=alt.EncodingSortField(field="first", op="min"),
        axis=alt.Axis(labelLimit=110, ticks=False, domain=False),
    )
    colour = alt.Color(
        "value:Q",
        title=titled("median", unit),
        scale=alt.Scale(scheme="cividis", domainMin=0, domainMax=alt.ExprRef("top")),
        legend=alt.Legend(gradientLength=160, orient="bottom", direction="horizontal", format="~s"),
    )
    tooltip = [
        alt.Tooltip("line:N", title="down"),
        alt.Tooltip("column:N", title="across"),
        alt.Tooltip("value:Q", title="median", format=",.4~r"),
        alt.Tooltip("cells:Q"),
        alt.Tooltip("safe:Q", title="shown SAFE"),
        alt.Tooltip("loses:Q", title="LOSES DATA"),
    ]
    tiles = base.mark_rect(stroke=CARD, strokeWidth=2).encode(x=x, y=y, color=colour, tooltip=tooltip)
    ink = {
        "condition": [
            {"test": "datum.value == null", "value": SOFT},
            {"test": "datum.value > 0.55 * top", "value": "black"},
        ],
        "value": "white",
    }
    size = alt.ExprRef("width < 300 ? 9.5 : 12")
    words = base.mark_text(dy=-7, fontWeight="bold", fontSize=size).encode(x=x, y=y, text="said:N")
    signs = base.mark_text(dy=9, fontSize=size).encode(x=x, y=y, text="sign:N")
    for text in (words, signs):
        text.encoding.color = ink
    params = [alt.param(name=name, value=value) for name, value in (("across", ""), ("down", ""), ("top", 1))]
    return finished(alt.layer(tiles, words, signs).add_params(*params), {"step": STEP})
