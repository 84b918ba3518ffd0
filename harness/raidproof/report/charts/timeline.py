"""The chart of the operations that clients' acknowledgements count over time, before and after a fault."""

from collections.abc import Sequence

from raidproof.record.run import CrashTestRecord, Timeline
from raidproof.report.charts.drawing import (
    BLUE,
    CARD,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SOFT,
    finished,
    library,
    spread_scale,
)
from raidproof.report.charts.figure import Row, Specification
from raidproof.report.terminal import happening
from raidproof.report.words import number, plural

MOST_BARS = 200
"""Greatest number of bars; of more bins, several share a bar."""
STATUS = {
    "acknowledged and survived": BLUE,
    "acknowledged; some or all lost": ORANGE,
    "after the fault": GREEN,
}
"""Meaning and colour of the bars."""
MARKS = {
    "last durable point": (PURPLE, [6, 4]),
    "the fault": (INK, [1, 0]),
    "first acknowledgement after the fault": (GREEN, [2, 3]),
    "begin and end of solo operations": (SOFT, [1, 3]),
}
"""Meaning, colour and dashes of the vertical lines."""


def drawable(cycles: Sequence[CrashTestRecord]) -> list[tuple[int, CrashTestRecord, Timeline]]:
    """Return the crash tests with a timeline, with their numbers: those with a fault and an acknowledgement."""
    return [(place, one, one.timeline) for place, one in enumerate(cycles, start=1) if one.timeline is not None]


def time_range(cycles: Sequence[CrashTestRecord]) -> tuple[float, float]:
    """Return the begin and the end of the common time axis of all timelines, in seconds from the fault."""
    known = [one for _, _, one in drawable(cycles)]
    ends = [one.begin_s + len(one.acknowledged) * one.bin_ms / 1000 for one in known]
    return min([*(one.begin_s for one in known), -1.0]), max([*ends, 1.0])


def bar_rows(cycles: Sequence[CrashTestRecord]) -> list[Row]:
    """Return a row for each bar of each timeline that counts an acknowledgement."""
    low, high = time_range(cycles)
    rows: list[Row] = []
    for place, _, timeline in drawable(cycles):
        each = max(1, -(-round((high - low) * 1000 / timeline.bin_ms) // MOST_BARS))
        width = each * timeline.bin_ms / 1000
        rows += [
            {
                "test": place,
                "begin": begin,
                "end": begin + width,
                "count": count,
                "status": status(begin, width, timeline),
            }
            for begin, count in join(timeline, each)
            if count
        ]
    return rows


def mark_rows(cycles: Sequence[CrashTestRecord]) -> list[Row]:
    """Return a row for each vertical line of each timeline."""
    rows: list[Row] = []
    for place, cycle, timeline in drawable(cycles):
        at = [("the fault", 0.0), ("last durable point", timeline.last_durable_s)]
        at += [("first acknowledgement after the fault", timeline.served_again_s)]
        at += [("begin and end of solo operations", second) for second in solo_s(cycle) or ()]
        rows += [{"test": place, "at": second, "mark": mark} for mark, second in at if second is not None]
    return rows


def solo_s(cycle: CrashTestRecord) -> tuple[float, float] | None:
    """Return the begin and the end of the solo operations, in seconds from the fault; None without any."""
    seen, fault_at_ns = cycle.observed.solo, cycle.fault_at_ns
    if seen is None or seen.ended_ns is None or fault_at_ns is None:
        return None
    return (seen.begun_ns - fault_at_ns) / 1e9, (seen.ended_ns - fault_at_ns) / 1e9


def join(timeline: Timeline, each: int) -> list[tuple[float, int]]:
    """Return the begin (seconds) and the sum of each ``each`` bins; the fault, at 0 s, is always between two sums."""
    sums: dict[int, int] = {}
    first = round(timeline.begin_s * 1000 / timeline.bin_ms)
    for place, acknowledged in enumerate(timeline.acknowledged, start=first):
        sums[place // each] = sums.get(place // each, 0) + acknowledged
    return [(group * each * timeline.bin_ms / 1000, acknowledged) for group, acknowledged in sums.items()]


def status(begin_s: float, width_s: float, timeline: Timeline) -> str:
    """Return the meaning of a bar, a key of `STATUS`; a bar with the last durable point counts as lost in part."""
    survived, lost, after = STATUS
    last = timeline.last_durable_s
    if begin_s >= 0:
        return after
    return lost if last is not None and begin_s + width_s > last else survived


def describe(cycle: CrashTestRecord, timeline: Timeline) -> str:
    """Return the text alternative for a timeline."""
    before = sum(acknowledged for begin, acknowledged in join(timeline, 1) if begin < 0)
    seconds = f"{number(-timeline.begin_s)} s before the fault ({happening(cycle)})"
    parts = [f"{plural(before, 'operation')} acknowledged in the {seconds}"]
    if (solo := solo_s(cycle)) is not None:
        parts.append(f"one operation at a time from {number(-solo[0])} s to {number(-solo[1])} s before the fault")
    last, served = timeline.last_durable_s, timeline.served_again_s
    until = "" if last is None else f" that were acknowledged until {number(-last)} s before the fault"
    parts.append(f"all operations{until} survived")
    parts.append(
        "no acknowledgement after the fault"
        if served is None
        else f"first acknowledgement {number(served)} s after the fault"
    )
    return "; ".join(parts)


def specification(rows: Sequence[Row], limits: tuple[float, float]) -> Specification:
    """Return the specification of a timeline; all timelines of a page have the same axes.

    ``limits``: begin and end of the time axis, in seconds from the fault.
    """
    alt = library()
    counts = [row["count"] for row in rows]
    bars = alt.Chart(alt.NamedData("bars"))
    x = alt.X("begin:Q", title="seconds from the fault", scale=alt.Scale(domain=list(limits), nice=False))
    scale = {**spread_scale([float(count) for count in counts]), "domain": [0, max(counts, default=1)]}
    drawn = bars.mark_bar(minBandSize=1, stroke=CARD, strokeWidth=0.3).encode(
        x=x,
        x2="end:Q",
        y=alt.Y("count:Q", title="operations", scale=alt.Scale(**scale), axis=alt.Axis(tickCount=4)),
        y2=alt.value("height"),
        color=alt.Color("status:N", title=None, scale=alt.Scale(domain=list(STATUS), range=list(STATUS.values()))),
        tooltip=[
            alt.Tooltip("begin:Q", title="from [s]", format=".3~f"),
            alt.Tooltip("end:Q", title="to [s]", format=".3~f"),
            alt.Tooltip("count:Q", title="acknowledged", format=","),
            alt.Tooltip("status:N", title="meaning"),
        ],
    )
    lines = (
        alt.Chart(alt.NamedData("marks"))
        .mark_rule(strokeWidth=2)
        .encode(
            x="at:Q",
            stroke=alt.Stroke(
                "mark:N", title=None, scale=alt.Scale(domain=list(MARKS), range=[one[0] for one in MARKS.values()])
            ),
            strokeDash=alt.StrokeDash(
                "mark:N", legend=None, scale=alt.Scale(domain=list(MARKS), range=[one[1] for one in MARKS.values()])
            ),
            tooltip=[alt.Tooltip("mark:N"), alt.Tooltip("at:Q", title="seconds", format=".3~f")],
        )
    )
    return finished(alt.layer(drawn, lines).resolve_scale(color="independent", stroke="independent"), 170)
