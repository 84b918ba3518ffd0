"""The chart of the life of one lost block: its steps as a sequence over the layers, on a common time axis."""

from collections.abc import Iterator
from functools import cache

from raidproof.record.block_life import BlockLife, DiskRequest
from raidproof.record.run import CrashTestRecord
from raidproof.report.charts.drawing import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, SOFT, finished, library
from raidproof.report.charts.figure import Row, Specification
from raidproof.report.words import number, plural

LAYERS = ("client", "network", "server", "disk request", "disk flush", "power")
"""The layers, from the application to the power supply."""
STEPS = {
    "client's write": BLUE,
    "server's reply": GREEN,
    "client's report of the end": SKY,
    "disk request": PURPLE,
    "flush": GREEN,
    "lying flush": ORANGE,
    "cut": INK,
}
"""Steps and their colours."""
NOT_OBSERVED = "not observed"


def lives(cycles: list[CrashTestRecord]) -> Iterator[tuple[int, int, BlockLife]]:
    """Yield the number of the crash test, the number of the block in it, and the life of each lost block."""
    for place, cycle in enumerate(cycles, start=1):
        for count, life in enumerate(cycle.lives or (), start=1):
            yield place, count, life


def title(life: BlockLife) -> str:
    """Return the title of a life."""
    return f"{life.path}, block {life.block}, generation {life.generation} ({life.kind} on {life.client})"


def rows_of(test: int, block: int, life: BlockLife) -> list[Row]:
    """Return a row for each observed step, in the order of time, and for each layer without an observation.

    ``test``, ``block``: the numbers of the crash test and of the block in it.
    """
    known = sorted(steps(life), key=lambda one: one[2])
    shared = {"test": test, "block": block}
    rows: list[Row] = [
        {**shared, "layer": layer, "step": step, "at": at, "end": at if end is None else end, "note": note}
        for layer, step, at, end, note in known
    ]
    seen = {row["layer"] for row in rows}
    rows += [
        {**shared, "layer": layer, "step": NOT_OBSERVED, "at": None, "end": None, "note": unknown(layer, life)}
        for layer in LAYERS
        if layer not in seen
    ]
    return rows


def steps(life: BlockLife) -> Iterator[tuple[str, str, float, float | None, str]]:
    """Yield layer, step, begin, end (None if it is one instant) and note of each observed step of a life."""
    acknowledged = life.replied_s if life.replied_s is not None else life.reported_s
    yield "client", "client's write", life.written_s, acknowledged, f"{life.kind} of generation {life.generation}"
    if life.replied_s is not None:
        yield "network", "server's reply", life.replied_s, None, "the acknowledgement on the wire"
    if life.reported_s is not None:
        yield "client", "client's report of the end", life.reported_s, None, "the operation returned"
    for one in life.requests or ():
        yield "disk request", "disk request", one.begun_s, one.ended_s or 0.0, request_note(one)
        if one.flush_begun_s is not None:
            lied = "lying flush" if one.flush_lied else "flush"
            yield "disk flush", lied, one.flush_begun_s, one.flush_ended_s, f"first flush of {one.member} afterwards"
    yield "power", "cut", 0.0, None, f"after it, {life.found}"


def request_note(one: DiskRequest) -> str:
    """Return a clause on a disk request."""
    where = f"request {one.request:,} to {one.member}, sector {one.sector:,}"
    if one.ended_s is None:
        return f"{where}: in flight at the cut"
    if one.forced:
        return f"{where}: FUA, durable at its reply"
    return f"{where}: " + ("in the volatile cache at the cut" if one.flush_begun_s is None else "flushed later")


def unknown(layer: str, life: BlockLife) -> str:
    """Return the reason why a layer has no step."""
    if layer == "network":
        return "the replies were not captured"
    if layer == "server":
        return "not observed: the harness runs no program on the server during the test"
    if layer == "disk request":
        return (
            "no write log was kept" if life.requests is None else "no request carried this generation before the cut"
        )
    if layer == "disk flush":
        return "no write log was kept" if life.requests is None else "no flush followed a request of this block"
    return NOT_OBSERVED


def describe(life: BlockLife) -> str:
    """Return the life as a sentence, with times before the cut."""
    acknowledged = life.replied_s if life.replied_s is not None else life.reported_s
    said = [f"the client began the write {before(life.written_s)}"]
    if acknowledged is not None:
        said.append(f"the write was acknowledged {before(acknowledged)}")
    if life.requests is None:
        said.append("the disk requests are unknown, because no write log was kept")
    elif not life.requests:
        said.append("no disk request carried the block before the cut: it was only in the server's memory")
    else:
        first = life.requests[0]
        said.append(
            f"{plural(len(life.requests), 'disk request')} carried it, the first to {first.member} "
            f"{before(first.begun_s)}"
        )
        safe = [one for one in life.requests if one.forced or (one.flush_ended_s is not None and not one.flush_lied)]
        lied = [one for one in life.requests if one.flush_lied]
        if lied:
            said.append(f"{lied[0].member} acknowledged a flush that it did not carry out")
        elif not safe:
            said.append("no flush of that disk completed before the cut")
        else:
            said.append(
                "a flush of that disk completed before the cut, so that metadata of the file system is missing"
            )
    return f"{'; '.join(said)}; after the cut {life.found}"


def before(second: float) -> str:
    """Return a time from the cut as text."""
    return f"{number(abs(1000 * second))} ms {'before' if second <= 0 else 'after'} the cut"


@cache
def specification() -> Specification:
    """Return the specification of the chart."""
    alt = library()
    seen = alt.Chart(alt.NamedData("lives")).transform_filter("datum.at != null")
    seen = seen.transform_calculate(at_ms="1000 * datum.at", end_ms="1000 * datum.end")
    layers = alt.Y(
        "layer:N",
        title=None,
        scale=alt.Scale(domain=list(LAYERS)),
        axis=alt.Axis(grid=True, domain=False, ticks=False),
    )
    x = alt.X("at_ms:Q", title="ms from the cut", scale=alt.Scale(zero=False, nice=True))
    colours = alt.Color("step:N", title=None, scale=alt.Scale(domain=list(STEPS), range=list(STEPS.values())))
    tooltip = [
        alt.Tooltip("layer:N"),
        alt.Tooltip("step:N"),
        alt.Tooltip("at_ms:Q", title="from [ms]", format=",.2~f"),
        alt.Tooltip("end_ms:Q", title="to [ms]", format=",.2~f"),
        alt.Tooltip("note:N"),
    ]
    path = (
        seen.transform_filter("datum.step != 'cut'")
        .mark_line(color=SOFT, strokeWidth=1, strokeDash=[2, 2])
        .encode(x=x, y=layers, order=alt.Order("at_ms:Q"))
    )
    spans = seen.mark_rule(strokeWidth=6, strokeCap="butt").encode(x=x, x2="end_ms:Q", y=layers, color=colours)
    shapes = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "stroke"]
    points = seen.mark_point(filled=True, size=80, opacity=1).encode(
        x=x,
        y=layers,
        color=colours,
        shape=alt.Shape("step:N", title=None, scale=alt.Scale(domain=list(STEPS), range=shapes)),
        tooltip=tooltip,
    )
    cut = seen.transform_filter("datum.step == 'cut'").mark_rule(color=INK, strokeWidth=2).encode(x=x)
    gaps = alt.Chart(alt.NamedData("lives")).transform_filter("datum.at == null")
    texts = gaps.mark_text(align="left", dx=6, color=SOFT, fontStyle="italic", limit=alt.ExprRef("width - 10")).encode(
        x=alt.value(0), y=layers, text="note:N"
    )
    return finished(alt.layer(path, spans, cut, points, texts), 190)
