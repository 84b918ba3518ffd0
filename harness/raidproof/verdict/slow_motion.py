"""What to do if this host is too slow to simulate the hardware of a plan: slow motion, with its factor."""

import math
from collections.abc import Sequence

from raidproof.record.cell import CellRecord
from raidproof.record.run import RunRecord

FREE = 0.75
"""Share of what the simulation can do that the simulated hardware may use: a processor that is busier adds latency."""
MOST = 1000
"""Greatest factor that a plan accepts."""
NO_LATENCY = (
    "disks without a profile have no latency, so that a processor is the limit: add for example profile = "
    '"hdd-7200-sata" to the plan\'s disks, or end other programs'
)


def advice_for(record: RunRecord, limited: Sequence[CellRecord]) -> str | None:
    """Return what to do so that no processor of the simulation limits these cells, as a clause.

    None without such cells, and for existing machines, which have no slow motion.
    """
    if not limited or not record.topology or record.topology.get("inventory"):
        return None
    if not any(disk.get("profile") for disk in record.topology.get("disks", ())):
        return NO_LATENCY
    used = float(record.topology.get("slow_motion", 1.0))
    factor = max(factor_for(cell, used) for cell in limited)
    if factor > MOST:
        return "this host is too slow to simulate this hardware: use a faster one"
    return f"set slow_motion = {factor} in the plan's table [hardware], or end other programs"


def factor_for(cell: CellRecord, used: float) -> int:
    """Return the slow-motion factor for a cell that a processor of the simulation limits; ``used``: that of the run.

    The cell's median is what the simulation can do. The hardware would do the expected value, and in slow motion its
    share. Without an expected value, or if the cell reached it, a little slower than ``used`` must do.
    """
    ratio = cell.ratio
    return math.ceil(used / FREE / (ratio if ratio and ratio < 1 else 1.0))
