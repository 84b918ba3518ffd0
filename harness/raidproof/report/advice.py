"""The answer of `raidproof advise` on the terminal and as a page: front, recommended configuration, costs, lines."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from raidproof.record.advice import (
    AdviceRecord,
    AdvisedLine,
    Configuration,
    Drop,
    FreeAxisRecord,
    LeftOut,
    PickedBy,
    RatioRecord,
    RungRecord,
)
from raidproof.record.results.store import RunStore
from raidproof.report import words
from raidproof.report.charts import Figures, drawing, front
from raidproof.report.html import templates
from raidproof.report.table import Cell, Field, Table, say, say_end
from raidproof.storage.deployment import COMMAND, Work
from raidproof.verdict.cell import SafetyWord

PAGE = "advice.html"
DESTROYS = "destroys all data on the named devices: run it for a new array only, after a backup"
LIMITS = (
    "SAFE means that every acknowledged operation survived one power cut of this configuration. A cut at another "
    "instant may lose data; `raidproof explore` checks further crash states.",
    "The speeds are those of the machines and disks of this run, which the plan describes. Another workload may have "
    "another best configuration.",
    "The power of a configuration without one of the changes is cut only if it is about as fast as the recommended "
    "one.",
    "The fastest configuration was chosen from many noisy values, so that its values in the search are too high by "
    "chance. The intervals therefore use only the rounds of the last comparison; without two of them there is no "
    "interval. A change is recommended only if its interval against the current configuration is wholly above 1; the "
    "95 % holds for all configurations of the last comparison at once. A smaller gain may exist and not be shown.",
)
"""What the answer cannot prove."""


def write_advice(record: AdviceRecord, folder: Path) -> Path:
    """Write the page of the answer atomically into the directory of the run; return its path."""
    return RunStore(folder).write_text(PAGE, render(record))


def render(record: AdviceRecord) -> str:
    """Return the page of the answer."""
    page = templates().get_template("advice.html.j2")
    tables = {
        "changes": change_table(record),
        "front": front_table(record),
        "left_out": left_out_table(record),
        "axes": axis_table(record),
        "rungs": rung_table(record),
    }
    figures = Figures()
    chart = front.chart_of(record, figures)
    return page.render(
        chart=chart,
        caption="" if chart is None else front.caption(figures),
        figures=figures,
        script=None if chart is None else drawing.script(),
        advice=record,
        tables=tables,
        groups=line_groups(record),
        destroys=DESTROYS,
        limits=LIMITS,
        model=list(model(record)),
    )


def interval(ratio: RatioRecord | None) -> str:
    """Return a ratio with its 95 % interval as text: ``1.35 (1.30-1.41, n=4)``."""
    if ratio is None:
        return words.UNKNOWN
    limits = "no interval" if ratio.low is None or ratio.high is None else f"{ratio.low:.2f}-{ratio.high:.2f}"
    return f"{ratio.ratio:.2f} ({limits}, n={ratio.rounds})"


def named(changes: dict[str, str]) -> str:
    """Return changes as text; the current configuration has none."""
    return " ".join(f"{name}={value}" for name, value in changes.items()) or "none (current)"


def front_table(record: AdviceRecord) -> Table[Configuration]:
    """Return the table of the configurations whose power was cut, the fastest first."""
    fields: list[Field[Configuration]] = [
        Field("changes", lambda one: named(one.changes), names_row=True),
        Field("speed", lambda one: f"{words.number(one.median)}", "number", unit=record.unit),
        Field("n", lambda one: str(one.repetitions), "number"),
        Field("against current", lambda one: interval(one.against_current), "word"),
        Field("p99", lambda one: words.number(one.latency_ms), "number", unit="ms"),
        Field("lost", _lost, "word"),
        Field("work lost", lambda one: words.number(one.lost_s), "number", unit="s"),
        Field("safety", lambda one: Cell(verdict=SafetyWord(one.safety)), "word"),
        Field("front", lambda one: "yes" if one.on_front else "no", "word"),
        Field("not recommended because", lambda one: one.why_not or ""),
    ]
    if not any(one.latency_ms is not None for one in record.configurations):
        fields = [field for field in fields if field.title != "p99"]
    return Table(fields, record.configurations, marked=lambda one: one.name == record.recommended)


def _lost(one: Configuration) -> str:
    return words.UNKNOWN if one.lost is None else f"{one.lost:,} of {words.count(one.acknowledged)}"


def change_table(record: AdviceRecord) -> Table[FreeAxisRecord]:
    """Return the table of the recommended changes: value, current value, work on the server, side effect."""
    changes = {} if record.chosen is None else record.chosen.changes
    rows = [axis for axis in record.axes if axis.name in changes]
    return Table(
        [
            Field("setting", lambda one: one.name, names_row=True),
            Field("current", current),
            Field("recommended", lambda one: changes[one.name]),
            Field("takes", lambda one: one.work.value),
            Field("remark", lambda one: one.note),
        ],
        rows,
    )


def left_out_table(record: AdviceRecord) -> Table[LeftOut]:
    """Return the table of the cost of leaving out each change."""
    return Table(
        [
            Field("without", lambda one: f"{one.axis}={one.value}", names_row=True),
            Field("that is, with", lambda one: f"{one.axis}={one.current}"),
            Field("speed that remains", lambda one: interval(one.ratio), "word"),
            Field("meaning", meaning),
        ],
        record.left_out,
    )


def meaning(one: LeftOut) -> str:
    """Return what the ratio of a configuration without a change shows."""
    ratio = one.ratio
    if ratio is None:
        return "not measured: the time did not suffice"
    if ratio.low is None or ratio.high is None:
        return "too few rounds for an interval"
    if ratio.high < 1:
        return f"slower without it, by {1 - ratio.high:.0%} to {1 - ratio.low:.0%}"
    if ratio.low > 1:
        return f"faster without it, by {ratio.low - 1:.0%} to {ratio.high - 1:.0%}"
    return "no effect is shown"


def current(axis: FreeAxisRecord) -> str:
    """Return the current value of a setting, and whether it is assumed, as text."""
    return axis.values[0] + (" (assumed)" if axis.assumed else "")


def axis_table(record: AdviceRecord) -> Table[FreeAxisRecord]:
    """Return the table of the varied settings."""
    return Table(
        [
            Field("setting", lambda one: one.name, names_row=True),
            Field("current", current),
            Field("other values", lambda one: ", ".join(one.values[1:])),
            Field("a change takes", lambda one: one.work.value),
        ],
        record.axes,
    )


def rung_table(record: AdviceRecord) -> Table[RungRecord]:
    """Return the table of the rounds: how many configurations, why, and which were dropped before."""
    return Table(
        [
            Field("round", lambda one: str(one.round), "number", names_row=True),
            Field("configurations", lambda one: str(len(one.picked)), "number"),
            Field("repetitions left", lambda one: words.count(one.left), "number"),
            Field("chosen by", _by),
            Field("dropped before", _dropped),
            Field("took", lambda one: words.number(one.seconds), "number", unit="s"),
        ],
        record.rungs,
    )


def _by(rung: RungRecord) -> str:
    counts = {why: sum(one.by is why for one in rung.picked) for why in PickedBy}
    said = ", ".join(f"{why.value}: {number}" for why, number in counts.items() if number)
    return f"last comparison; {said}" if rung.final else said


def _dropped(rung: RungRecord) -> str:
    counts = {why: sum(one.why is why for one in rung.dropped) for why in Drop}
    return ", ".join(f"{why.value}: {number}" for why, number in counts.items() if number)


def line_groups(record: AdviceRecord) -> list[tuple[str, str, list[AdvisedLine]]]:
    """Return the lines that take work by machine and file, in the order in which they are applied."""
    groups: dict[tuple[str, str], list[AdvisedLine]] = {}
    for one in record.lines:
        if one.line.work is not Work.NONE:
            groups.setdefault((one.line.machine, one.line.place), []).append(one)
    return [(machine, place, those) for (machine, place), those in groups.items()]


def model(record: AdviceRecord) -> Iterator[str]:
    """Yield sentences about how well the model of the hardware ordered the configurations."""
    found = record.model
    if found is None or not found.expected:
        yield "No formula of the model applies to this hardware and workload: the first round was chosen at random."
        return
    yield (
        f"The model expects a speed for {found.expected:,} of {record.candidates:,} candidates. Rank correlation of "
        f"expected and measured speed: {_correlation(found.correlation)} over {found.compared} configurations; "
        f"{_correlation(found.correlation_random)} over the {found.compared_random} that were chosen at random."
    )


def _correlation(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.2f}"


def show_advice(record: AdviceRecord, console: Console, page: Path | None = None) -> None:
    """Print the answer: the front, the recommended changes, the cost of each, and the lines."""
    if record.configurations:
        console.print(front_table(record).drawn(console.width))
    if record.chosen is not None and record.chosen.changes:
        say(console, "")
        console.print(change_table(record).drawn(console.width))
        say(console, "")
        console.print(left_out_table(record).drawn(console.width))
        for sentence in line_text(record):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for sentence in model(record):
        say(console, sentence)
    measured = sum(len(rung.picked) for rung in record.rungs)
    tried = len({name for rung in record.rungs for name in rung.names})
    say(console, f"{tried:,} of {record.candidates:,} candidates in {measured:,} repetitions; {record.spent_s:.0f} s")
    say_end(console, "advice", record.outcome, record.reason, page)


def line_text(record: AdviceRecord) -> Iterator[str]:
    """Yield the lines of the recommended configuration for a terminal, with the run that supports them."""
    chosen = record.chosen
    if chosen is None:
        return
    yield ""
    yield f"# supported by run {record.run}, cell {chosen.name}: {words.plural(chosen.repetitions, 'repetition')}, "
    yield f"# power cut {chosen.cycle}; replace every name that begins with YOUR"
    for machine, place, lines in line_groups(record):
        yield f"# {machine}: {'commands' if place == COMMAND else place}"
        for one in lines:
            if one.line.work.destroys:
                yield f"# WARNING: {DESTROYS}"
            yield f"{one.line.text}    # takes: {one.line.work.value}" if place == COMMAND else one.line.text


def describe(
    axes: Sequence[FreeAxisRecord], fixed: dict[str, str], left: Sequence[str], candidates: int
) -> Iterator[str]:
    """Yield lines about what is varied, before the search begins."""
    held = [*(f"{name}={value}" for name, value in fixed.items()), *(f"{one.name}={current(one)}" for one in axes)]
    yield f"current configuration: {' '.join(held)}"
    for one in axes:
        yield f"varied: {one.name}: {', '.join(one.values)}; a change takes: {one.work.value}"
    yield f"candidates: {candidates:,}"
    if left:
        yield f"not varied, as there would be too many candidates: {', '.join(left)}; --vary names the axes to vary"
