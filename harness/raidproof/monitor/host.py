"""How busy the host was: machines that are processes share its cores with the disk engine and with each other."""

from collections.abc import Mapping

import psutil

_IDLE = ("idle", "iowait")
# Linux counts these in user and nice already.
_TWICE = ("guest", "guest_nice")


def host_times() -> dict[str, float]:
    """Return the CPU seconds of all cores together since boot, by kind."""
    return dict(psutil.cpu_times()._asdict())


def host_busy(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the share of all cores that was in use between two times; None if no time has passed."""
    spent = {kind: after[kind] - before[kind] for kind in after if kind in before and kind not in _TWICE}
    total = sum(spent.values())
    if total <= 0:
        return None
    return min(1.0, max(0.0, 1 - sum(spent.get(kind, 0.0) for kind in _IDLE) / total))
