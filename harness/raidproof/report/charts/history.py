"""The chart of a cell's history: the median of each run with its repetitions, the levels, and the changes."""

from functools import cache

from raidproof.report.charts.drawing import BLUE, INK, ORANGE, PURPLE, finished, library
from raidproof.report.charts.figure import Row, Specification
from raidproof.verdict.change.history import CellHistory, LevelChange


def percent(change: LevelChange) -> str:
    """Return the size of a change in percent, with the word slower or faster."""
    size = "" if change.ratio is None else f"{100 * (change.ratio - 1):+.1f} %, "
    return f"{size}{'slower' if change.slower else 'faster'}"


def run_rows(history: CellHistory, place: int) -> list[Row]:
    """Return a row for each run with a value; ``place``: number of the history on the page."""
    points = [point for point in history.points if point.median is not None]
    return [
        {
            "history": place,
            "order": order,
            "run": point.run,
            "date": f"{point.started:%Y-%m-%d %H:%M}",
            "kernel": point.kernel or "unknown",
            "median": point.median,
            "low": min(point.values),
            "high": max(point.values),
            "tested": "tested" if point.tested else "not tested",
        }
        for order, point in enumerate(points)
    ]


def level_rows(history: CellHistory, place: int) -> list[Row]:
    """Return a row for each level: the median of the runs between two changes, and the change that begins it."""
    if not history.changes:
        return []
    order = {row["run"]: row["order"] for row in run_rows(history, place)}
    tested = [point.run for point in history.tested]
    begins = [0, *(tested.index(change.run) for change in history.changes), len(tested)]
    levels = [history.changes[0].level_before, *(change.level for change in history.changes)]
    names = ["", *map(percent, history.changes)]
    return [
        {
            "history": place,
            "begin": order[tested[begins[at]]] - 0.5,
            "end": order[tested[begins[at + 1] - 1]] + 0.5,
            "level": level,
            "change": names[at],
        }
        for at, level in enumerate(levels)
    ]


@cache
def specification(unit: str) -> Specification:
    """Return the specification of a history; the vertical axis need not begin at 0, because points are no bars."""
    alt = library()
    runs, levels = alt.Chart(alt.NamedData("runs")), alt.Chart(alt.NamedData("levels"))
    scale = alt.Scale(zero=False, nice=True, padding=10)
    x = alt.X(
        "order:Q",
        title="runs in order",
        scale=alt.Scale(domainMin=-0.5, padding=8, nice=False),
        axis=alt.Axis(format="d", tickMinStep=1, labelExpr="datum.value + 1"),
    )
    y = alt.Y("median:Q", title=unit or "value", scale=scale)
    tooltip = [
        alt.Tooltip("run:N"),
        alt.Tooltip("date:N"),
        alt.Tooltip("kernel:N"),
        alt.Tooltip("median:Q", format=",.5~r"),
        alt.Tooltip("low:Q", title="least", format=",.5~r"),
        alt.Tooltip("high:Q", title="greatest", format=",.5~r"),
        alt.Tooltip("tested:N", title="for changes"),
    ]
    ranges = runs.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    words = ["tested", "not tested"]
    points = runs.mark_point(size=70, color=BLUE, opacity=1).encode(
        x=x,
        y=y,
        shape=alt.Shape("tested:N", title=None, scale=alt.Scale(domain=words, range=["circle", "square"])),
        fill=alt.Fill("tested:N", title=None, scale=alt.Scale(domain=words, range=[BLUE, "transparent"])),
        tooltip=tooltip,
    )
    lines = levels.mark_rule(strokeWidth=3, color=PURPLE).encode(x=alt.X("begin:Q"), x2="end:Q", y=alt.Y("level:Q"))
    began = levels.transform_filter("datum.change != ''")
    marks = began.mark_rule(strokeWidth=2, strokeDash=[6, 4], color=ORANGE).encode(x=alt.X("begin:Q"))
    texts = began.mark_text(align="left", dx=5, baseline="top", fontWeight="bold", color=INK).encode(
        x=alt.X("begin:Q"), y=alt.value(0), text="change:N"
    )
    return finished(alt.layer(marks, ranges, lines, points, texts), 260)
