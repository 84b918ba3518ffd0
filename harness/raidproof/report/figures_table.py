"""The table of published figures beside measured values; all deviations are printed."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.run import RunRecord
from raidproof.report.words import UNKNOWN, number, printable

CALIBRATION = "used to calibrate"


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure, with the values measured here."""

    name: str
    published: float
    unit: str
    measured: float | None
    """Median of the values measured here; None if nothing was measured."""
    spread: tuple[float, float] | None = None
    """Least and greatest value measured here."""
    n: int = 0
    used_to_calibrate: bool = False
    """Whether the figure calibrated a parameter of the hardware, so that agreement proves nothing."""
    note: str = ""

    @property
    def deviation(self) -> float | None:
        """Measured value over published figure, minus one; None where undefined."""
        return None if self.measured is None or not self.published else self.measured / self.published - 1

    @property
    def remark(self) -> str:
        """Remarks on the deviation."""
        said = [CALIBRATION] if self.used_to_calibrate else []
        said += ["not measured"] if self.measured is None else []
        return "; ".join([*said, *([self.note] if self.note else [])])


def published_figures(record: RunRecord) -> list[PublishedFigure]:
    """Return the figures of a run's plan, each with the values of the cell that re-enacts it."""
    cells = {cell.name: cell for cell in record.cells}
    rows = []
    for figure in record.plan.figures if record.plan else ():
        cell = cells.get(figure.cell)
        values = [] if cell is None else [one.values[figure.unit] for one in cell.repeats if figure.unit in one.values]
        rows.append(
            PublishedFigure(
                name=figure.name,
                published=figure.published,
                unit=figure.unit,
                measured=median(values) if values else None,
                spread=(min(values), max(values)) if values else None,
                n=len(values),
                used_to_calibrate=figure.places_limit,
                note=figure.note,
            )
        )
    return rows


def comparison_table(rows: Iterable[PublishedFigure]) -> Table:
    """Return a table of all figures in their order."""
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    drawn.add_column("figure", overflow="fold")
    for title in ("unit", "published", "median", "spread", "n", "deviation\n[%]"):
        # Rich must not shorten a number: names and remarks are folded instead.
        drawn.add_column(Text(title), justify="left" if title == "unit" else "right", no_wrap=True)
    drawn.add_column("remark", overflow="fold")
    for row in rows:
        ends = row.spread
        cells = (
            row.name,
            row.unit,
            number(row.published),
            number(row.measured),
            UNKNOWN if ends is None else f"{number(ends[0])}-{number(ends[1])}",
            str(row.n),
            UNKNOWN if row.deviation is None else f"{100 * row.deviation:+.1f}",
            row.remark,
        )
        drawn.add_row(*(Text(printable(cell)) for cell in cells))
    return drawn


def comparison_text(rows: Iterable[PublishedFigure], width: int = 120) -> str:
    """Return the table as plain text, ``width`` characters wide at most."""
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=False, color_system=None).print(comparison_table(rows))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
