"""The member disks of a lab: their interface, and the engine's configuration of them for a topology."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from raidproof.core.topology import NO_MECHANICS, ControllerSpec, DiskSpec, Topology
from raidproof.disk import messages
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.disk_fault import DiskFault
from raidproof.disk.messages import Counters, Description, LogClosed, Use
from raidproof.disk.profile import Profile, load_profile
from raidproof.disk.timing import hardware
from raidproof.disk.timing.rotational import Placement


class Disks(Protocol):
    """The member disks of a lab: those of the disk engine, or real ones.

    Real disks raise RequirementMissing for what they do not support.
    """

    @property
    def zeroed(self) -> bool:
        """Whether `reset` leaves zeroes everywhere: then the members of an array agree before their first resync."""

    def require(self, mode: CacheMode, policy: CutPolicy) -> None:
        """Check, before anything is built, that these disks support a cache mode and a cut policy.

        Raises:
            RequirementMissing: they have no such cache, or cannot lose it in this way.
        """

    def reset(self, old: Iterable[str] = ()) -> None:
        """Make all members blank, with their initial modes and counters.

        ``old``: serials of members whose unwritten parts shall read as old data. Real disks keep the data they have.
        """

    def set_mode(self, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
        """Change the cache mode of some members, or of all."""

    def set_timing(self, on: bool) -> None:
        """Simulate the disks' service times, or answer requests at once."""

    def use(self) -> Use:
        """Return the utilization counters of disks and controllers."""

    def counters(self) -> dict[str, Counters]:
        """Return the request counters of each member, by serial."""

    def describe(self) -> Description:
        """Return what is served, and the state."""

    def log_start(self, path: Path, *, data: bool = True) -> None:
        """Begin a write log."""

    def log_stop(self) -> LogClosed | None:
        """End the write log; return None if these disks have none."""

    def set_disk_fault(self, serial: str, disk_fault: DiskFault) -> None:
        """Set a disk fault of a drive."""

    def clear_disk_faults(self, serials: Iterable[str] | None = None) -> None:
        """Remove the disk faults of some drives, or of all; damaged data stays damaged."""

    def corrupt(self, serial: str, offset: int, length: int, seed: int = 0) -> None:
        """Change every byte of a region of a drive, durably and silently."""

    def swap(self, one: str, other: str) -> None:
        """Exchange the content of two drives without power."""


def disks_of(topology: Topology) -> messages.Disks:
    """Return the disks of a topology as the engine's configuration.

    Raises:
        RequestError: a profile does not exist.
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
        # A disk that ignores flushes from the start would lose the whole array, so no test could lose anything else.
        mode=CacheMode.VOLATILE if mode is CacheMode.LYING else mode,
        profile=profile if timed else None,
        placement=Placement(disk.placement),
        controller=disk.controller if timed else None,
    )


def usual_mode(profile: Profile, behind: ControllerSpec | None = None) -> CacheMode:
    """Return the cache mode of a disk as sold, behind its controller."""
    if behind is not None and behind.cache and behind.battery != "failed":
        # Such a controller disables the disks' caches, or flushes them itself.
        return CacheMode.PROTECTED if behind.battery == "good" else CacheMode.LYING
    if not profile.timed:
        return CacheMode.VOLATILE
    if profile.cache.protected:
        return CacheMode.PROTECTED
    return CacheMode.VOLATILE if profile.cache.write_back else CacheMode.NONE


def usual_modes(topology: Topology) -> dict[str, CacheMode]:
    """Return the cache mode of each disk of a topology, by serial."""
    controllers = {one.name: one for one in topology.controllers}
    return {
        disk.serial: usual_mode(load_profile(disk.profile or NO_MECHANICS), controllers.get(disk.controller or ""))
        for disk in topology.disks
    }


def riskiest_mode(topology: Topology) -> CacheMode:
    """Return the riskiest cache mode among the disks of a topology: that from which a power cut can take most."""
    modes = set(usual_modes(topology).values())
    by_risk = (CacheMode.LYING, CacheMode.VOLATILE, CacheMode.PROTECTED, CacheMode.NONE)
    return next(mode for mode in by_risk if mode in modes)
