"""How busy the disk engine was, and the disks that it plays, between two looks at its counters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raidproof.disk.messages import Busy, Use
from raidproof.monitor import EngineUse, Recording

START_UP_S = 2.0
"""What a tool may take to start and to end; what is left beyond is work that it does not time."""


def engine_use(begun: Use, ended: Use, working_s: float | None = None) -> EngineUse:
    """Return the engine's use between two looks.

    ``working_s`` is for how long of that the tool worked: if the rest is but its start, shares are of this time.
    """
    wall_ns, disks_ns = max(1, ended.at_ns - begun.at_ns), max(1, ended.disks_ns - begun.disks_ns)
    if only_starts(wall_ns / 1e9, working_s):
        disks_ns = max(1, round(disks_ns * (working_s or 0) * 1e9 / wall_ns))
        wall_ns = max(1, round((working_s or 0) * 1e9))
    served = max(1, ended.served - begun.served)
    return EngineUse(
        cpu_share=(ended.cpu_ns - begun.cpu_ns) / wall_ns,
        late_ns_mean=(ended.late_ns - begun.late_ns) / served,
        service_ns_mean=(ended.service_ns - begun.service_ns) / served,
        members_busy=_shares(begun.members, ended.members, disks_ns),
        controllers_busy=_shares(begun.controllers, ended.controllers, disks_ns),
    )


def only_starts(wall_s: float, working_s: float | None) -> bool:
    """Whether a tool did nothing but start and end, where it did not do what it timed."""
    return working_s is not None and 0 < working_s < wall_s <= working_s + START_UP_S


def trimmed(recordings: Mapping[str, Recording], seconds: float, working_s: float) -> dict[str, Recording]:
    """Return what was recorded in the last ``seconds``: not the start of a tool, nor its warming up."""
    return {
        name: _last(one, seconds) if only_starts(one.seconds, working_s) else one for name, one in recordings.items()
    }


def _last(recording: Recording, seconds: float) -> Recording:
    since = recording.last.at_s - seconds
    looks = [look for look in recording.snapshots if look.at_s >= since]
    return recording if len(looks) < 2 else replace(recording, snapshots=tuple(looks))


def _shares(begun: Sequence[Busy], ended: Sequence[Busy], disks_ns: int) -> dict[str, float]:
    """Shares of the time; what began before the first look may end after it, so they are bounded."""
    return {
        after.name: min(1.0, (after.busy_ns - before.busy_ns) / disks_ns)
        for before, after in zip(begun, ended, strict=True)
    }
