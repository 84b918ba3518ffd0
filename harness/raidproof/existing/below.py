"""From an exported directory down to its md array, past file system and volumes; a refusal where there is none."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from raidproof.core.errors import RequestError
from raidproof.disk.drive_model import logical_drive
from raidproof.existing.block_devices import BlockDevices, Device
from raidproof.existing.fact import Fact, read
from raidproof.existing.fstab import Entry, resolved, within
from raidproof.existing.given import shortened
from raidproof.existing.md import MdArray
from raidproof.existing.reports import Reports
from raidproof.plan.table import Value

KNOWN = {"xfs": "xfs", "ext4": "ext4", "ext3": "ext4", "ext2": "ext4"}
"""File systems that a plan can create, by their name in fstab; ext4's driver mounts ext2 and ext3."""
OTHER_RAID = {
    "zfs": "ZFS has its own redundancy instead of md",
    "zfs_member": "ZFS has its own redundancy instead of md",
    "btrfs": "the import does not read the settings of btrfs",
    "bcachefs": "bcachefs has its own redundancy instead of md",
}
"""File systems that are refused, with the reason."""
LEVELS = ("raid0", "raid1", "raid4", "raid5", "raid6", "raid10")
_OWN_ARRAY = "test such a server itself with --provider hosts, or write a plan for md arrays by hand"
_BETWEEN = {"lvm": "LVM", "crypt": "dm-crypt", "part": "a partition"}
"""Types of devices that may be between file system and array. The plan has one of them, if it is LVM or dm-crypt."""
_THIN = ("-tpool", "_tdata", "_tmeta")
"""Ends of the names of the hidden devices of a thin pool (lvmthin(7))."""
_LVM_RAID = ("_rimage_", "_rmeta_", "_mimage_")
"""Parts of the names of the hidden volumes of an LVM volume with redundancy (lvmraid(7))."""


class Below(NamedTuple):
    """The layers below an exported directory."""

    array: MdArray
    filesystem: str
    """``xfs`` or ``ext4``."""
    filesystem_source: str | None
    """Where the type of the file system was read; None: it was chosen by the user."""
    mount: Entry | None
    device: Device | None
    """The device with the file system; None if lsblk does not list it."""
    volume: dict[str, Fact[Value]]
    """The settings of the volume of the plan that stands for a device between file system and array."""
    between: tuple[str, ...]
    """What is between file system and array and is left out: a second layer, other volumes of LVM, a partition."""


def below(reports: Reports, path: str, filesystem: str | None = None) -> Below:
    """Return the layers below an exported directory; ``filesystem`` replaces the type of its file system.

    Raises:
        RequestError: the file system is not xfs or ext4, or it is not on one md array.
    """
    mount, real = resolved(reports.mounts, path)
    device = _device(reports, mount, real)
    if mount is not None and device is not None and not _mounts(device, mount, real):
        # lsblk lists the mounts in effect; an entry of fstab with a shorter mount point is of another file system.
        mount = None
    _refuse_zfs(reports, mount, device, path)
    kind, source = (filesystem, None) if filesystem is not None else _kind(mount, device, reports, path)
    if kind not in KNOWN:
        why = OTHER_RAID.get(kind, "raidproof can create xfs and ext4 only")
        other = "--filesystem xfs imports array and export with another file system"
        remedy = other if _on_md(reports, device) else _OWN_ARRAY
        raise RequestError(f"{shortened(path)} is on {shortened(kind)}: {why}", remedy=remedy)
    array = _array(reports, mount, device, path)
    layers = _between(reports.devices, device) if device is not None and reports.devices is not None else []
    volume, kept = _volume(layers, reports)
    between = tuple(f"{_BETWEEN[one.type or '']} ({one.name})" for one in layers if one not in kept)
    return Below(array, KNOWN[kind], source, mount, device, volume, between)


def _device(reports: Reports, mount: Entry | None, path: str) -> Device | None:
    if (devices := reports.devices) is None:
        return None
    places = [(where, one) for one in devices.devices.values() for where in one.mounts if within(path, where)]
    if places:
        where, one = max(places, key=lambda pair: len(pair[0]))
        if mount is None or len(where) >= len(mount.directory):
            return one
    return devices.called(mount.device) if mount is not None else None


def _mounts(device: Device, mount: Entry, path: str) -> bool:
    longest = max((len(where) for where in device.mounts if within(path, where)), default=0)
    return len(mount.directory) >= longest


def _refuse_zfs(reports: Reports, mount: Entry | None, device: Device | None, path: str) -> None:
    """Refuse a path that only the root file system holds, on a server with ZFS, which mounts without fstab."""
    devices = reports.devices.devices.values() if reports.devices else ()
    pools = [one for one in devices if one.filesystem == "zfs_member"]
    at_root = (mount is None or mount.directory == "/") and (device is None or "/" in device.mounts)
    if pools and at_root:
        raise RequestError(
            f"{shortened(path)} is not on a mount that fstab or lsblk lists, and {pools[0].name} is in a ZFS pool: "
            f"{OTHER_RAID['zfs']}",
            remedy=_OWN_ARRAY,
        )


def _kind(mount: Entry | None, device: Device | None, reports: Reports, path: str) -> tuple[str, str | None]:
    if mount is not None and mount.type not in {"auto", "none"}:
        return mount.type, mount.source
    if device is not None and device.filesystem:
        return device.filesystem, reports.devices.source if reports.devices else "lsblk"
    if reports.superblocks:
        one = reports.superblocks[0]
        return one.type, one.source
    raise RequestError(
        f"none of the given files names the file system of {shortened(path)}",
        remedy="give --fstab, --lsblk, --xfs-info or --dumpe2fs, or name it with --filesystem xfs|ext4",
    )


def _on_md(reports: Reports, device: Device | None) -> bool:
    if device is None or reports.devices is None:
        return False
    return any(_is_md(one) for one in reports.devices.chain(device))


def _is_md(device: Device) -> bool:
    return device.kernel_name.startswith("md") and (device.type or "raid").startswith(("raid", "linear", "md"))


def _array(reports: Reports, mount: Entry | None, device: Device | None, path: str) -> MdArray:
    if device is None or reports.devices is None:
        return _by_name(reports, mount, path)
    chain = reports.devices.chain(device)
    if hidden := next((one for one in chain if any(word in one.name for word in _LVM_RAID)), None):
        raise RequestError(
            f"{shortened(path)} is on an LVM volume with its own redundancy ({hidden.name}), not on an md array that "
            "mdadm manages",
            remedy=_OWN_ARRAY,
        )
    if cache := next((one for one in chain if one.kernel_name.startswith(("bcache", "drbd"))), None):
        raise RequestError(f"{shortened(path)} is on {cache.name}, which raidproof cannot create", remedy=_OWN_ARRAY)
    arrays = [one for one in chain if _is_md(one)]
    if not arrays:
        _refuse_without_md(path, chain)
    top = arrays[0]
    under = {one.name for one in reports.devices.chain(top)}
    if others := [one.name for one in arrays if one.name not in under]:
        raise RequestError(
            f"{shortened(path)} is on a volume that spans several arrays: {', '.join([top.name, *others])}",
            remedy="raidproof builds a file system on one array; write a plan for one of them by hand",
        )
    if len(arrays) > 1:
        raise RequestError(
            f"{top.name} is an array of arrays: {', '.join(one.name for one in arrays[1:])}",
            remedy='write a plan by hand with level = "1+0" or "0+1"',
        )
    return _described(reports, reports.devices, top)


def _refuse_without_md(path: str, chain: Sequence[Device]) -> NoReturn:
    for one in chain:
        if one.model and (source := logical_drive(one.model, one.vendor or "")):
            raise RequestError(
                f"{shortened(path)} is on {one.name}, model {shortened(one.model)!r}: the members of a hardware RAID "
                f"are hidden ({source})",
                remedy="write a plan by hand, with a table hardware.controller; or use --provider hosts",
            )
    disks = sorted(one.name for one in chain if one.type == "disk")
    if any(one.filesystem == "zfs_member" for one in chain):
        raise RequestError(f"{shortened(path)} is on ZFS: {OTHER_RAID['zfs']}", remedy=_OWN_ARRAY)
    raise RequestError(
        f"{shortened(path)} is not on an md array, but on {', '.join(disks) or chain[0].name}",
        remedy="raidproof tests file systems on md arrays; export a directory of an array",
    )


def _described(reports: Reports, devices: BlockDevices, top: Device) -> MdArray:
    """Return the array that a device of lsblk is: as mdadm describes it, or else only as far as lsblk does."""
    for array in reports.arrays:
        names = {top.name, top.kernel_name}
        if array.name in names or {member.name for member in array.members} & set(top.below):
            return array
    if reports.arrays:
        known = ", ".join(array.name for array in reports.arrays)
        raise RequestError(
            f"{top.name} is not among the arrays that were given: {known}",
            remedy=f"give the output of: mdadm --detail /dev/{top.name}",
        )
    if top.type is None:
        raise RequestError(f"the level of {top.name} is not known", remedy="give --mdadm (mdadm --detail)")
    return MdArray(name=top.name, source=devices.source, level=top.type, raid_devices=len(top.below))


def _by_name(reports: Reports, mount: Entry | None, path: str) -> MdArray:
    """Return the array that a mount names, or the only one, if lsblk was not given or does not list the mount."""
    usable = [array for array in reports.arrays if array.level != "container"]
    if mount is not None:
        name = mount.device.removeprefix("/dev/").removeprefix("md/")
        for array in usable:
            if array.name == name:
                return array
    if not usable:
        raise RequestError(
            f"no array below {shortened(path)} is known", remedy="give --mdadm (mdadm --detail), and --lsblk"
        )
    if len(usable) > 1:
        known = ", ".join(array.name for array in usable)
        raise RequestError(
            f"none of the given files says on which of several arrays {shortened(path)} is: {known}",
            remedy="give --lsblk (lsblk --json -O)",
        )
    return usable[0]


def _between(devices: BlockDevices, device: Device) -> list[Device]:
    """Return the devices of the types in `_BETWEEN` that are between a device with a file system and its array."""
    chain = itertools.takewhile(lambda one: not _is_md(one), devices.chain(device))
    return [one for one in chain if one.type in _BETWEEN]


def _volume(layers: Sequence[Device], reports: Reports) -> tuple[dict[str, Fact[Value]], Sequence[Device]]:
    """Return the settings of the volume that re-creates one of the layers, and the layers that it stands for."""
    source = reports.devices.source if reports.devices is not None else "lsblk"
    if encrypted := [one for one in layers if one.type == "crypt"]:
        return {"volume": read("crypt", source)}, encrypted[:1]
    logical = [one for one in layers if one.type == "lvm"]
    if not logical:
        return {}, []
    top = reports.volumes.get(logical[0].name)
    # Without lvs only names tell the kinds apart: a volume without hidden parts, on one array, is linear.
    thin = any(one.name.endswith(_THIN) for one in logical)
    kind = top.segment if top is not None else "thin" if thin else "linear"
    if kind not in {"linear", "thin"} or (kind == "linear" and len(logical) > 1):
        return {}, []
    settings: dict[str, Fact[Value]] = {"volume": read(kind, top.source if top is not None else source)}
    pool = reports.volumes.get(top.pool) if top is not None and top.pool is not None else None
    if kind == "thin" and pool is not None and pool.chunk_size:
        settings["thin_chunk"] = read(pool.chunk_size, pool.source)
    # The default, passdown, takes effect only on an array that takes discards.
    if kind == "thin" and pool is not None and pool.discards in {"ignore", "nopassdown"}:
        settings["thin_discards"] = read(str(pool.discards), pool.source)
    return settings, logical
