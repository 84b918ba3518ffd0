"""Reports: read from records alone, for a terminal, a browser and a continuous integration server."""

from harness.report.html import write_html
from harness.report.junit import write_junit
from harness.report.terminal import show

__all__ = ["show", "write_html", "write_junit"]
