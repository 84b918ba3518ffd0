"""The columns of the table of crash tests; each module of this package may register columns."""

from raidproof.report.columns.column import COLUMNS, GROUPS, Column, columns

__all__ = ["COLUMNS", "GROUPS", "Column", "columns"]
