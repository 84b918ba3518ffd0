"""The report on a terminal, and as plain text where there is none."""

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.record.run import CycleRecord, RunRecord
from harness.report.cells_table import show_cells
from harness.report.columns import COLUMNS, Column, blames, happening, losses, note
from harness.report.suites_table import show_suites
from harness.report.words import printable
from harness.verdict.outcome import Outcome

WIDE = 160
"""Columns of text from which one table holds everything."""
TITLE_WIDTH = 12
VERDICT_WIDTH = len("control behaved")
COLOURS = {
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.ERROR: "magenta",
    Outcome.SKIP: "cyan",
    Outcome.INVALID: "magenta",
    Outcome.INCONCLUSIVE: "yellow",
}


def show(record: RunRecord, console: Console, report: Path | None = None) -> None:
    """Print the table, a line on each cycle, how the run ended, and where the report is."""
    if record.plan is not None:
        show_cells(record, console)
        show_cuts(record, console)
    elif record.cycles or not record.suites:
        show_cycles(record, console)
    show_suites(record, console)
    end = Text("run: ").append_text(verdict_text(record.outcome)).append(f": {printable(record.reason)}")
    console.print(end, soft_wrap=not console.is_terminal)
    if report is not None:
        console.print(Text(f"report: {printable(str(report))}"), soft_wrap=True)


def show_cuts(record: RunRecord, console: Console) -> None:
    """Print what the power cuts of a plan cost: a short table, and a line on each that did not pass."""
    if not record.cycles:
        return
    console.print(Text("Power cuts", style="bold"))
    short = [column for column in COLUMNS if column.title in ("acknowledged", "lost", "work lost")]
    console.print(table(record, short, console.width, titles=True))
    console.print()
    bad = [(place, one) for place, one in enumerate(record.cycles, start=1) if one.outcome is not Outcome.PASS]
    for place, cycle in bad:
        console.print(line(record, place, cycle), soft_wrap=not console.is_terminal)
    if bad:
        console.print()


def show_cycles(record: RunRecord, console: Console) -> None:
    """Print the rows of a run, and a line on each."""
    if console.width >= WIDE:
        console.print(table(record, COLUMNS, console.width, titles=True))
    else:
        # What was set and how fast it was, then what was left of it.
        console.print(table(record, COLUMNS[:4], console.width, titles=True))
        console.print()
        console.print(table(record, COLUMNS[4:], console.width, titles=False))
    console.print()
    for place, cycle in enumerate(record.cycles, start=1):
        console.print(line(record, place, cycle), soft_wrap=not console.is_terminal)
    console.print()


def table(record: RunRecord, columns: Sequence[Column], width: int, *, titles: bool) -> Table:
    """Return the rows of a run with some of the columns; with titles, the verdicts come along."""
    cells = {column: [printable(column.value(cycle)) for cycle in record.cycles] for column in columns}
    widths = [narrowest(column, cells[column]) for column in columns]
    if titles:
        widths.append(VERDICT_WIDTH)
    number_width = len(str(len(record.cycles)))
    # Rich crops what does not fit: the widths are ours, and the titles get what is left.
    room = width - number_width - sum(widths)
    gap = 2 if room - 2 * (len(widths) + titles) >= TITLE_WIDTH * titles else 1
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)
    drawn.add_column("#", justify="right", width=number_width)
    if titles:
        drawn.add_column("row", width=max(TITLE_WIDTH, min(room - gap * (len(widths) + 1), longest_title(record))))
    for column, narrow in zip(columns, widths, strict=False):
        drawn.add_column(Text(header(column)), justify="right" if column.unit else "left", width=narrow)
    if titles:
        drawn.add_column("verdict", width=VERDICT_WIDTH)
    for place, cycle in enumerate(record.cycles):
        row = [Text(str(place + 1))]
        row += [Text(printable(cycle.title))] * titles
        row += [Text(cells[column][place]) for column in columns]
        row += [verdict_cell(record, cycle)] * titles
        drawn.add_row(*row)
    return drawn


def header(column: Column) -> str:
    """Return the words and the unit of a column; stages of the recovery mean nothing without that word."""
    title = f"{column.group} {column.title}" if column.group == "recovery" else column.title
    return f"{title}\n[{column.unit}]" if column.unit else title


def narrowest(column: Column, cells: Sequence[str]) -> int:
    """Return the width that breaks neither a word of the header nor a cell."""
    return max(map(len, [*header(column).split(), *cells]))


def longest_title(record: RunRecord) -> int:
    """Return the width that the titles of a run would like to have."""
    return max((len(printable(cycle.title)) for cycle in record.cycles), default=TITLE_WIDTH)


def verdict_cell(record: RunRecord, cycle: CycleRecord) -> Text:
    """Return an outcome with what has to stand beside it."""
    cell = verdict_text(cycle.outcome)
    remark = note(record, cycle)
    return cell.append(f"\n{remark}", style="not bold default") if remark else cell


def line(record: RunRecord, place: int, cycle: CycleRecord) -> Text:
    """Say how a cycle ended and why, whom to blame, and what is gone."""
    remark = note(record, cycle)
    said = Text(f"{place} {printable(cycle.title)} ({printable(happening(cycle))}): ")
    said.append_text(verdict_text(cycle.outcome)).append(
        f" ({remark})" if remark and remark not in cycle.reason else ""
    )
    said.append(f": {printable(cycle.reason)}")
    if unsaid := blames(cycle):
        said.append(f"; blame: {printable('; '.join(unsaid))}")
    if gone := losses(cycle):
        said.append(f"; {gone}")
    return said


def verdict_text(outcome: Outcome) -> Text:
    """Return an outcome in its colour."""
    return Text(outcome.value, style=f"bold {COLOURS[outcome]}")
