"""The chart of speed against acknowledged work lost: one point for each configuration whose power was cut."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from raidproof.record.cell import CellRecord
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.report.cells import Ranking
from raidproof.report.charts.drawing import INK, NAMES, SAFETY, finished, library, marks_by, spread_scale
from raidproof.report.charts.figure import Row, Specification
from raidproof.report.columns.crash_test import export, sequential_write
from raidproof.report.words import number, plural
from raidproof.verdict.cell import safety_in

MOST_NAMES = 12
"""Greatest number of points with names beside them; of more points, only the numbers are shown."""
APART = "apart_"
"""Begin of the names of the layers whose texts the page's script moves, so that none covers another."""
STEP = 40
"""Height in pixels of a bar with its name above it."""
MOST_NUMBERS = 60
"""Greatest number of points with numbers beside them."""


@dataclass(frozen=True)
class Tradeoff:
    """The points of one chart, and the configurations without a point."""

    rows: list[Row]
    missing: list[tuple[int, str, str]]
    """Number, name, and the values that are not known."""

    @property
    def description(self) -> str:
        """Text alternative for the chart."""
        return "; ".join(
            f"{row['number']} {row['name']}: {number(row['speed'])} {row['unit']}, "
            f"{number(row['lost_s'])} s of acknowledged work lost, {row['safety']}"
            for row in self.rows[:MOST_NAMES]
        ) + ("" if len(self.rows) <= MOST_NAMES else f"; and {plural(len(self.rows) - MOST_NAMES, 'other point')}")


def of_crash_tests(record: RunRecord) -> Tradeoff:
    """Return the points of a run's crash tests: sequential write speed against seconds of acknowledged work lost."""
    rows: list[Row] = []
    missing = []
    for place, cycle in enumerate(record.cycles, start=1):
        speed, lost = sequential_write(cycle), cycle.loss_window_s
        if speed is None and cycle.control is not None:
            continue  # the speed of a control is not measured
        if speed is None or lost is None:
            unknown = [name for name, value in (("MB/s", speed), ("seconds lost", lost)) if value is None]
            missing.append((place, cycle.title, " and ".join(unknown)))
            continue
        each = cycle.throughput.sequential_write_each or [speed]
        rows.append(
            {
                **row_of(place, cycle.title, f"#cycle-{place}", cycle),
                "speed": speed,
                "low": min(each),
                "high": max(each),
                "n": len(each),
                "unit": "MB/s",
                "safety": safety_in(record, cycle).word.value,
                "rank": None,
                "workload": 0,
                "kind": "control" if cycle.control else "",
            }
        )
    return Tradeoff(rows, missing)


def of_cells(
    record: RunRecord, ranking: Ranking, numbers: dict[str, int], recommended: Collection[str] = ()
) -> Tradeoff:
    """Return the points of the cells of one workload; ``numbers``: the number of each cell in the report, by name."""
    cuts = {cycle.name: cycle for cycle in record.cycles}
    rows: list[Row] = []
    missing = []
    for cell in sorted(ranking.cells, key=lambda one: numbers[one.name]):
        place, cycle = numbers[cell.name], cuts.get(cell.cycle or "")
        lost = None if cycle is None else cycle.loss_window_s
        if cycle is None or lost is None or cell.median is None:
            unknown = [ranking.measure or "speed"] * (cell.median is None) + ["loss"] * (lost is None)
            missing.append((place, cell.name, " and ".join(unknown)))
            continue
        rows.append(cell_row(record, cell, cycle, ranking, place, recommended=cell.name in recommended))
    return Tradeoff(rows, missing)


def cell_row(
    record: RunRecord, cell: CellRecord, cycle: CrashTestRecord, ranking: Ranking, place: int, *, recommended: bool
) -> Row:
    """Return the point of one cell."""
    low, high = cell.spread or (cell.median, cell.median)
    return {
        **row_of(place, cell.name, f"#cell-{place}", cycle),
        "speed": cell.median,
        "low": low,
        "high": high,
        "n": len(cell.measured),
        "unit": ranking.unit,
        "safety": safety_in(record, cell).word.value,
        "rank": cell.rank,
        "workload": ranking.place,
        "kind": "recommended" if recommended else "",
    }


def row_of(place: int, name: str, link: str, cycle: CrashTestRecord) -> dict[str, Any]:
    """Return the columns of a point that come from the power cut."""
    seen = cycle.on_server
    return {
        "number": place,
        "name": name,
        "link": link,
        "export": export(cycle),
        "lost_s": cycle.loss_window_s,
        "lost": None if seen is None else seen.lost_total,
        "acknowledged": None if seen is None else seen.acknowledged_total,
    }


def lossless(rows: Sequence[Row]) -> bool:
    """Return whether no point has a loss: its chart would have all points on one vertical line."""
    return all(row["lost_s"] == 0 for row in rows)


def caption(rows: Sequence[Row]) -> str:
    """Return sentences about the marks of the chart of these points."""
    if lossless(rows):
        return "No acknowledged work was lost. Bars: median. Lines: least to greatest measurement."
    ring = " Dashed ring: recommended." if any(row["kind"] == "recommended" for row in rows) else ""
    return (
        f"Vertical lines: least to greatest measurement. A fast configuration without a loss is at the top left.{ring}"
    )


def specification(rows: Sequence[Row], speed: str) -> Specification:
    """Return the specification of the chart: points, or bars if no point has a loss; ``speed``: title of its axis."""
    return speeds(speed) if lossless(rows) else scatter(rows, speed)


def speeds(speed: str) -> Specification:
    """Return the specification of the speeds as bars; ``speed``: title of the axis."""
    alt = library()
    colour, _ = marks_by("safety", SAFETY)
    value = "format(datum.speed, ',.3~r')"
    base = alt.Chart(alt.NamedData("points")).transform_calculate(
        label=f"datum.number + ' ' + datum.name + ': ' + {value} + (datum.kind ? ', ' + datum.kind : '')"
    )
    name = alt.Y("label:N", sort=alt.EncodingSortField(field="number", op="min"), axis=alt.Axis(**NAMES))
    x = alt.X("speed:Q", title=speed, scale=alt.Scale(zero=True, nice=True))
    tooltip = [
        alt.Tooltip("name:N", title="configuration"),
        alt.Tooltip("speed:Q", title="median", format=",.4~r"),
        alt.Tooltip("low:Q", title="least", format=",.4~r"),
        alt.Tooltip("high:Q", title="greatest", format=",.4~r"),
        alt.Tooltip("acknowledged:Q", title="operations acknowledged", format=","),
        alt.Tooltip("safety:N"),
    ]
    bars = base.mark_bar(height=12, opacity=0.55).encode(
        x=x,
        y=name,
        color=colour,
        href="link:N",
        tooltip=tooltip,
        description=alt.Description("name:N"),
    )
    ranges = base.mark_rule(strokeWidth=2, stroke=INK).encode(y=name, x=alt.X("low:Q"), x2="high:Q")
    chart = alt.layer(bars, ranges).add_params(alt.param(name="points", value=0))
    return finished(chart, {"step": STEP})


def scatter(rows: Sequence[Row], speed: str) -> Specification:
    """Return the specification of speed against loss; ``speed``: title of the vertical axis.

    Each chart of a page has the same axes if it draws the same measure.
    """
    alt = library()
    colour, shape = marks_by("safety", SAFETY)
    losses = [row["lost_s"] for row in rows]
    base = alt.Chart(alt.NamedData("points")).transform_calculate(
        label=f"points > {MOST_NUMBERS} ? '' : datum.number + (points > {MOST_NAMES} ? '' : ' ' + datum.name)",
        interval="format(datum.low, ',.4~r') + ' to ' + format(datum.high, ',.4~r') + ' ' + datum.unit + "
        "' (' + datum.n + (datum.n == 1 ? ' measurement)' : ' measurements)')",
    )
    x = alt.X(
        "lost_s:Q",
        title="acknowledged work lost [s]",
        scale=alt.Scale(**spread_scale(losses), padding=14),
        axis=alt.Axis(format="~g", **({} if ticks(losses) is None else {"values": ticks(losses)})),
    )
    y = alt.Y("speed:Q", title=speed, scale=alt.Scale(**spread_scale([row["high"] for row in rows])))
    tooltip = [
        alt.Tooltip("name:N", title="configuration"),
        alt.Tooltip("speed:Q", title="median", format=",.4~r"),
        alt.Tooltip("interval:N", title="least to greatest"),
        alt.Tooltip("lost_s:Q", title="seconds lost", format=",.4~r"),
        alt.Tooltip("lost:Q", title="operations lost", format=","),
        alt.Tooltip("acknowledged:Q", title="operations acknowledged", format=","),
        alt.Tooltip("safety:N"),
        alt.Tooltip("export:N"),
        alt.Tooltip("rank:N"),
    ]
    points = base.mark_point(filled=False, opacity=1, size=110).encode(
        x=x,
        y=y,
        color=colour,
        shape=shape,
        href="link:N",
        tooltip=tooltip,
        description=alt.Description("name:N"),
    )
    ranges = base.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    rings = (
        base.transform_filter("datum.kind == 'recommended'")
        .mark_point(shape="circle", size=420, stroke=INK, filled=False, strokeDash=[3, 2])
        .encode(x=x, y=y)
    )
    # A label in the right half of the chart stands left of its point.
    labels = [
        base.transform_filter(f"(datum.lost_s > {max([*losses, 0.0]) / 4}) == {str(left).lower()}")
        .mark_text(
            align="right" if left else "left",
            baseline="middle",
            dx=-11 if left else 11,
            dy=-10,
            limit=alt.ExprRef("width - 20"),
        )
        .encode(x=x, y=y, text="label:N")
        .properties(name=f"{APART}{'left' if left else 'right'}")
        for left in (False, True)
    ]
    chart = alt.layer(ranges, rings, points, *labels).add_params(alt.param(name="points", value=0))
    return finished(chart, 340)


def ticks(values: Sequence[float]) -> list[float] | None:
    """Return the ticks of the axis of losses: 0 and powers of ten if it is logarithmic; None: the browser's choice."""
    settings = spread_scale(values)
    if settings["type"] == "linear":
        return None
    low, high = (math.floor(math.log10(one)) for one in (settings["constant"], max(values)))
    return [0.0, *(10.0**power for power in range(low, high + 2))]
