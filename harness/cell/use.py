"""How busy the disk engine was, and the disks that it plays, between two looks at its counters."""

from collections.abc import Sequence

from harness.disk.messages import Busy, Use
from harness.monitor import EngineUse


def engine_use(begun: Use, ended: Use) -> EngineUse:
    """Return the engine's use between two looks."""
    wall_ns, disks_ns = max(1, ended.at_ns - begun.at_ns), max(1, ended.disks_ns - begun.disks_ns)
    served = max(1, ended.served - begun.served)
    return EngineUse(
        cpu_share=(ended.cpu_ns - begun.cpu_ns) / wall_ns,
        late_ns_mean=(ended.late_ns - begun.late_ns) / served,
        service_ns_mean=(ended.service_ns - begun.service_ns) / served,
        members_busy=_shares(begun.members, ended.members, disks_ns),
        controllers_busy=_shares(begun.controllers, ended.controllers, disks_ns),
    )


def _shares(begun: Sequence[Busy], ended: Sequence[Busy], disks_ns: int) -> dict[str, float]:
    """Shares of the time; what began before the first look may end after it, so they are bounded."""
    return {
        after.name: min(1.0, (after.busy_ns - before.busy_ns) / disks_ns)
        for before, after in zip(begun, ended, strict=True)
    }
