"""The report of a run as text on a terminal or in a file: crash tests, promises, suites."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, Evidence, RunRecord
from raidproof.record.suite import SuiteRecord
from raidproof.report.cells import blames, happening, losses, note, shares, show_cells
from raidproof.report.columns import Column
from raidproof.report.columns import columns as all_columns
from raidproof.report.configuration import caveats
from raidproof.report.words import count, number, printable
from raidproof.verdict.cell import Safety, SafetyWord, by_safety, losing, safety_in
from raidproof.verdict.contract import PROMISES
from raidproof.verdict.wire import calls_of, total

SETTING = "setting"
"""The group of columns with settings; all other groups have measured values."""
MOST_NAMES = 3
"""Number of configurations named in the last lines; the tables have all."""
VERDICT_WIDTH = len("control behaved")
COLOURS = {
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.ERROR: "magenta",
    Outcome.SKIP: "cyan",
    Outcome.INVALID: "magenta",
    Outcome.INCONCLUSIVE: "yellow",
}
SAFETY_COLOURS = {SafetyWord.SAFE: "green", SafetyWord.LOSES_DATA: "red", SafetyWord.NOT_SHOWN: "yellow"}


class Row(NamedTuple):
    """The row of one promise."""

    promise: str
    acknowledged: int
    judged: int
    lost: int
    calls: str
    """Counts of the calls that the promise needs, over all promises; empty if calls were not counted."""


def rows(cycle: CrashTestRecord, balance: Evidence) -> list[Row]:
    """Return a row for each promise of a crash test, in the order of the README's table."""
    sent = total(cycle.observed.calls or {})
    by = {"WRITE": stability(cycle)}
    found = []
    for kind, promise in PROMISES.items():
        if (acknowledged := balance.acknowledged.get(kind)) is None:
            continue
        needed = sorted(calls_of(kind, cycle.asked.get("mount", {})))
        calls = ", ".join(f"{sent[name]:,} {name}{by.get(name, '')}" for name in needed) if sent else ""
        judged = balance.judged.get(kind, acknowledged)
        found.append(Row(promise, acknowledged, judged, balance.lost.get(kind, 0), calls))
    return found


def stability(cycle: CrashTestRecord) -> str:
    """Return the numbers of WRITEs by requested stability, in parentheses; empty if not captured."""
    writes = cycle.observed.replies.writes if cycle.observed.replies is not None else {}
    return f" ({', '.join(f'{count:,} {how}' for how, count in sorted(writes.items()))})" if writes else ""


def dated(cycle: CrashTestRecord) -> str:
    """Return a sentence on the operations dated by the server's replies on the wire; empty if not captured."""
    replies = cycle.observed.replies
    if replies is None or not (replies.dated and replies.of and replies.reported_later_ms):
        return ""
    later_ms = replies.reported_later_ms
    return (
        f" Of {replies.of:,} operations {replies.dated:,} are dated by the server's last reply on the wire; the"
        f" clients' reports came {later_ms.median} ms later (median; {later_ms.least} to {later_ms.most} ms)."
    )


def left_out(cycle: CrashTestRecord) -> dict[str, str]:
    """Return the reasons for which the ledger left out operations or workers, by kind."""
    said: dict[str, str] = cycle.workload.get("left_out", {})
    return said


class Case(NamedTuple):
    """A test of a suite that did not pass."""

    end: str
    name: str
    reason: str


def cases(suite: SuiteRecord) -> Iterator[Case]:
    """Yield the tests that did not pass: failed, of unknown result, or skipped."""
    for end in ("failed", "unknown", "skipped"):
        for one in getattr(suite.outcomes, end):
            known = end == "failed" and one.name in suite.known
            yield Case("failed, as expected" if known else end, one.name, one.reason)


def counts(suite: SuiteRecord) -> str:
    """Return the numbers of tests by result."""
    ends = ("passed", "failed", "skipped", "unknown")
    said = [f"{count(number_of)} {end}" for end in ends if (number_of := len(getattr(suite.outcomes, end)))]
    return ", ".join(said) or "nothing ran"


def show_suites(record: RunRecord, console: Console) -> None:
    """Print a line for each suite of a run."""
    for suite in record.suites:
        words = f"{suite.title}: {suite.outcome}: {suite.reason} ({counts(suite)}, {number(suite.seconds)} s)"
        console.print(Text(printable(words)), soft_wrap=not console.is_terminal)
    if record.suites:
        console.print()


def show(record: RunRecord, console: Console, report: Path | None = None) -> None:
    """Print the tables, a line for each crash test, the run's outcome, and the path of the report."""
    if record.plan is not None:
        show_cells(record, console)
        show_cuts(record, console)
    elif record.cycles or not record.suites:
        show_cycles(record, console)
    show_suites(record, console)
    if by_safety(record):
        console.print(safety_line(record), soft_wrap=not console.is_terminal)
    verdict = verdict_text(record.outcome, loses=losing(record))
    end = Text("run: ").append_text(verdict).append(f": {printable(record.reason)}")
    console.print(end, soft_wrap=not console.is_terminal)
    if report is not None:
        console.print(Text(f"report: {printable(str(report))}"), soft_wrap=True)


def show_cuts(record: RunRecord, console: Console) -> None:
    """Print the losses by the power cuts of a plan, and a line for each that did not pass."""
    if not record.cycles:
        return
    console.print(Text("Power cuts", style="bold"))
    console.print(ends_table(record, console.width))
    console.print()
    bad = [(place, one) for place, one in enumerate(record.cycles, start=1) if one.outcome is not Outcome.PASS]
    for place, cycle in bad:
        console.print(line(record, place, cycle), soft_wrap=not console.is_terminal)
    if bad:
        console.print()


def show_cycles(record: RunRecord, console: Console) -> None:
    """Print the outcome and safety of each crash test, the measured values, and a line for each crash test."""
    console.print(ends_table(record, console.width))
    for columns in packed(record, [column for column in all_columns() if column.group != SETTING], console.width):
        console.print()
        console.print(figures_table(record, columns, console.width))
    console.print()
    for place, cycle in enumerate(record.cycles, start=1):
        console.print(line(record, place, cycle), soft_wrap=not console.is_terminal)
    for caveat, rows in caveats(record.cycles).items():
        if len(rows) < len(record.cycles):  # a caveat of all rows makes no difference between them
            said = f"only {', '.join(map(str, rows))}: {printable(caveat)}"
            console.print(Text(said), soft_wrap=not console.is_terminal)
    console.print()


def ends_table(record: RunRecord, width: int) -> Table:
    """Return the table of settings, verdict and safety, side by side at any width."""
    settings = [column for column in all_columns() if column.group == SETTING]
    cells = {column: [printable(column.value(cycle)) for cycle in record.cycles] for column in settings}
    answers = [str(safety_in(record, cycle)) for cycle in record.cycles]
    fixed = [len(str(len(record.cycles))), *(narrowest(one, cells[one]) for one in settings), VERDICT_WIDTH]
    titles = [printable(cycle.title) for cycle in record.cycles]
    wishes = [max(map(len, [*texts, "safety"])) for texts in (titles, answers)]
    room = width - sum(fixed) - len(fixed) - 1
    # Gaps are 2 wide where no cell is broken by that.
    gap = 2 if room - len(fixed) - 1 >= sum(wishes) else 1
    row_width, safety_width = shares(wishes, room - (gap - 1) * (len(fixed) + 1))
    drawn = framed(gap)
    drawn.add_column("#", justify="right", width=fixed[0])
    drawn.add_column("row", width=row_width)
    for column, narrow in zip(settings, fixed[1:], strict=False):
        drawn.add_column(Text(header(column)), width=narrow)
    drawn.add_column("verdict", width=VERDICT_WIDTH)
    drawn.add_column("safety", width=safety_width)
    for place, cycle in enumerate(record.cycles):
        row = [Text(str(place + 1)), Text(titles[place]), *(Text(cells[column][place]) for column in settings)]
        drawn.add_row(*row, verdict_cell(record, cycle), safety_text(safety_in(record, cycle)))
    return drawn


def packed(record: RunRecord, columns: Sequence[Column], width: int) -> Iterator[Sequence[Column]]:
    """Yield the columns of as few tables as possible that are at most ``width`` wide; groups are not divided."""
    table: list[Column] = []
    used = 0
    for _, grouped in groupby(columns, key=lambda column: column.group):
        group = list(grouped)
        more = sum(narrowest(one, [printable(one.value(cycle)) for cycle in record.cycles]) + 1 for one in group)
        if table and len(str(len(record.cycles))) + used + more > width:
            yield table
            table, used = [], 0
        table, used = [*table, *group], used + more
    yield table


def figures_table(record: RunRecord, columns: Sequence[Column], width: int) -> Table:
    """Return a table of measured values with a numbered row for each crash test."""
    cells = {column: [printable(column.value(cycle)) for cycle in record.cycles] for column in columns}
    # Set the widths here, as Rich crops what does not fit.
    widths = [narrowest(column, cells[column]) for column in columns]
    number_width = len(str(len(record.cycles)))
    drawn = framed(2 if number_width + sum(widths) + 2 * len(widths) <= width else 1)
    drawn.add_column("#", justify="right", width=number_width)
    for column, narrow in zip(columns, widths, strict=True):
        drawn.add_column(Text(header(column)), justify="right", width=narrow)
    for place in range(len(record.cycles)):
        drawn.add_row(str(place + 1), *(Text(cells[column][place]) for column in columns))
    return drawn


def framed(gap: int) -> Table:
    """Return an empty table with this gap between columns."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)


def header(column: Column) -> str:
    """Return the title and the unit of a column; the titles of recovery stages get their group's name."""
    title = f"{column.group} {column.title}" if column.group == "recovery" else column.title
    return f"{title}\n[{column.unit}]" if column.unit else title


def narrowest(column: Column, cells: Sequence[str]) -> int:
    """Return the least width that breaks neither a word of the header nor a cell."""
    return max(map(len, [*header(column).split(), *cells]))


def verdict_cell(record: RunRecord, cycle: CrashTestRecord) -> Text:
    """Return the outcome of a crash test with its remark."""
    cell = verdict_text(cycle.outcome, loses=safety_in(record, cycle).loses)
    remark = note(record, cycle)
    return cell.append(f"\n{remark}", style="not bold default") if remark else cell


def line(record: RunRecord, place: int, cycle: CrashTestRecord) -> Text:
    """Return the outcome of a crash test with its reason, blame and losses."""
    remark = note(record, cycle)
    said = Text(f"{place} {printable(cycle.title)} ({printable(happening(cycle))}): ")
    said.append_text(verdict_text(cycle.outcome, loses=safety_in(record, cycle).loses)).append(
        f" ({remark})" if remark and remark not in cycle.reason else ""
    )
    said.append(f": {printable(cycle.reason)}")
    if unsaid := blames(cycle):
        said.append(f"; blame: {printable('; '.join(unsaid))}")
    if gone := losses(cycle):
        said.append(f"; {gone}")
    return said


def verdict_text(outcome: Outcome, *, loses: bool = False) -> Text:
    """Return an outcome in its colour; a PASS of a configuration that loses data has none, as green means safe."""
    plain = loses and outcome is Outcome.PASS
    return Text(outcome.value, style="bold" if plain else f"bold {COLOURS[outcome]}")


def safety_text(safety: Safety) -> Text:
    """Return the safety of a configuration, with the verdict word in its colour."""
    said = Text(safety.word.value, style=f"bold {SAFETY_COLOURS[safety.word]}")
    return said.append(f": {printable(safety.size)}" if safety.size else "", style="not bold default")


def safety_line(record: RunRecord) -> Text:
    """Return the configurations of a run by safety verdict, with some of their names."""
    said = Text("safety: ")
    for place, (word, names) in enumerate(by_safety(record).items()):
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        named = printable(", ".join(names[:MOST_NAMES]))
        said.append("; " if place else "").append(word.value, style=f"bold {SAFETY_COLOURS[word]}")
        said.append(f": {named}{more}")
    return said
