"""The report of a comparison of two sides: sentences, charts, and tables on a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.report.axis import Axis
from raidproof.report.cells import measure, say
from raidproof.report.terminal import verdict_text
from raidproof.report.words import UNKNOWN, count, number, plural, printable
from raidproof.verdict.comparison import BASE, NEW, Built, ComparisonRecord, Finding, Pair, SideCell, SideCut, Version

LEADING = ("kernel", "nfs-kernel-server", "nfs-common", "nfs-utils", "mdadm", "xfsprogs", "e2fsprogs", "fio")
"""Components that come first in a list of differences."""
IDLE = (
    "The two labs run side by side on one host. While one lab measures, the other is idle, but its machines still "
    "use memory and a little CPU time."
)
NO_STATISTICS = (
    "Ratios are of medians. If the ranges of the repetitions overlap, no difference is shown. If they do not overlap, "
    "the difference may still be due to chance: with n repetitions on each side the probability is n! n! / (2n)! in "
    "each direction."
)

WIDTH, LEFT, RIGHT = 960.0, 108.0, 930.0
TOP, ROW, BAR = 10.0, 66.0, 14.0
NAME_LINE = 15.0
"""Distance in pixels from the top of a row to the baseline of its name; the bars are below."""
STEP = 19.0
"""Distance in pixels between the bars of a row."""
MOST_VERSIONS = 6
"""Number of differing versions that the terminal shows; the page has all."""


@dataclass(frozen=True)
class Group:
    """The cells of one workload, whose values share an axis."""

    place: int
    workload: str
    measure: str
    unit: str
    pairs: Sequence[Pair]

    @property
    def title(self) -> str:
        """The workload and the measured quantity."""
        what = f"{self.measure} [{self.unit}]" if self.unit else self.measure
        return f"{self.workload}: {what}" if self.workload else what


def groups(comparison: ComparisonRecord) -> list[Group]:
    """Return the cells by workload, in order of appearance."""
    found: dict[str, list[Pair]] = {}
    for pair in comparison.pairs:
        found.setdefault(pair.workload, []).append(pair)
    grouped = []
    for place, (workload, pairs) in enumerate(found.items(), start=1):
        what, unit = measure(next((pair.unit for pair in pairs if pair.unit), ""))
        grouped.append(Group(place, workload, what, unit, pairs))
    return grouped


def spread(side: SideCell) -> str:
    """Return the least and the greatest value of the repetitions."""
    return UNKNOWN if side.spread is None else f"{number(side.spread[0])}-{number(side.spread[1])}"


def ratio(pair: Pair) -> str:
    """Return the ratio of new to base."""
    return UNKNOWN if pair.ratio is None else f"{pair.ratio:.3f}"


def remarks(pair: Pair) -> list[str]:
    """Return remarks on the values of a cell: limits, flags, failures, outcomes."""
    sides = ((BASE, pair.base), (NEW, pair.new))
    said = [pair.why] if pair.why and pair.finding not in {Finding.NONE, Finding.SINGLE} else []
    if pair.finding is not Finding.ONE_SIDED and "limited by" not in pair.why:
        said.append(limits(pair))
    said += [f"{name} {side.outcome.value}: {side.reason}" for name, side in sides if side.outcome.value != "PASS"
             and side.values]  # fmt: skip
    said += [
        f"{name}: {plural(side.failed, 'repetition')} failed" for name, side in sides if side.failed and side.values
    ]
    flags = {name: side.flag for name, side in sides if side.flag}
    if len(flags) == 2 and len(set(flags.values())) == 1:
        return [*said, f"! both: {flags[BASE]}"]
    return [*said, *(f"! {name}: {flag}" for name, flag in flags.items())]


def limits(pair: Pair) -> str:
    """Return what limited each side."""
    if pair.base.limit == pair.new.limit:
        return f"limit: {pair.base.limit}"
    return f"limit: base {pair.base.limit}, new {pair.new.limit}"


def lost(cut: SideCut | None) -> str:
    """Return the loss by a power cut."""
    return UNKNOWN if cut is None else cut.lost_words


def by_versions(versions: Sequence[Version]) -> list[tuple[str, str, str, str]]:
    """Return rows of component, base, new, and machines; machines with the same versions share a row."""
    machines: dict[tuple[str, str, str], list[str]] = {}
    for one in versions:
        machines.setdefault((one.what, one.base or "not there", one.new or "not there"), []).append(one.machine)
    rows = [(*what, ", ".join(on)) for what, on in machines.items()]
    return sorted(rows, key=lambda row: LEADING.index(row[0]) if row[0] in LEADING else len(LEADING))


def kernels(comparison: ComparisonRecord) -> list[Version]:
    """Return every machine's kernel, whether it differs or not."""
    return [one for one in comparison.versions if one.what == "kernel"]


def asked(comparison: ComparisonRecord) -> list[tuple[str, str, str]]:
    """Return each machine with its requested software on both sides."""
    new = comparison.new.asked
    return [(machine, words, new.get(machine, UNKNOWN)) for machine, words in comparison.base.asked.items()]


def cells_of(built: Built, comparison: ComparisonRecord) -> str:
    """Return the names of the cells with a different effective configuration."""
    return "all cells" if len(built.cells) == len(comparison.pairs) else "; ".join(built.cells)


def took(comparison: ComparisonRecord) -> str:
    """Return a sentence on the number and duration of the repetitions of both sides."""
    visits = sum(len(side.values) + side.failed for pair in comparison.pairs for side in (pair.base, pair.new))
    seconds = comparison.base.visits_s + comparison.new.visits_s
    return f"{plural(len(comparison.pairs), 'cell')}, {count(visits)} repetitions on both sides in {number(seconds)} s"


@dataclass(frozen=True)
class Bar:
    """One side of a row."""

    side: str
    words: str
    """The value as text beside the bar."""
    top: float
    end: float
    """Right end of the bar in pixels; at the axis if there is no value."""
    dots: list[float]
    hatched: bool
    """Whether the value does not reflect the requested hardware."""


@dataclass(frozen=True)
class Row:
    """The row of one cell, or of one configuration's power cut."""

    name: str
    said: str
    """The result of the comparison, as text."""
    strong: bool
    """Whether a difference is shown."""
    top: float
    bars: list[Bar]

    @property
    def words(self) -> str:
        """Text alternative for the row."""
        return f"{self.name}: {', '.join(f'{bar.side} {bar.words}' for bar in self.bars)}; {self.said}"


@dataclass(frozen=True)
class Bars:
    """A laid-out bar chart for the template."""

    id: str
    title: str
    x: Axis
    rows: list[Row]

    @property
    def bottom(self) -> float:
        """Bottom of the rows, in pixels."""
        return TOP + ROW * len(self.rows)

    @property
    def height(self) -> float:
        """Height of the chart, in pixels."""
        return self.bottom + 30

    @property
    def description(self) -> str:
        """Text alternative for the chart."""
        return "; ".join(row.words for row in self.rows)


def speed(group: Group) -> Bars:
    """Lay out the medians of a workload, in the plan's order."""
    values = [value for pair in group.pairs for side in (pair.base, pair.new) for value in side.values]
    x = Axis.from_zero(values, LEFT, RIGHT)
    rows = []
    for place, pair in enumerate(group.pairs):
        said = f"new/base {ratio(pair)}, {pair.finding}" if pair.ratio is not None else pair.finding.value
        top = TOP + ROW * place
        hatched = pair.finding is Finding.NOT_COMPARABLE
        bars = [
            bar(name, side, x, top + NAME_LINE + 6 + STEP * line, hatched=hatched)
            for line, (name, side) in enumerate(((BASE, pair.base), (NEW, pair.new)))
        ]
        rows.append(Row(pair.name, said, pair.finding in {Finding.HIGHER, Finding.LOWER}, top, bars))
    return Bars(f"speed-{group.place}", f"{group.title}, base and new", x, rows)


def bar(name: str, side: SideCell, x: Axis, top: float, *, hatched: bool) -> Bar:
    """Lay out one side of a cell."""
    words = "not measured" if side.median is None else number(side.median)
    return Bar(name, words, top, x.at(side.median or 0.0), [x.at(value) for value in side.values], hatched)


def loss(comparison: ComparisonRecord) -> Bars | None:
    """Lay out the acknowledged operations lost by power cuts; None if no side could be read."""
    known = [cut for cut in comparison.cuts if any(one and one.lost is not None for one in (cut.base, cut.new))]
    if not known:
        return None
    x = Axis.from_zero(_losses(comparison), LEFT, RIGHT)
    rows = []
    for place, cut in enumerate(known):
        top = TOP + ROW * place
        bars = []
        for line, (name, side) in enumerate(((BASE, cut.base), (NEW, cut.new))):
            value = side.lost if side else None
            words = count(value) if side is None or value is not None else side.lost_words
            bars.append(Bar(name, words, top + NAME_LINE + 6 + STEP * line, x.at(value or 0), [], hatched=False))
        ends = [one.outcome.value if one else "not made" for one in (cut.base, cut.new)]
        rows.append(Row(cut.title, f"base {ends[0]}, new {ends[1]}", strong=False, top=top, bars=bars))
    return Bars("loss", "Acknowledged operations lost at the power cut, base and new", x, rows)


def _losses(comparison: ComparisonRecord) -> Sequence[float]:
    return [side.lost or 0 for cut in comparison.cuts for side in (cut.base, cut.new) if side is not None]


def show_comparison(comparison: ComparisonRecord, console: Console, page: Path | None = None) -> None:
    """Print versions that differ, cells side by side, power cuts, the outcome, and the path of the page."""
    tell_versions(comparison, console)
    for group in groups(comparison):
        console.print()
        console.print(Text(printable(group.title), style="bold"))
        console.print(cell_table(group))
        for pair in group.pairs:
            if said := remarks(pair):
                say(console, f"{pair.name}: {'; '.join(said)}")
    if comparison.cuts:
        console.print()
        console.print(Text("Power cuts", style="bold"))
        console.print(cut_table(comparison))
    console.print()
    say(console, f"{took(comparison)}; medians (least-greatest), no statistics")
    end = Text("comparison: ").append_text(verdict_text(comparison.outcome))
    console.print(end.append(f": {printable(comparison.reason)}"), soft_wrap=not console.is_terminal)
    if page is not None:
        console.print(Text(f"report: {printable(str(page))}"), soft_wrap=True)


def tell_versions(comparison: ComparisonRecord, console: Console) -> None:
    """Print the effective versions that differ; if none does, the common kernels."""
    rows = by_versions(comparison.different)
    for what, base, new, machines in rows[:MOST_VERSIONS]:
        say(console, f"{what}: base {base}, new {new} ({machines})")
    if len(rows) > MOST_VERSIONS:
        say(console, f"and {len(rows) - MOST_VERSIONS:,} more packages differ; the report has them")
    if not rows:
        for what, base, _, machines in by_versions(kernels(comparison)):
            say(console, f"{what}: both {base} ({machines}); no package differs")
    for one in comparison.built:
        say(
            console,
            f"built otherwise: {one.field}: base {one.base}, new {one.new} ({cells_of(one, comparison)})",
        )


def cell_table(group: Group) -> Table:
    """Return the table of a workload's cells: medians and ranges of both sides, ratio, and result."""
    unit = f" [{group.unit}]" if group.unit else ""
    table = drawn("cell", f"base{unit}", f"new{unit}", "n", "new/base", "shows")
    for pair in group.pairs:
        n = f"{len(pair.base.values)}+{len(pair.new.values)}"
        table.add_row(*map(text, (pair.name, figure(pair.base), figure(pair.new), n, ratio(pair), pair.finding)))
    return table


def figure(side: SideCell) -> str:
    """Return median and range as text; a single repetition has no range."""
    return number(side.median) if len(side.values) < 2 else f"{number(side.median)} ({spread(side)})"


def cut_table(comparison: ComparisonRecord) -> Table:
    """Return the table of the losses by power cuts on both sides."""
    table = drawn("configuration", "lost, base", "lost, new", "acknowledged", "ended")
    for cut in comparison.cuts:
        told = " / ".join(count(side.acknowledged if side else None) for side in (cut.base, cut.new))
        ends = [side.outcome.value if side else "not made" for side in (cut.base, cut.new)]
        table.add_row(*map(text, (cut.title, lost(cut.base), lost(cut.new), told, " / ".join(ends))))
    return table


def drawn(first: str, *numbers: str) -> Table:
    """Return an empty table; the first and last columns are left-aligned, the others right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(Text(first), overflow="fold", ratio=None)
    for title in numbers[:-1]:
        table.add_column(Text(title), justify="right", overflow="fold")
    table.add_column(Text(numbers[-1]), overflow="fold")
    return table


def text(content: str) -> Text:
    """Return text with control characters escaped."""
    return Text(printable(str(content)), overflow="fold")
