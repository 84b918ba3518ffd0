"""The interface of a lab's member disks, and the disk engine's configuration for a topology."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import NO_MECHANICS, ControllerSpec, DiskSpec, Topology
from raidproof.disk import messages
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.disk_fault import DiskFault
from raidproof.disk.messages import Counters, Description, LogClosed, Use
from raidproof.disk.profile import Profile, load_profile
from raidproof.disk.timing import hardware
from raidproof.disk.timing.rotational import Placement


class Disks(Protocol):
    """The member disks of a lab: simulated disks of the disk engine, or real disks.

    A method that real disks do not support raises RequirementMissing.
    """

    @property
    def zeroed(self) -> bool:
        """Whether all bytes read as zeroes after `reset`: parity and copies then agree before the first resync."""

    def require(self, mode: CacheMode, policy: CutPolicy) -> None:
        """Check that the disks support a cache mode and a cut policy; called before a stack is built.

        Raises:
            RequirementMissing: the disks do not support the cache mode or the cut policy.
        """

    def reset(self, old: Iterable[str] = ()) -> None:
        """Discard the content of all members, restore their initial cache modes, and set their counters to 0.

        ``old``: serial numbers of the members that read as `sparse_image.OLD_DATA` afterwards, not as zeroes. Real
        disks keep their data.
        """

    def set_mode(self, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
        """Change the cache mode of the members with these serial numbers; None: of all members."""

    def set_timing(self, on: bool) -> None:
        """Switch the simulation of the disks' service times on or off; off: requests are answered at once."""

    def use(self) -> Use:
        """Return the utilization counters of disks and controllers."""

    def counters(self) -> dict[str, Counters]:
        """Return the request counters of each member, by serial number."""

    def describe(self) -> Description:
        """Return the members, their power state and their write log."""

    def log_start(self, path: Path, *, data: bool = True) -> None:
        """Begin a write log in the file ``path``; ``data``: include the written data, not only sizes and times."""

    def log_stop(self) -> LogClosed | None:
        """End the write log and return its size; None if the disks do not support write logs."""

    def set_disk_fault(self, serial: str, disk_fault: DiskFault) -> None:
        """Add a disk fault to the drive with this serial number."""

    def clear_disk_faults(self, serials: Iterable[str] | None = None) -> None:
        """Remove the disk faults of the drives with these serial numbers (None: all); damaged data stays damaged."""

    def corrupt(self, serial: str, offset: int, length: int, seed: int = 0) -> None:
        """Change every byte of a region of a drive durably; no request reports an error."""

    def swap(self, one: str, other: str) -> None:
        """Exchange the content of two drives; the power must be off."""


def disks_of(topology: Topology) -> messages.Disks:
    """Return the disk engine's configuration for the disks of a topology.

    Raises:
        RequestError: the profile of a disk does not exist.
    """
    controllers = {one.name: one for one in topology.controllers}
    timed = topology.timed
    return messages.Disks(
        members=tuple(_member(disk, controllers.get(disk.controller or ""), timed) for disk in topology.disks),
        controllers=tuple(
            hardware.ControllerSpec(
                name=one.name,
                bandwidth_mb_s=one.bandwidth_mb_s,
                commands_per_s=one.commands_per_s,
                cache=one.cache,
                battery=hardware.Battery(one.battery),
            )
            for one in topology.controllers
        ),
        slow_motion=topology.slow_motion,
    )


def _member(disk: DiskSpec, behind: ControllerSpec | None, timed: bool) -> messages.MemberSpec:
    profile = load_profile(disk.profile or NO_MECHANICS)
    mode = usual_mode(profile, behind)
    return messages.MemberSpec(
        serial=disk.serial,
        size=disk.size,
        # A disk that drops flushes from the start would lose the array's metadata: every test would fail the same way.
        mode=CacheMode.VOLATILE if mode is CacheMode.LYING else mode,
        profile=profile if timed else None,
        placement=Placement(disk.placement),
        controller=disk.controller if timed else None,
    )


def usual_mode(profile: Profile, behind: ControllerSpec | None = None) -> CacheMode:
    """Return the cache mode that a disk with this profile has in practice, behind its controller if there is one."""
    if behind is not None and behind.cache and behind.battery != "failed":
        # A controller with a cache disables the caches of its disks, or flushes them itself.
        return CacheMode.PROTECTED if behind.battery == "good" else CacheMode.LYING
    if not profile.timed:
        return CacheMode.VOLATILE
    if profile.cache.protected:
        return CacheMode.PROTECTED
    return CacheMode.VOLATILE if profile.cache.write_back else CacheMode.NONE


def usual_modes(topology: Topology) -> dict[str, CacheMode]:
    """Return the usual cache mode of each disk of a topology, by serial number; see `usual_mode`."""
    controllers = {one.name: one for one in topology.controllers}
    return {
        disk.serial: usual_mode(load_profile(disk.profile or NO_MECHANICS), controllers.get(disk.controller or ""))
        for disk in topology.disks
    }


def riskiest_mode(topology: Topology) -> CacheMode:
    """Return the cache mode with the greatest possible data loss at a power cut among the disks of a topology."""
    modes = set(usual_modes(topology).values())
    by_risk = (CacheMode.LYING, CacheMode.VOLATILE, CacheMode.PROTECTED, CacheMode.NONE)
    return next(mode for mode in by_risk if mode in modes)


def require_write_cache(topology: Topology, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
    """Check that the disks that get a cache mode have a write cache; ``serials``: these disks, None: all disks.

    Raises:
        RequirementMissing: a disk has none, and the mode needs one: the kernel sends no flush to such a disk.
    """
    usual = usual_modes(topology)
    without = [one for one in (usual if serials is None else serials) if usual[one] is CacheMode.NONE]
    if mode is not CacheMode.NONE and without:
        raise RequirementMissing(
            f"{', '.join(sorted(without))}: the profile has no write cache, and the kernel sends no flush to such a "
            f"disk: cache mode {mode.value} needs a profile with a write cache"
        )
