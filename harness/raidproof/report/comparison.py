"""The comparison of two sides: sentences, chart, and tables on a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.environment import Built
from raidproof.report.axis import Axis
from raidproof.report.cells import measure, say
from raidproof.report.terminal import verdict_text
from raidproof.report.words import UNKNOWN, count, number, plural, printable
from raidproof.verdict.comparison import BASE, NEW, ComparisonRecord, Finding, Pair, SideCell, SideCut, Version

LEADING = ("kernel", "nfs-kernel-server", "nfs-common", "nfs-utils", "mdadm", "xfsprogs", "e2fsprogs", "fio")
"""What is named first where machines differ; the rest is there for the dynamic linker and the like."""
IDLE = (
    "The two labs stand side by side on one host. While one measures, the other stands idle: its machines still "
    "hold their memory and take a little CPU time."
)
NO_STATISTICS = (
    "Ratios are of medians. Where the ranges of the visits overlap, no difference is shown; where they do "
    "not, chance may still have done it: with n visits on each side that happens n! n! / (2n)! of the time in each "
    "direction."
)

WIDTH, LEFT, RIGHT = 960.0, 108.0, 930.0
TOP, ROW, BAR = 10.0, 66.0, 14.0
NAME_LINE = 15.0
"""From the top of a row to the baseline of its name; the bars lie below."""
STEP = 19.0
"""From one bar of a row to the next."""
MOST_VERSIONS = 6
"""Differing versions that are told; the page has all."""


@dataclass(frozen=True)
class Group:
    """The cells of one workload: what they measure can be drawn on one axis."""

    place: int
    workload: str
    measure: str
    unit: str
    pairs: Sequence[Pair]

    @property
    def title(self) -> str:
        """What is measured, and the workload."""
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
    """Return the least and the greatest of the visits."""
    return UNKNOWN if side.spread is None else f"{number(side.spread[0])}-{number(side.spread[1])}"


def ratio(pair: Pair) -> str:
    """Return new over base."""
    return UNKNOWN if pair.ratio is None else f"{pair.ratio:.3f}"


def remarks(pair: Pair) -> list[str]:
    """Say what has to stand beside the figures of a cell: limits, flags, failures, outcomes."""
    sides = ((BASE, pair.base), (NEW, pair.new))
    said = [pair.why] if pair.why and pair.finding not in {Finding.NONE, Finding.SINGLE} else []
    if pair.finding is not Finding.ONE_SIDED and "limited by" not in pair.why:
        said.append(limits(pair))
    said += [f"{name} {side.outcome.value}: {side.reason}" for name, side in sides if side.outcome.value != "PASS"
             and side.values]  # fmt: skip
    said += [f"{name}: {plural(side.failed, 'visit')} failed" for name, side in sides if side.failed and side.values]
    flags = {name: side.flag for name, side in sides if side.flag}
    if len(flags) == 2 and len(set(flags.values())) == 1:
        return [*said, f"! both: {flags[BASE]}"]
    return [*said, *(f"! {name}: {flag}" for name, flag in flags.items())]


def limits(pair: Pair) -> str:
    """Say what limited each side."""
    if pair.base.limit == pair.new.limit:
        return f"limit: {pair.base.limit}"
    return f"limit: base {pair.base.limit}, new {pair.new.limit}"


def lost(cut: SideCut | None) -> str:
    """Say what a power cut cost."""
    return UNKNOWN if cut is None else cut.lost_words


def by_versions(versions: Sequence[Version]) -> list[tuple[str, str, str, str]]:
    """Return what differs, base, new, and on which machines; machines with the same versions share a line."""
    machines: dict[tuple[str, str, str], list[str]] = {}
    for one in versions:
        machines.setdefault((one.what, one.base or "not there", one.new or "not there"), []).append(one.machine)
    rows = [(*what, ", ".join(on)) for what, on in machines.items()]
    return sorted(rows, key=lambda row: LEADING.index(row[0]) if row[0] in LEADING else len(LEADING))


def kernels(comparison: ComparisonRecord) -> list[Version]:
    """Return every machine's kernel, whether it differs or not."""
    return [one for one in comparison.versions if one.what == "kernel"]


def asked(comparison: ComparisonRecord) -> list[tuple[str, str, str]]:
    """Return machine, and what it was asked to run on each side."""
    new = comparison.new.asked
    return [(machine, words, new.get(machine, UNKNOWN)) for machine, words in comparison.base.asked.items()]


def cells_of(built: Built, comparison: ComparisonRecord) -> str:
    """Name the cells in which something was built otherwise."""
    return "all cells" if len(built.cells) == len(comparison.pairs) else "; ".join(built.cells)


def took(comparison: ComparisonRecord) -> str:
    """Say how long the visits of both sides took."""
    visits = sum(len(side.values) + side.failed for pair in comparison.pairs for side in (pair.base, pair.new))
    seconds = comparison.base.visits_s + comparison.new.visits_s
    return f"{plural(len(comparison.pairs), 'cell')}, {count(visits)} visits on both sides in {number(seconds)} s"


@dataclass(frozen=True)
class Bar:
    """One side of a row."""

    side: str
    words: str
    """The value, as it stands beside the bar."""
    top: float
    end: float
    """Where the bar ends; at the axis if there is no value."""
    dots: list[float]
    hatched: bool
    """The figure says nothing of the hardware."""


@dataclass(frozen=True)
class Row:
    """One cell, or one configuration whose power was cut."""

    name: str
    said: str
    """What the two bars show."""
    strong: bool
    """Whether a difference is shown."""
    top: float
    bars: list[Bar]

    @property
    def words(self) -> str:
        """The row in words, for those who do not see it."""
        return f"{self.name}: {', '.join(f'{bar.side} {bar.words}' for bar in self.bars)}; {self.said}"


@dataclass(frozen=True)
class Bars:
    """A chart."""

    id: str
    title: str
    x: Axis
    rows: list[Row]

    @property
    def bottom(self) -> float:
        """Where the rows end."""
        return TOP + ROW * len(self.rows)

    @property
    def height(self) -> float:
        """The whole chart's."""
        return self.bottom + 30

    @property
    def description(self) -> str:
        """The chart in words, for those who do not see it."""
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
    """Lay out the acknowledged operations that power cuts cost; None where no side could be looked at."""
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
    """Print what differs, the cells side by side, the power cuts, how it ended, and where the page is."""
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
    """Say what the sides were found to differ in; where they do not, that they run the same kernels."""
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
    """Return the cells of a workload: medians and ranges of both sides, their ratio, and what that shows."""
    unit = f" [{group.unit}]" if group.unit else ""
    table = drawn("cell", f"base{unit}", f"new{unit}", "n", "new/base", "shows")
    for pair in group.pairs:
        n = f"{len(pair.base.values)}+{len(pair.new.values)}"
        table.add_row(*map(text, (pair.name, figure(pair.base), figure(pair.new), n, ratio(pair), pair.finding)))
    return table


def figure(side: SideCell) -> str:
    """Write median and range; a single visit has none."""
    return number(side.median) if len(side.values) < 2 else f"{number(side.median)} ({spread(side)})"


def cut_table(comparison: ComparisonRecord) -> Table:
    """Return what a power cut cost each configuration on both sides."""
    table = drawn("configuration", "lost, base", "lost, new", "acknowledged", "ended")
    for cut in comparison.cuts:
        told = " / ".join(count(side.acknowledged if side else None) for side in (cut.base, cut.new))
        ends = [side.outcome.value if side else "not made" for side in (cut.base, cut.new)]
        table.add_row(*map(text, (cut.title, lost(cut.base), lost(cut.new), told, " / ".join(ends))))
    return table


def drawn(first: str, *numbers: str) -> Table:
    """Return an empty table: words to the left, figures to the right, the last column words again."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(Text(first), overflow="fold", ratio=None)
    for title in numbers[:-1]:
        table.add_column(Text(title), justify="right", overflow="fold")
    table.add_column(Text(numbers[-1]), overflow="fold")
    return table


def text(content: str) -> Text:
    """Return words that no terminal obeys."""
    return Text(printable(str(content)), overflow="fold")
