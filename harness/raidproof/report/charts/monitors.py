"""The chart of what the monitors measured during the repetitions of a cell, over time."""

import json
from dataclasses import dataclass
from functools import cache

from raidproof.monitor.chart import Moment
from raidproof.record.cell import CellRecord
from raidproof.report.charts.drawing import DASHES, SERIES, finished, library
from raidproof.report.charts.figure import Row, Specification


@dataclass(frozen=True)
class Group:
    """Quantities with the same unit, which one chart draws."""

    title: str
    unit: str
    scale: float
    """Factor from the unit of `raidproof.monitor.chart.Moment` to ``unit``."""
    fields: dict[str, str]
    """Fields of `raidproof.monitor.chart.Moment`, each with its name for readers."""


GROUPS = {
    "throughput": Group(
        "Throughput of each layer",
        "MB/s",
        1.0,
        {
            "client_mb_s": "clients and server",
            "array_mb_s": "array",
            "member_write_mb_s": "members, written",
            "member_read_mb_s": "members, read",
        },
    ),
    "utilization": Group(
        "Utilization",
        "%",
        100.0,
        {
            "busiest_member": "busiest member",
            "server_cpu": "CPU of the server",
            "busiest_client_cpu": "CPU of the busiest client",
        },
    ),
    "memory": Group(
        "Page cache of the server", "MiB", 1 / (1 << 20), {"dirty": "dirty", "writeback": "under write-back"}
    ),
    "commits": Group("COMMIT calls", "1/s", 1.0, {"commits_s": "COMMIT"}),
}
"""The charts of a cell's monitors by name."""


def rows_of(cell: CellRecord, number: int, most: int) -> list[Row]:
    """Return a row for each interval of each repetition of a cell, with a column for each quantity in its unit.

    ``number``: the number of the cell; ``most``: greatest number of intervals of a repetition: of more, some are left
    out at equal distances.
    """
    rows: list[Row] = []
    for repeat in cell.repeats:
        every = max(1, -(-len(repeat.moments) // most))
        rows += [
            {"cell": number, "repetition": repeat.round, "at_s": short(moment.at_s), **quantities(moment)}
            for moment in repeat.moments[::every]
        ]
    return rows


def quantities(moment: Moment) -> dict[str, float | None]:
    """Return the quantities of one interval, in the units of their charts."""
    return {
        field: None if (value := getattr(moment, field)) is None else short(value * group.scale)
        for group in GROUPS.values()
        for field in group.fields
    }


def short(value: float) -> float:
    """Return a value with three significant digits, so that the page is small; the record has all digits."""
    return float(f"{value:.3g}")


def measured(cell: CellRecord) -> list[str]:
    """Return the names of the groups of which at least one quantity of a cell was measured."""
    moments = [moment for repeat in cell.repeats for moment in repeat.moments]
    return [
        name
        for name, group in GROUPS.items()
        if any(getattr(moment, field) is not None for moment in moments for field in group.fields)
    ]


@cache
def specification(name: str) -> Specification:
    """Return the specification of one group of quantities: a line for each quantity and repetition."""
    alt, group = library(), GROUPS[name]
    names = list(group.fields.values())
    chart = (
        alt.Chart(alt.NamedData("moments"))
        .transform_fold(list(group.fields), as_=["field", "value"])
        .transform_filter("datum.value != null")
        .transform_calculate(what=f"{json.dumps(group.fields)}[datum.field]")
        .mark_line(strokeWidth=1.8, point=alt.OverlayMarkDef(size=18))
        .encode(
            x=alt.X("at_s:Q", title="seconds", scale=alt.Scale(domainMin=0)),
            y=alt.Y("value:Q", title=group.unit, scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=4)),
            color=alt.Color("what:N", title=None, scale=alt.Scale(domain=names, range=list(SERIES[: len(names)]))),
            strokeDash=alt.StrokeDash(
                "what:N", title=None, scale=alt.Scale(domain=names, range=list(DASHES[: len(names)]))
            ),
            detail="repetition:N",
            tooltip=[
                alt.Tooltip("what:N"),
                alt.Tooltip("repetition:O"),
                alt.Tooltip("at_s:Q", title="seconds", format=",.3~r"),
                alt.Tooltip("value:Q", title=group.unit, format=",.4~r"),
            ],
        )
    )
    return finished(chart, 150)
