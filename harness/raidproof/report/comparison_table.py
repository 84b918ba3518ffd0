"""The comparison of two sides on a terminal."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.report import sides
from raidproof.report.cells_table import say
from raidproof.report.terminal import verdict_text
from raidproof.report.words import count, number, printable
from raidproof.verdict.comparison import ComparisonRecord, SideCell

MOST_VERSIONS = 6
"""Differing versions that are told; the page has all."""


def show_comparison(comparison: ComparisonRecord, console: Console, page: Path | None = None) -> None:
    """Print what differs, the cells side by side, the power cuts, how it ended, and where the page is."""
    tell_versions(comparison, console)
    for group in sides.groups(comparison):
        console.print()
        console.print(Text(printable(group.title), style="bold"))
        console.print(cell_table(group))
        for pair in group.pairs:
            if said := sides.remarks(pair):
                say(console, f"{pair.name}: {'; '.join(said)}")
    if comparison.cuts:
        console.print()
        console.print(Text("Power cuts", style="bold"))
        console.print(cut_table(comparison))
    console.print()
    say(console, f"{sides.took(comparison)}; medians (least-greatest), no statistics")
    end = Text("comparison: ").append_text(verdict_text(comparison.outcome))
    console.print(end.append(f": {printable(comparison.reason)}"), soft_wrap=not console.is_terminal)
    if page is not None:
        console.print(Text(f"report: {printable(str(page))}"), soft_wrap=True)


def tell_versions(comparison: ComparisonRecord, console: Console) -> None:
    """Say what the sides were found to differ in; where they do not, that they run the same kernels."""
    rows = sides.by_versions(comparison.different)
    for what, base, new, machines in rows[:MOST_VERSIONS]:
        say(console, f"{what}: base {base}, new {new} ({machines})")
    if len(rows) > MOST_VERSIONS:
        say(console, f"and {len(rows) - MOST_VERSIONS:,} more packages differ; the report has them")
    if not rows:
        for what, base, _, machines in sides.by_versions(sides.kernels(comparison)):
            say(console, f"{what}: both {base} ({machines}); no package differs")
    for one in comparison.built:
        say(
            console,
            f"built otherwise: {one.field}: base {one.base}, new {one.new} ({sides.cells_of(one, comparison)})",
        )


def cell_table(group: sides.Group) -> Table:
    """Return the cells of a workload: medians and ranges of both sides, their ratio, and what that shows."""
    unit = f" [{group.unit}]" if group.unit else ""
    table = drawn("cell", f"base{unit}", f"new{unit}", "n", "new/base", "shows")
    for pair in group.pairs:
        n = f"{len(pair.base.values)}+{len(pair.new.values)}"
        table.add_row(*map(text, (pair.name, figure(pair.base), figure(pair.new), n, sides.ratio(pair), pair.finding)))
    return table


def figure(side: SideCell) -> str:
    """Write median and range; a single visit has none."""
    return number(side.median) if len(side.values) < 2 else f"{number(side.median)} ({sides.spread(side)})"


def cut_table(comparison: ComparisonRecord) -> Table:
    """Return what a power cut cost each configuration on both sides."""
    table = drawn("configuration", "lost, base", "lost, new", "acknowledged", "ended")
    for cut in comparison.cuts:
        told = " / ".join(count(side.acknowledged if side else None) for side in (cut.base, cut.new))
        ends = [side.outcome.value if side else "not made" for side in (cut.base, cut.new)]
        table.add_row(*map(text, (cut.title, sides.lost(cut.base), sides.lost(cut.new), told, " / ".join(ends))))
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
