"""The chart of pairs that a storm covered: how many crash tests had two faults, or a fault in a phase."""

from collections import Counter
from collections.abc import Sequence

from raidproof.report.charts.drawing import CARD, finished, library
from raidproof.report.charts.figure import Row, Specification


def rows_of(found: Counter[tuple[str, str]], down: Sequence[str], across: Sequence[str]) -> list[Row]:
    """Return a row for each pair of names, also for one that did not occur."""
    return [{"down": one, "across": other, "count": found[one, other]} for one in down for other in across]


def specification(
    data: str, down: Sequence[str], across: Sequence[str], titles: tuple[str, str], most: int
) -> Specification:
    """Return the specification of the numbers of pairs; ``titles``: of the two axes; ``most``: the greatest number."""
    first, second = titles
    alt = library()
    base = alt.Chart(alt.NamedData(data)).encode(
        x=alt.X(
            "across:N",
            title=second,
            sort=list(across),
            axis=alt.Axis(labelAngle=-40, orient="top", labelLimit=130, labelOverlap=False, ticks=False, domain=False),
        ),
        y=alt.Y("down:N", title=first, sort=list(down), axis=alt.Axis(labelLimit=140, ticks=False, domain=False)),
        tooltip=[
            alt.Tooltip("down:N", title=first),
            alt.Tooltip("across:N", title=second),
            alt.Tooltip("count:Q", title="crash tests"),
        ],
    )
    tiles = base.mark_rect(stroke=CARD, strokeWidth=2).encode(
        color=alt.Color(
            "count:Q", title="crash tests", scale=alt.Scale(scheme="cividis", domain=[0, max(1, most)]), legend=None
        )
    )
    ink = {"condition": [{"test": f"datum.count > {0.55 * most}", "value": "black"}], "value": "white"}
    words = base.mark_text(fontSize=11).encode(text=alt.Text("count:Q"), color=ink)
    return finished(alt.layer(tiles, words), {"step": 24})
