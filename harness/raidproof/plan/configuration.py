"""The configuration of a server and its clients, as far as the rules for warnings read it."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from raidproof.core.units import MIB
from raidproof.disk.profile import Profile, load_profile
from raidproof.plan.cell import Cell
from raidproof.plan.hardware import Hardware
from raidproof.storage.array import LEVELS
from raidproof.storage.array.level import Level
from raidproof.storage.server import ExportSpec

WriteCache = Literal["none", "volatile", "protected"]
"""Where acknowledged writes of the members are until a flush: on the medium, or in a cache that a power cut empties
(volatile) or does not empty (protected)."""
LogPlace = Literal["members", "member's disk", "own disk", "none"]
"""Where the log of the file system is: in the array, on a disk that is also a member's, on another disk; or no log."""
NEGOTIATED = MIB
"""wsize in bytes of a mount without this option, if the server has at least 4 GiB of memory: nfsd's largest WRITE."""


class Configuration(BaseModel):
    """The settings of one server and its clients that rules read. None: not known, so that no rule fires for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Drives.
    write_cache: WriteCache | None = None
    rotational: bool | None = None
    """Whether the members are rotating disks."""
    member_size: int | None = None
    """Bytes of the real drive of a member, not of the lab's disk."""

    # Array.
    level: str | None = None
    members: int = 0
    """Number of members; 0: not known."""
    legs: int = 1
    layout: str | None = None
    chunk_size: int | None = None
    """Bytes; None also for a level without chunks."""
    policy: str | None = None
    """How md makes the array consistent after a crash: none, resync, bitmap, journal, ppl (md/consistency_policy)."""
    degraded: int | None = None
    """Number of members that are missing or not rebuilt."""
    mismatches: int | None = None
    """Value of md/mismatch_cnt."""
    sync_speed_max: int | None = None
    """Limit of the speed of a resync and a rebuild, in bytes per second of each member."""

    # File system.
    filesystem: str | None = None
    su: int | None = None
    """Stripe unit in bytes; 0: not aligned."""
    sw: int | None = None
    """Stripe width in stripe units; 0: not aligned."""
    barriers: bool | None = None
    """Whether the file system flushes the caches of its disks."""
    data_mode: str | None = None
    """Data mode of ext4."""
    log_place: LogPlace | None = None
    log_needed: bool = True
    """Whether the file system is unusable without an external log."""
    log_mirrored: bool | None = None
    """Whether an external log is on an array with redundancy."""

    # Export and server.
    sync: bool | None = None
    """Export option sync or async."""
    wdelay: bool | None = None
    subtree_check: bool | None = None
    open_to_all: bool | None = None
    """Whether a space before the options gives them to every client instead of the named one."""
    lease_s: int | None = None
    grace_s: int | None = None

    # Mounts of the clients.
    vers: str | None = None
    udp: bool | None = None
    recovery: Literal["hard", "soft", "softerr"] | None = None
    wsize: int | None = None
    """Bytes of the largest WRITE."""
    sends_at_once: bool | None = None
    """Whether the mount has the option sync or noac."""
    interruptible: bool | None = None
    """Whether the mount has the option intr or nointr."""
    nolock: bool | None = None

    @property
    def kind(self) -> type[Level] | None:
        """The class of the RAID level."""
        return LEVELS[self.level] if self.level is not None else None

    @property
    def raid(self) -> Level | None:
        """The RAID level with its number of members, its layout and its legs."""
        return self.kind.of(self.members, self.layout, self.legs) if self.kind is not None and self.members else None


def profiles_of(hardware: Hardware) -> dict[str, Profile]:
    """Return the profile of each disk of a plan's hardware, by serial."""
    known = {name: load_profile(name) for group in hardware.disks for name in dict.fromkeys(group.each)}
    return {disk.spec.serial: known[str(disk.spec.profile)] for disk in hardware.each_disk}


def configuration_of(hardware: Hardware, cell: Cell, profiles: Mapping[str, Profile]) -> Configuration:
    """Return the configuration that a cell requests on a plan's hardware; ``profiles``: those of `profiles_of`."""
    stack = cell.stack
    array, filesystem, export, mount = stack.array, stack.filesystem, stack.export, stack.mount
    alignment = filesystem.alignment(array.geometry)
    drives = tuple(profiles[serial] for serial in array.members)
    options = filesystem.mount_options
    knfsd = export if isinstance(export, ExportSpec) else None
    return Configuration(
        write_cache=write_cache_of(drives, protected=_protected(hardware)),
        rotational=any(one.rotational is not None for one in drives),
        member_size=min(one.capacity for one in drives) if all(one.timed for one in drives) else None,
        level=array.level,
        members=len(array.members),
        legs=array.leg_count,
        layout=array.layout_name,
        chunk_size=array.chunk_size,
        policy=array.policy,
        sync_speed_max=stack.tuning.sync_speed_max,
        filesystem=filesystem.type,
        su=alignment.su if alignment else 0,
        sw=alignment.sw if alignment else 0,
        barriers=not without_barriers(options),
        data_mode=getattr(filesystem, "data", None),
        log_place="none" if not getattr(filesystem, "journal", True) else "own disk" if filesystem.log else "members",
        log_needed=filesystem.needs_log,
        log_mirrored=False if filesystem.log else None,
        sync=export.sync,
        wdelay=knfsd.wdelay if knfsd else None,
        subtree_check=knfsd.subtree_check if knfsd else None,
        lease_s=export.lease_to_set_s,
        grace_s=export.grace_to_set_s,
        vers=mount.vers,
        udp=False,
        recovery=mount.recovery,
        wsize=mount.wsize or min(NEGOTIATED, export.max_block_size),
        sends_at_once=bool(mount.sync or mount.noac),
        interruptible=False,
        nolock=mount.local_locks,
    )


def without_barriers(options: tuple[str, ...]) -> bool:
    """Return whether mount options switch the flushes of the file system off; the last option counts."""
    named = [one for one in options if one in {"nobarrier", "barrier", "barrier=0", "barrier=1"}]
    return bool(named) and named[-1] in {"nobarrier", "barrier=0"}


def write_cache_of(drives: tuple[Profile, ...], *, protected: bool = False) -> WriteCache:
    """Return the write cache of members with these profiles; ``protected``: their controller has a protected cache."""
    caching = [one.cache for one in drives if one.cache.write_back and one.cache.size]
    if any(not cache.protected for cache in caching):
        # The cache of the controller does not protect the data in the cache of a drive.
        return "volatile"
    return "protected" if caching or protected else "none"


def _protected(hardware: Hardware) -> bool:
    controller = hardware.controller
    return controller is not None and controller.cache > 0 and controller.battery == "good"
