"""What the hardware should have given: mechanics, RAID arithmetic, network and commit latency in closed formulas."""

from raidproof.monitor.model.access import Access
from raidproof.monitor.model.expected import Expected, expected
from raidproof.monitor.model.hardware import Hardware, Member
from raidproof.monitor.model.ratio import Ratio, compare

__all__ = ["Access", "Expected", "Hardware", "Member", "Ratio", "compare", "expected"]
