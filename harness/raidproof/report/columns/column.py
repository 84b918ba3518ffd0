"""What a column of the table of crash tests is: the same in every form of the report."""

from collections.abc import Callable
from dataclasses import dataclass

from raidproof.core.registry import Registry
from raidproof.record.run import CrashTestRecord

GROUPS = ("setting", "speed before the fault", "acknowledged work", "recovery")
"""From left to right; other groups follow in the order of their names."""
COLUMNS: Registry["Column"] = Registry("column", "raidproof.report.columns", "raidproof.columns")
"""Every column by its group and title."""


@dataclass(frozen=True)
class Column:
    """One measure of a crash test. Making one adds it to every table of crash tests."""

    group: str
    title: str
    unit: str
    """Empty for words."""
    meaning: str
    value: Callable[[CrashTestRecord], str]
    order: int = 100
    """Where it stands in its group: the lower, the further left."""

    def __post_init__(self) -> None:
        """Add it to the tables."""
        COLUMNS.add(f"{self.group}: {self.title}", self)


def columns() -> tuple[Column, ...]:
    """Return all columns from left to right."""
    return tuple(sorted((column for _, column in COLUMNS.items()), key=_place))


def _place(column: Column) -> tuple[int, str, int, str]:
    known = GROUPS.index(column.group) if column.group in GROUPS else len(GROUPS)
    return known, column.group, column.order, column.title
