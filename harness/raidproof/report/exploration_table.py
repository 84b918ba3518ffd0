"""An exploration on a terminal."""

import shlex
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.exploration import ExplorationRecord, FailureRecord
from raidproof.report import exploration_words as words
from raidproof.report.terminal import verdict_text
from raidproof.report.words import count, number, printable

MOST_WRITES = 5


def show_exploration(record: ExplorationRecord, console: Console, page: Path | None = None) -> None:
    """Print what was looked at, each failure, how it ended, and where the page is."""
    _say(console, words.summary(record))
    _say(console, words.tested(record))
    _say(console, words.cold(record))
    _say(console, words.filesystems(record))
    _say(console, words.redundancy(record))
    _say(console, words.effort(record))
    for note in record.notes:
        _say(console, note)
    if record.failures:
        console.print()
        console.print(failure_table(record))
    blamed = len({failure.blame for failure in record.failures}) > 1
    block = 0
    for place, failure in enumerate(record.failures, start=1):
        other = words.same_as(record.failures, place)
        if other is None or other != block:
            console.print()
            block = place
        # The end says it, if all are blamed alike.
        for line in lines_of(place, failure, blamed=blamed, other=other):
            _say(console, line)
    console.print()
    end = Text(f"{printable(record.title)}: ").append_text(verdict_text(record.outcome, loses=record.loses))
    console.print(end.append(f": {printable(record.reason)}"), soft_wrap=not console.is_terminal)
    if page is not None:
        console.print(Text(f"report: {printable(str(page))}"), soft_wrap=True)


def failure_table(record: ExplorationRecord) -> Table:
    """Return a row for each distinct failure."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right")
    table.add_column("promise", overflow="fold")
    table.add_column("damage", overflow="fold")
    for title in ("states", "at [s]", "shown again"):
        table.add_column(title, justify="right")
    for place, one in enumerate(record.failures, start=1):
        again = f"{one.confirmed} of {one.repeated}" if one.repeated else "-"
        table.add_row(
            *map(Text, (str(place), one.promise, printable(one.damage), count(one.states), number(one.at_s), again))
        )
    return table


def lines_of(place: int, failure: FailureRecord, *, blamed: bool = True, other: int | None = None) -> list[str]:
    """Return what is known of a failure, with whom it is ``blamed`` on; one line where it is shown as ``other`` is."""
    blame = f"; blame: {failure.blame}" if blamed and failure.blame else ""
    if other is not None:
        return [f"{place} {failure.promise}: {failure.damage}: {words.together(failure, other)}{blame}"]
    lines = [f"{place} {failure.promise}: {failure.damage} ({words.smallest(failure)}){blame}"]
    if failure.shrunk is not None:
        survivors = failure.shrunk.survivors
        lines += [f"  {words.write(one)}" for one in survivors[:MOST_WRITES]]
        if len(survivors) > MOST_WRITES:
            lines.append(f"  and {len(survivors) - MOST_WRITES:,} more")
        lines += [f"  enough that it is lost: {words.write(one)}" for one in failure.shrunk.lost[:MOST_WRITES]]
    if failure.missing is not None:
        lines.append(f"  {words.missing(failure.missing)}")
    if (shortest := words.shortest(failure)) is not None:
        lines.append(f"  {shortest}")
    return [*lines, f"  {shlex.join(failure.replay)}"]


def _say(console: Console, sentence: str) -> None:
    console.print(Text(printable(sentence)), soft_wrap=not console.is_terminal)
