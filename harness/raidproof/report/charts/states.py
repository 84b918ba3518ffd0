"""The charts of an exploration: the acknowledgements over time, and the judged crash states below them."""

from collections import Counter

from raidproof.record.exploration import ExplorationRecord, StateMark
from raidproof.report.charts.drawing import BLUE, ORANGE, SKY, finished, library, marks_by
from raidproof.report.charts.figure import Row, Specification
from raidproof.report.words import number, plural

BINS = 160
"""Number of intervals of the time axis, each with a bar of its acknowledgements."""
LEAST_SPAN_S = 0.001
"""Least length of the time axis in seconds."""
ENDS = {
    "every promise held": (BLUE, "circle"),
    "held: same contents as a checked state": (SKY, "triangle-up"),
    "a promise is broken": (ORANGE, "cross"),
}
"""Results of states, with colour and shape."""


def limits(record: ExplorationRecord) -> tuple[float, float]:
    """Return the begin and the end of the time axis in seconds since the write log began."""
    low, high = record.span_s
    return low, max(high, low + LEAST_SPAN_S)


def acknowledged_rows(record: ExplorationRecord) -> list[Row]:
    """Return a row for each interval of time with acknowledgements."""
    low, high = limits(record)
    counted = Counter(int((at - low) / (high - low) * BINS) for at in record.acknowledged_s if low <= at < high)
    width = (high - low) / BINS
    return [
        {"begin": low + place * width, "end": low + (place + 1) * width, "count": count}
        for place, count in sorted(counted.items())
    ]


def state_rows(record: ExplorationRecord) -> list[Row]:
    """Return a row for each judged state."""
    return [{"policy": one.policy, "at": one.at_s, "name": one.name, "end": end_of(one)} for one in record.marks]


def end_of(one: StateMark) -> str:
    """Return the result of a state, a key of `ENDS`."""
    held, alike, broken = ENDS
    if one.broken:
        return broken
    return held if one.checked else alike


def describe(record: ExplorationRecord) -> str:
    """Return the text alternative for both charts."""
    acknowledged = plural(len(record.acknowledged_s), "operation")
    return (
        f"{acknowledged} acknowledged; {plural(record.judged, 'crash state')} with cuts between "
        f"{number(record.span_s[0])} s and {number(record.span_s[1])} s judged, {record.broken:,} broken"
    )


def acknowledged(record: ExplorationRecord) -> Specification:
    """Return the specification of the acknowledgements over time."""
    alt = library()
    scale = alt.Scale(domain=list(limits(record)), nice=False)
    chart = (
        alt.Chart(alt.NamedData("acknowledged"))
        .mark_bar(color=BLUE, minBandSize=1)
        .encode(
            x=alt.X("begin:Q", title=None, scale=scale, axis=alt.Axis(labels=False)),
            x2="end:Q",
            y=alt.Y("count:Q", title="acknowledged", axis=alt.Axis(tickCount=3, minExtent=70)),
            tooltip=[alt.Tooltip("begin:Q", title="from [s]", format=".4~f"), alt.Tooltip("count:Q", format=",")],
        )
    )
    return finished(chart, 110)


def judged(record: ExplorationRecord) -> Specification:
    """Return the specification of the states, a lane for each policy of the disks' caches."""
    alt = library()
    *_, broken = ENDS
    colour, shape = marks_by("end", ENDS)
    chart = (
        alt.Chart(alt.NamedData("states"))
        .mark_point(size=34, opacity=0.9, strokeWidth=1.6)
        .encode(
            x=alt.X(
                "at:Q",
                title="power cut [s since the write log began]",
                scale=alt.Scale(domain=list(limits(record)), nice=False),
            ),
            y=alt.Y(
                "policy:N",
                title=None,
                scale=alt.Scale(domain=list(record.policies)),
                axis=alt.Axis(grid=True, domain=False, ticks=False, minExtent=70, labelLimit=90),
            ),
            color=colour,
            shape=shape,
            order=alt.Order("broken:Q"),
            tooltip=[
                alt.Tooltip("policy:N"),
                alt.Tooltip("at:Q", title="cut [s]", format=".6~f"),
                alt.Tooltip("name:N", title="state"),
                alt.Tooltip("end:N", title="result"),
            ],
        )
        .transform_calculate(broken=f"datum.end == {broken!r} ? 1 : 0")
    )
    return finished(chart, {"step": 26})
