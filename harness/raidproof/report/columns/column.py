"""The definition of a column in the table of crash tests, which both the terminal and the HTML report show."""

from collections.abc import Callable
from dataclasses import dataclass

from raidproof.core.registry import Registry
from raidproof.record.run import CrashTestRecord

GROUPS = ("setting", "speed before the fault", "acknowledged work", "recovery")
"""Groups of columns from left to right; groups with other names follow in the order of their names."""
COLUMNS: Registry["Column"] = Registry("column", "raidproof.report.columns", "raidproof.columns")
"""All registered columns, by group and title."""


@dataclass(frozen=True)
class Column:
    """One column of the table of crash tests. The creation of an instance registers the column."""

    group: str
    """Heading over the column and its neighbours; see `GROUPS`."""
    title: str
    unit: str
    """Unit of the value; empty for text."""
    meaning: str
    """The meaning of the values, as sentences for the reader of the HTML report."""
    value: Callable[[CrashTestRecord], str]
    """Function that returns the value of a crash test as text."""
    order: int = 100
    """Position in the group: the column with the lowest number is leftmost."""

    def __post_init__(self) -> None:
        """Register the column."""
        COLUMNS.add(f"{self.group}: {self.title}", self)


def columns() -> tuple[Column, ...]:
    """Return all columns from left to right."""
    return tuple(sorted((column for _, column in COLUMNS.items()), key=_place))


def _place(column: Column) -> tuple[int, str, int, str]:
    known = GROUPS.index(column.group) if column.group in GROUPS else len(GROUPS)
    return known, column.group, column.order, column.title
