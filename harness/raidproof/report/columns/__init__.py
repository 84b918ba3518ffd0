"""The columns of the table of crash tests. Each file of this folder may add some."""

from raidproof.report.columns.column import COLUMNS, GROUPS, Column, columns

__all__ = ["COLUMNS", "GROUPS", "Column", "columns"]
