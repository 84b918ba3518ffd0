"""The table of a self-test on the terminal."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.selftest import SelftestAnswer, SelftestRecord, SelftestRow

COLOURS: Mapping[SelftestAnswer, str] = {
    SelftestAnswer.FOUND: "green",
    SelftestAnswer.PASSED: "green",
    SelftestAnswer.UNDECIDED: "yellow",
}
"""Colours of answers; the others are red."""


def show_selftest(record: SelftestRecord, path: Path, console: Console) -> None:
    """Print a table of the defects with the answer of the harness, and ``path``, that of the stored record."""
    table = Table(box=None)
    table.add_column("defect", no_wrap=True)
    table.add_column("answer", no_wrap=True)
    table.add_column("the disks")
    table.add_column("crash states", justify="right")
    table.add_column("s", justify="right")
    for one in record.rows:
        answer = Text(one.answer.value, style=COLOURS.get(one.answer, "red"))
        table.add_row(Text(one.defect or "none"), answer, Text(one.says), f"{one.states:,}", f"{one.seconds:.1f}")
    console.print(table)
    console.print()
    for line in (*map(_line, record.rows), f"{record.outcome.value}: {record.reason}", f"stored: {path}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _line(row: SelftestRow) -> str:
    """Return what the harness said about one crash test."""
    return f"{row.defect or 'none'}: {row.outcome.value}: {row.reason}"
