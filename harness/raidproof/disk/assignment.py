"""The configuration of the disk engine for a topology: mechanics, controller and cache mode of each member disk."""

from raidproof.core.topology import NO_MECHANICS, ControllerSpec, DiskSpec, Topology
from raidproof.disk.cache import CacheMode
from raidproof.disk.messages import Disks, MemberSpec
from raidproof.disk.profile import Profile, load_profile
from raidproof.disk.timing import hardware
from raidproof.disk.timing.rotational import Placement


def disks_of(topology: Topology) -> Disks:
    """Return the disks of a topology as the engine's configuration.

    Raises:
        RequestError: a profile does not exist.
    """
    controllers = {one.name: one for one in topology.controllers}
    timed = topology.timed
    return Disks(
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


def _member(disk: DiskSpec, behind: ControllerSpec | None, timed: bool) -> MemberSpec:
    profile = load_profile(disk.profile or NO_MECHANICS)
    mode = usual_mode(profile, behind)
    return MemberSpec(
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
