"""Charts of HTML reports as Vega-Lite specifications.

Each file makes the specification of one chart, and the rows of data that it draws. Only `drawing` imports Altair, when
a page is written: the import takes a second.
"""

from raidproof.report.charts.figure import Chart, Figures, Row

__all__ = ["Chart", "Figures", "Row"]
