"""Reports made from records alone: for a terminal, a browser and a continuous integration server."""

from raidproof.report.html import write_html
from raidproof.report.junit import write_junit
from raidproof.report.terminal import show

__all__ = ["show", "write_html", "write_junit"]
