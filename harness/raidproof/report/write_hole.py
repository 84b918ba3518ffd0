"""The table of the write hole: explored crash states with all members and without one, beside the throughput."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from raidproof.core.terminal import printable
from raidproof.record.cell import CellRecord
from raidproof.record.run import RunRecord
from raidproof.record.write_hole import HoleRecord
from raidproof.report.table import Cell, Field, Table, say
from raidproof.report.words import UNKNOWN, count, number

TITLE = "Write hole"


@dataclass(frozen=True)
class Row:
    """One choice of members of one cell."""

    cell: CellRecord
    hole: HoleRecord
    ratio: float | None
    """Median of the cell divided by that of the first cell with the same workload; None if not known."""

    @property
    def judged(self) -> bool:
        """Whether any crash state was judged."""
        return self.hole.judged > 0


def hole_rows(record: RunRecord) -> list[Row]:
    """Return the rows of the table, in the order of the plan's cells; empty if the plan does not request the table."""
    return [Row(cell, hole, ratio_of(cell, record.cells)) for cell in record.cells for hole in cell.holes]


def ratio_of(cell: CellRecord, cells: Sequence[CellRecord]) -> float | None:
    """Return the median of a cell divided by that of the first measured cell with the same workload.

    None if one of them is not known, or is 0.
    """
    alike = (one.median for one in cells if one.compared_with == cell.compared_with and one.median)
    first = next(alike, None)
    return cell.median / first if first and cell.median else None


def hole_table(rows: Sequence[Row]) -> Table[Row]:
    """Return the table of the write hole."""
    return Table(
        [
            Field("cell", lambda row: row.cell.name, names_row=True),
            Field("members", members, "word"),
            Field("states", lambda row: of_states(row, row.hole.judged), "number"),
            Field("different", lambda row: of_states(row, row.hole.distinct), "number", page_only=True),
            Field("refused", lambda row: of_states(row, row.hole.refused), "number"),
            Field("broken", lambda row: loss(row, row.hole.losing), "number"),
            Field("reported", lambda row: of_states(row, row.hole.reported), "number", page_only=True),
            Field("silent", lambda row: loss(row, row.hole.silent), "number"),
            Field("other", lambda row: of_states(row, row.hole.otherwise), "number"),
            Field("differ after resync", differing, "word", alone="differ"),
            Field("throughput", lambda row: number(row.ratio), "number", "of first"),
            Field("remark", lambda row: row.hole.why_not or "", page_only=not any(row.hole.why_not for row in rows)),
        ],
        rows,
        note=NOTE,
    )


NOTE = (
    "Members: all are there (whole); one is lost with the power cut, and the array starts without it (lost); one is "
    "missing while the clients write (missing). Refused: states whose array the kernel does not start until it is "
    "permitted; the other columns then count the states after this permission. Broken: states that lack acknowledged "
    "data. Of these, silent: neither array, nor file system, nor kernel reported an error; reported: one did. Other: "
    "states with another failure only: damaged blocks whose write was not acknowledged, wrong parity that no resync "
    "would correct, or an error in the kernel log. Differ after resync: checked states in which the kernel finds "
    "different copies or parity after its resync, of those that it compared. Throughput: the median of the cell "
    "divided by that of the first cell. The sign - means: not known."
)
"""Note below the table."""


def members(row: Row) -> str:
    """Return the choice of members as text."""
    serial = f" {row.hole.serial}" if row.hole.serial else ""
    return f"{row.hole.members}{serial}"


def of_states(row: Row, states: int) -> str:
    """Return a number of states as text; `-` if no state was judged."""
    return count(states) if row.judged else UNKNOWN


def loss(row: Row, states: int) -> Cell:
    """Return a number of states that is a loss."""
    return Cell(of_states(row, states), loss=row.judged and states > 0)


def differing(row: Row) -> str:
    """Return the number of scrubbed states that differ; `-` if none was scrubbed."""
    hole = row.hole
    return f"{hole.differing:,} of {hole.scrubbed:,}" if hole.scrubbed else UNKNOWN


def show_holes(record: RunRecord, console: Console) -> None:
    """Print the table of the write hole, if the plan requests it."""
    rows = hole_rows(record)
    if not rows:
        return
    console.print(Text(printable(TITLE), style="bold"))
    console.print(hole_table(rows).drawn(console.width))
    say(console, NOTE)
    console.print()
