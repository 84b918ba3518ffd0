"""What the hardware should have given: mechanics, RAID arithmetic, network and commit latency in closed formulas."""

from harness.model.access import Access
from harness.model.expected import Expected, expected
from harness.model.hardware import Hardware, Member
from harness.model.ratio import Ratio, compare

__all__ = ["Access", "Expected", "Hardware", "Member", "Ratio", "compare", "expected"]
