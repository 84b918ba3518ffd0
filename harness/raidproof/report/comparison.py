"""The report of a comparison of two sides, on the terminal and as HTML: sentences, charts and tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raidproof.core.terminal import printable
from raidproof.record.comparison import (
    BASE,
    ERROR_RATE,
    NEW,
    Built,
    ComparisonRecord,
    CutPair,
    Method,
    Pair,
    PairFinding,
    SideCell,
    SideCut,
    Version,
)
from raidproof.record.outcome import Outcome
from raidproof.report.cells import measure
from raidproof.report.charts import Chart, Figures, sides
from raidproof.report.known import tell_known
from raidproof.report.matching import tell_matching
from raidproof.report.sensitivity import noticed_in_words
from raidproof.report.table import Cell, Field, Table, say, say_end
from raidproof.report.words import UNKNOWN, count, number, plural, span, titled
from raidproof.report.workers import spreads
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.verdict.change.host import host_in_words

LEADING = ("kernel", "nfs-kernel-server", "nfs-common", "nfs-utils", "mdadm")
"""Components at the head of a list of versions, in this order; then tools of file systems, fio, and the others."""
IDLE = (
    "The two labs run side by side on one host. While one lab measures, the other is idle, but its machines still "
    "use memory and a little CPU time."
)
BY_RANGES = (
    "An earlier version of raidproof made this comparison without a statistical test: two sides differ if the ranges "
    "of their repetitions do not overlap. Of equal sides, this calls 10 % of the cells with 3 repetitions different."
)
"""How a reader must interpret the findings of a record of schema version 1."""

MOST_VERSIONS = 6
"""Greatest number of differing versions that the terminal shows; the HTML report shows all."""


@dataclass(frozen=True)
class Group:
    """The cells of one workload on both sides; their values have a common axis."""

    place: int
    """Number of the workload from 1, in order of appearance."""
    workload: str
    """Title of the workload."""
    measure: str
    """The measured quantity, for example ``write``."""
    unit: str
    """Unit of the measured quantity, for example ``MB/s``."""
    pairs: Sequence[Pair]

    @property
    def title(self) -> str:
        """Title of the group: the workload, and the measured quantity with its unit."""
        what = titled(self.measure, self.unit)
        return f"{self.workload}: {what}" if self.workload else what


def groups(comparison: ComparisonRecord) -> list[Group]:
    """Return the cells of a comparison as a group for each workload, in order of appearance."""
    found: dict[str, list[Pair]] = {}
    for pair in comparison.pairs:
        found.setdefault(pair.workload, []).append(pair)
    grouped = []
    for place, (workload, pairs) in enumerate(found.items(), start=1):
        what, unit = measure(next((pair.unit for pair in pairs if pair.unit), ""))
        grouped.append(Group(place, workload, what, unit, pairs))
    return grouped


def how_decided(comparison: ComparisonRecord) -> str:
    """Return the sentences on how the findings of a comparison were made."""
    if comparison.method is Method.RANGES:
        return BY_RANGES
    looks = f", which {comparison.looks} looks at the values share" if comparison.looks > 1 else ""
    return (
        f"New/base: ratio of the geometric means with its {100 * comparison.confidence:.4g} % confidence interval. A "
        "cell is faster or slower if a permutation test shows it. The tests are corrected by Hochberg's method: equal "
        f"sides have such a cell in at most {100 * ERROR_RATE:g} % of comparisons{looks}. A cell is the same if the "
        f"interval lies within {100 * comparison.margin:g} % of 1."
    )


def ratio(pair: Pair) -> Cell:
    """Return the ratio of new and base with its confidence interval; without a test, the ratio of the medians."""
    change = pair.change
    if change is None:
        return Cell(UNKNOWN if pair.ratio is None else f"{pair.ratio:.3f}")
    limits = "(no interval)" if change.low is None or change.high is None else f"({change.low:.3f}-{change.high:.3f})"
    return Cell(f"{change.ratio:.3f}", aside=limits)


def remarks(pair: Pair) -> list[str]:
    """Return remarks on the values of a cell on both sides: limits, flags, failures, outcomes."""
    sides = ((BASE, pair.base), (NEW, pair.new))
    said = [one for one in (pair.why, needed(pair)) if one]
    if pair.finding is not PairFinding.ONE_SIDED and "limited by" not in pair.why:
        said.append(limits(pair))
    if pair.host is not None and pair.host.differs and host_in_words(pair.host) not in pair.why:
        said.append(host_in_words(pair.host))
    said += [f"{name} {side.outcome.value}: {side.reason}" for name, side in sides if side.outcome.value != "PASS"
             and side.values]  # fmt: skip
    said += [f"{name}: {varied}" for name, side in sides if (varied := spreads(side))]
    said += [
        f"{name}: the rig failed in {plural(side.failed, 'repetition')}"
        for name, side in sides
        if side.failed and side.values
    ]
    flags = {name: side.flag for name, side in sides if side.flag}
    if len(flags) == 2 and len(set(flags.values())) == 1:
        return [*said, f"! both: {flags[BASE]}"]
    return [*said, *(f"! {name}: {flag}" for name, flag in flags.items())]


def needed(pair: Pair) -> str:
    """Return a clause on the number of repetitions that would decide an undecided cell; empty for other cells."""
    if pair.finding is not PairFinding.UNDECIDED or pair.drift_unknown:
        return ""
    if pair.more is None:
        return "" if pair.change is None else "no affordable number of repetitions would decide it"
    return f"about {plural(pair.more, 'more repetition')} of each side would decide it"


def limits(pair: Pair) -> str:
    """Return a clause on the resources that limited a cell on both sides."""
    if pair.base.limit == pair.new.limit:
        return f"limit: {pair.base.limit}"
    return f"limit: base {pair.base.limit}, new {pair.new.limit}"


def by_versions(versions: Sequence[Version]) -> list[tuple[str, str, str, str]]:
    """Return rows of a component, its versions on base and new, and its machines.

    Machines with the same versions share a row.
    """
    machines: dict[tuple[str, str, str], list[str]] = {}
    for one in versions:
        machines.setdefault((one.what, one.base or "not installed", one.new or "not installed"), []).append(
            one.machine
        )
    rows = [(*what, ", ".join(on)) for what, on in machines.items()]
    tools = (package for _, kind in FILESYSTEMS.items() for package in kind.packages)
    order = (*LEADING, *tools, "fio")
    return sorted(rows, key=lambda row: order.index(row[0]) if row[0] in order else len(order))


def kernels(comparison: ComparisonRecord) -> list[Version]:
    """Return the kernel versions of all machines, equal and different ones."""
    return [one for one in comparison.versions if one.what == "kernel"]


def asked(comparison: ComparisonRecord) -> list[tuple[str, str, str]]:
    """Return the name of each machine, with its requested software on base and on new."""
    new = comparison.new.asked
    return [(machine, words, new.get(machine, UNKNOWN)) for machine, words in comparison.base.asked.items()]


def cells_of(built: Built, comparison: ComparisonRecord) -> str:
    """Return the names of the cells in which a field has different effective values, as text."""
    return "all cells" if len(built.cells) == len(comparison.pairs) else "; ".join(built.cells)


def took(comparison: ComparisonRecord) -> str:
    """Return a clause on the number and duration of the repetitions on both sides."""
    repetitions = sum(len(side.values) + side.failed for pair in comparison.pairs for side in (pair.base, pair.new))
    seconds = comparison.base.visits_s + comparison.new.visits_s
    cells = plural(len(comparison.pairs), "cell")
    return f"{cells}, {count(repetitions)} repetitions on both sides in {number(seconds)} s"


@dataclass
class ComparisonCharts:
    """The charts of a comparison's page."""

    figures: Figures
    ratios: Chart | None = None
    """The ratios of all cells; None if no cell has one."""
    values: dict[int, Chart] = field(default_factory=dict)
    """The values of both sides, by number of the workload."""
    losses: Chart | None = None
    """The losses by power cuts; None if the storage of none could be read."""


def charts_of_comparison(comparison: ComparisonRecord, groups: Sequence[Group]) -> ComparisonCharts:
    """Return all charts of a comparison's page."""
    charts = ComparisonCharts(Figures())
    drawn = charts.figures
    if rows := sides.ratio_rows(comparison):
        drawn.hold("ratios", rows)
        drawn.specifications["ratios"] = sides.ratios(comparison.margin)
        said = "; ".join(f"{row['name']}: {number(row['ratio'])}, {row['finding']}" for row in rows)
        charts.ratios = Chart("ratios", "ratios", "New divided by base, each cell with its interval", said)
    values = []
    for group in groups:
        mine = sides.value_rows(group.pairs, group.place)
        values += mine
        if mine:
            name = f"values-{group.place}"
            drawn.specifications[name] = sides.values(titled(group.measure, group.unit))
            said = "; ".join(
                f"{pair.name}: base {figure(pair.base).words}, new {figure(pair.new).words}" for pair in group.pairs
            )
            charts.values[group.place] = Chart(
                name, name, f"{group.title}, base and new", said, {"group": group.place}
            )
    drawn.hold("values", values)
    if lost := sides.loss_rows(comparison):
        drawn.hold("losses", lost)
        drawn.specifications["losses"] = sides.losses(lost)
        said = "; ".join(f"{row['name']}, {row['side']}: {count(row['lost'])} lost" for row in lost)
        charts.losses = Chart("losses", "losses", "Acknowledged operations lost at the power cut, base and new", said)
    return charts


def show_comparison(comparison: ComparisonRecord, console: Console, page: Path | None = None) -> None:
    """Print a comparison: versions that differ, cells, power cuts, the outcome, and the path of the HTML report."""
    tell_matching(comparison, console)
    tell_versions(comparison, console)
    for group in groups(comparison):
        console.print()
        console.print(Text(printable(group.title), style="bold"))
        console.print(cell_table(group).drawn(console.width))
        for pair in group.pairs:
            if said := remarks(pair):
                say(console, f"{pair.name}: {'; '.join(said)}")
    if comparison.cuts:
        console.print()
        console.print(Text("Power cuts", style="bold"))
        console.print(cut_table(comparison).drawn(console.width))
        for line in cut_changes(comparison):
            say(console, line)
    console.print()
    say(console, f"{took(comparison)}; values are medians (least-greatest). {how_decided(comparison)}")
    tell_known(comparison.known, console)
    say_end(console, "comparison", comparison.outcome, comparison.reason, page)


def tell_versions(comparison: ComparisonRecord, console: Console) -> None:
    """Print the versions and effective settings that differ between the sides; if no version differs, the kernels."""
    rows = by_versions(comparison.different)
    for what, base, new, machines in rows[:MOST_VERSIONS]:
        say(console, f"{what}: base {base}, new {new} ({machines})")
    if len(rows) > MOST_VERSIONS:
        say(
            console, f"the versions of {len(rows) - MOST_VERSIONS:,} other packages differ; the HTML report lists them"
        )
    if not rows:
        for what, base, _, machines in by_versions(kernels(comparison)):
            say(console, f"{what}: {base} on both sides ({machines}); no package differs")
    for one in comparison.built:
        sides = f"base {one.base}, new {one.new} ({cells_of(one, comparison)})"
        say(console, f"effective value of {one.field} differs: {sides}")


def cell_table(group: Group) -> Table[Pair]:
    """Return the table of a workload's cells: medians and ranges on both sides, ratio, and result."""
    return Table(
        [
            Field("cell", lambda pair: pair.name, names_row=True),
            Field("base", lambda pair: figure(pair.base), "number", group.unit),
            Field("new", lambda pair: figure(pair.new), "number", group.unit),
            Field("n", lambda pair: f"{len(pair.base.values)}+{len(pair.new.values)}", "number"),
            Field("new/base", ratio, "number"),
            Field("result", lambda pair: Cell(pair.finding.value, more=remarks(pair))),
        ],
        group.pairs,
        note="Base and new: median (least to greatest) of the repetitions. n: number of repetitions on base + on new. "
        "The sign - means: not known.",
    )


def limit_table(group: Group) -> Table[Pair]:
    """Return the table of the resources that limited each cell on each side."""

    def limit(side: SideCell) -> Cell:
        return Cell(side.limit, more=[side.cause])

    return Table(
        [
            Field("cell", lambda pair: pair.name, names_row=True),
            Field("base", lambda pair: limit(pair.base)),
            Field("new", lambda pair: limit(pair.new)),
        ],
        group.pairs,
    )


def figure(side: SideCell) -> Cell:
    """Return the cell of a table with the median and the range of one side; a single repetition has no range."""
    return Cell(number(side.median), aside=f"({span(side.spread)})" if len(side.values) > 1 else "")


def cut_table(comparison: ComparisonRecord) -> Table[CutPair]:
    """Return the table of the losses by power cuts on both sides."""
    return Table(
        [
            Field("configuration", lambda cut: cut.title, names_row=True),
            *cut_fields(BASE, lambda cut: cut.base),
            *cut_fields(NEW, lambda cut: cut.new),
        ],
        comparison.cuts,
        note="Lost: acknowledged operations that were missing after the power cut, of all acknowledged operations. "
        "One power cut of a configuration on each side shows whether promises were kept, but not whether one side "
        "loses less than the other. A test of shares of broken crash states compares the two recorded power cuts, and "
        "not all power cuts of these configurations.",
    )


def cut_fields(name: str, side_of: Callable[[CutPair], SideCut | None]) -> list[Field[CutPair]]:
    """Return the columns of the power cuts on one side; ``name``: the name of the side.

    ``side_of``: function that returns the power cut of this side.
    """

    def lost(cut: CutPair) -> Cell:
        side = side_of(cut)
        return Cell(side.lost_words, loss=bool(side.lost)) if side else Cell(UNKNOWN)

    def verdict(cut: CutPair) -> Cell:
        side = side_of(cut)
        if side is None:
            return Cell("no power cut")
        reason = [] if side.outcome is Outcome.PASS else [side.reason]
        return Cell(verdict=side.outcome, plain=bool(side.lost), more=reason)

    def noticed(cut: CutPair) -> str:
        side = side_of(cut)
        return noticed_in_words(side.noticed if side else None)

    def seconds(measured: Callable[[SideCut], float | None]) -> Callable[[CutPair], str]:
        return lambda cut: number(measured(side) if (side := side_of(cut)) else None)

    return [
        Field("lost", lost, "number", "ops", name, f"{name} lost"),
        Field("verdict", verdict, "word", "", name, f"{name} verdict"),
        Field("noticed", noticed, "number", "flushes", name, page_only=True),
        Field("work lost", seconds(lambda side: side.loss_window_s), "number", "s", name, page_only=True),
        Field("recovery", seconds(lambda side: side.recovery_s), "number", "s", name, page_only=True),
    ]


def cut_changes(comparison: ComparisonRecord) -> list[str]:
    """Return a line on each promise whose verdicts differ, and on each share of broken crash states."""
    lines = []
    for cut in comparison.cuts:
        for one in cut.promises:
            kind = f" ({one.kind})" if one.kind else ""
            change = f"newly {'broken' if one.newly_broken else 'kept'} by new"
            said = f"{one.base} on base, {one.new} on new: no change, as {one.doubt}" if one.doubt else change
            lines.append(f"{cut.title}: {one.checker}{kind}: {said}")
        if cut.rate is not None and cut.base is not None and cut.new is not None:
            base, new = (
                f"{count(side.broken_states)} of {count(side.states)} crash states" for side in (cut.base, cut.new)
            )
            said = "the shares differ" if cut.rate.differs else "the shares do not differ by more than chance explains"
            lines.append(f"{cut.title}: broken on base {base}, on new {new}: {said} (p = {cut.rate.corrected:.2g})")
    return lines


def version_table(versions: Sequence[Version]) -> Table[tuple[str, str, str, str]]:
    """Return the table of the components' versions on both sides; it emphasizes versions that differ."""
    return Table(
        [
            Field("component", lambda row: row[0], names_row=True),
            Field("base", lambda row: row[1]),
            Field("new", lambda row: row[2]),
            Field("machines", lambda row: row[3], "word"),
        ],
        by_versions(versions),
        marked=lambda row: row[1] != row[2],
    )
