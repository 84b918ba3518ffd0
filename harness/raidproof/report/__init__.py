"""Reports from the records of runs: on a terminal, as HTML pages, and as JUnit XML."""

from raidproof.report.html import write_html
from raidproof.report.junit import write_junit
from raidproof.report.terminal import show

__all__ = ["show", "write_html", "write_junit"]
