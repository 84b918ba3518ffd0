"""The charts of a comparison: the ratio of each cell with its interval, the values of both sides, and the losses."""

from collections.abc import Sequence
from typing import Any

from raidproof.record.comparison import BASE, NEW, ComparisonRecord, Pair, PairFinding
from raidproof.report.charts.drawing import (
    BLUE,
    GREEN,
    INK,
    NAMES,
    ORANGE,
    PURPLE,
    SKY,
    SOFT,
    finished,
    library,
    marks_by,
    spread_scale,
)
from raidproof.report.charts.figure import Row, Specification

FINDINGS = {
    PairFinding.FASTER: (GREEN, "triangle-up"),
    PairFinding.SLOWER: (ORANGE, "triangle-down"),
    PairFinding.SAME: (BLUE, "circle"),
    PairFinding.UNDECIDED: (PURPLE, "diamond"),
    PairFinding.BIMODAL: (SKY, "square"),
    PairFinding.NOT_COMPARABLE: (SOFT, "cross"),
}
"""Colour and shape of each finding that has a ratio."""
SIDES = {BASE: (SOFT, "square"), NEW: (BLUE, "circle")}
"""Colour and shape of each side."""
STEP, WIDE_STEP = 34, 62
"""Height of a row in pixels, with one line of marks and with two."""
ABOVE = {**NAMES, "labelOffset": -20}
"""Settings of the axis of names above two lines of marks."""


def ratio_rows(comparison: ComparisonRecord) -> list[Row]:
    """Return a row for each cell with a ratio, in the plan's order."""
    rows: list[Row] = []
    for order, pair in enumerate(comparison.pairs):
        change = pair.change
        ratio = pair.ratio if change is None else change.ratio
        if ratio is None or ratio <= 0:
            continue
        low, high = (None, None) if change is None else (change.low, change.high)
        where = {"order": order, "name": pair.name, "workload": pair.workload, "finding": pair.finding.value}
        rows.append({**where, "ratio": ratio, "low": low, "high": high})
    return rows


def value_rows(pairs: Sequence[Pair], group: int) -> list[Row]:
    """Return a row for each repetition of each cell on both sides; ``group``: the number of the workload."""
    return [
        {"group": group, "order": order, "name": pair.name, "side": name, "value": value, "median": side.median}
        for order, pair in enumerate(pairs)
        for name, side in ((BASE, pair.base), (NEW, pair.new))
        for value in side.values
    ]


def loss_rows(comparison: ComparisonRecord) -> list[Row]:
    """Return a row for each power cut on each side whose storage could be read."""
    return [
        {"order": order, "name": cut.title, "side": name, "lost": side.lost, "acknowledged": side.acknowledged,
         "outcome": side.outcome.value}
        for order, cut in enumerate(comparison.cuts)
        for name, side in ((BASE, cut.base), (NEW, cut.new))
        if side is not None and side.lost is not None
    ]  # fmt: skip


def ratios(margin: float) -> Specification:
    """Return the specification of the ratios of all cells on one axis; ``margin``: margin of the finding SAME."""
    alt = library()
    base = alt.Chart(alt.NamedData("ratios")).transform_calculate(
        label="datum.name + ': ' + format(datum.ratio, '.3f') + ', ' + datum.finding"
    )
    y = alt.Y("label:N", sort=alt.EncodingSortField(field="order", op="min"), axis=alt.Axis(**NAMES))
    x = alt.X(
        "ratio:Q",
        title='new / base (logarithmic); lines: interval; band: margin of "same"',
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(format=".3~f", tickCount=6),
    )
    colour, shape = marks_by("finding", FINDINGS)
    tooltip = [
        alt.Tooltip("name:N", title="cell"),
        alt.Tooltip("ratio:Q", format=".4f"),
        alt.Tooltip("low:Q", format=".4f"),
        alt.Tooltip("high:Q", format=".4f"),
        alt.Tooltip("finding:N"),
    ]
    band = alt.Chart(alt.InlineData([{"low": 1 - margin, "high": 1 + margin}])).mark_rect(opacity=0.16, color=BLUE)
    band = band.encode(x=alt.X("low:Q"), x2="high:Q")
    one = alt.Chart(alt.InlineData([{"ratio": 1}])).mark_rule(color=INK, strokeWidth=1).encode(x=alt.X("ratio:Q"))
    ranges = base.transform_filter("datum.low != null && datum.high != null").mark_rule(strokeWidth=2, color=INK)
    ranges = ranges.encode(x=alt.X("low:Q"), x2="high:Q", y=y)
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=x,
        y=y,
        color=colour,
        shape=shape,
        tooltip=tooltip,
    )
    return finished(alt.layer(band, one, ranges, points), {"step": STEP})


def values(unit: str) -> Specification:
    """Return the specification of the values of both sides of a workload's cells; ``unit``: of the axis."""
    alt = library()
    scale = alt.Scale(domainMin=0)
    return both_sides("values", alt.X("value:Q", title=unit or "value", scale=scale), "median")


def losses(rows: Sequence[Row]) -> Specification:
    """Return the specification of the acknowledged operations that power cuts lost on both sides."""
    alt = library()
    scale = alt.Scale(**spread_scale([float(row["lost"]) for row in rows]))
    x = alt.X("lost:Q", title="acknowledged operations lost", scale=scale)
    return both_sides("losses", x, None)


def both_sides(data: str, x: Any, middle: str | None) -> Specification:
    """Return a specification with a row for each name, and a line of marks for each side in it.

    ``data``: name of the rows; ``x``: horizontal channel; ``middle``: field of a thick tick; None for none.
    """
    alt = library()
    base = alt.Chart(alt.NamedData(data))
    y = alt.Y("name:N", sort=alt.EncodingSortField(field="order", op="min"), axis=alt.Axis(**ABOVE))
    offset = alt.YOffset("side:N", scale=alt.Scale(domain=list(SIDES)))
    colour, shape = marks_by("side", SIDES)
    layers = []
    if middle is not None:
        ticks = base.mark_tick(thickness=3, size=20, opacity=1)
        layers.append(ticks.encode(x=alt.X(f"{middle}:Q"), y=y, yOffset=offset, color=colour))
    points = base.mark_point(size=46, opacity=0.9).encode(
        x=x,
        y=y,
        yOffset=offset,
        color=colour,
        shape=shape,
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("side:N"), alt.Tooltip(x.shorthand, format=",.5~r")],
    )
    return finished(alt.layer(*layers, points), {"step": WIDE_STEP, "for": "position"})
