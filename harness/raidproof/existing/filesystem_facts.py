"""The file system of an existing server: the settings of a plan, and the values that the rules for warnings read."""

import re
from typing import NamedTuple

from raidproof.core.layer import PAGE_SIZE
from raidproof.core.units import KIB, format_size
from raidproof.existing.array_facts import ArrayFacts
from raidproof.existing.below import Below
from raidproof.existing.drives import Drive, drive
from raidproof.existing.fact import Fact, LeftOut, default, read
from raidproof.existing.given import shortened
from raidproof.existing.reports import FoundSuperblock, Reports
from raidproof.plan.configuration import LogPlace, without_barriers
from raidproof.plan.table import Value
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.storage.filesystem.state import Superblock

KEPT = {
    "xfs": frozenset({"wsync", "largeio", "swalloc", "inode32", "inode64", "logbufs", "logbsize", "allocsize"}),
    "ext4": frozenset({"nobarrier", "commit", "nodelalloc", "noauto_da_alloc", "journal_async_commit"}),
}
"""Mount options of each file system that change its writes, and that the kernel lists as they were requested."""
KEPT_BY_ALL = frozenset({"noatime", "nodiratime", "lazytime", "sync", "dirsync"})
_SAME = {"barrier=0": "nobarrier"}
"""Options that the kernel lists under another name."""
_SILENT = re.compile(
    r"defaults|rw|auto|nouser|exec|suid|dev|relatime|async|_netdev|nofail|x-[\w.-]+.*|comment=.*|errors=.*|attr2|"
    r"barrier|barrier=1|delalloc|data=.*|sunit=.*|swidth=.*|logdev=.*|journal_path=.*|noquota|seclabel|user_xattr|acl|"
    r"stripe=.*|noquota"
)
"""Options without an effect on writes, or defaults, or options that other settings of the plan request."""


class FilesystemFacts(NamedTuple):
    """The facts about a file system."""

    settings: dict[str, Fact[Value]]
    left_out: tuple[LeftOut, ...]
    log_drives: tuple[Drive, ...]
    su: int | None
    sw: int | None
    barriers: bool | None
    data_mode: str | None
    log_place: LogPlace | None
    log_mirrored: bool | None


def filesystem_facts(layers: Below, reports: Reports, array: ArrayFacts, chosen: str | None) -> FilesystemFacts:
    """Return the facts about the file system; ``chosen``: the type that the user chose in place of the server's."""
    kind = layers.filesystem
    found = _superblock(layers, reports) if chosen is None else None
    superblock = found.superblock if found else None
    settings: dict[str, Fact[Value]] = {
        "filesystem": read(kind, layers.filesystem_source)
        if layers.filesystem_source is not None
        else default(kind, "chosen by --filesystem")
    }
    left_out: list[LeftOut] = []
    settings |= _from_superblock(kind, found, array, left_out)
    options = layers.mount.options if layers.mount is not None and chosen is None else None
    data_mode = None
    if kind == "ext4":
        data_mode = _data_mode(options)
        settings["data"] = _data_fact(layers, options, data_mode)
    if superblock is not None and superblock.log == "none":
        settings["journal"] = read(False, found.source if found else "")
        settings.pop("data", None)
    settings |= _options(kind, layers, options, left_out)
    log_drives, place, mirrored = _log(layers, reports, superblock, options)
    if log_drives:
        source = found.source if found else layers.mount.source if layers.mount else "fstab"
        settings["log"] = read("external", source)
        if mirrored:
            left_out.append(LeftOut(what="log on an array", source=source, why="the lab's log is on one disk"))
    return FilesystemFacts(
        settings=settings,
        left_out=tuple(left_out),
        log_drives=log_drives,
        su=superblock.su if superblock else None,
        sw=superblock.sw if superblock else None,
        barriers=not without_barriers(options) if options is not None else None,
        data_mode=data_mode,
        log_place=place,
        log_mirrored=mirrored,
    )


def _superblock(layers: Below, reports: Reports) -> FoundSuperblock | None:
    names = {layers.device.name, layers.device.kernel_name} if layers.device else set()
    same = [one for one in reports.superblocks if one.type == layers.filesystem]
    for one in same:
        if one.device in names:
            return one
    # A text without a device is about the only file system that the user means.
    return next((one for one in same if one.device is None), None)


def _from_superblock(
    kind: str, found: FoundSuperblock | None, array: ArrayFacts, left_out: list[LeftOut]
) -> dict[str, Fact[Value]]:
    if found is None:
        how = "--xfs-info" if kind == "xfs" else "--dumpe2fs"
        return {"block_size": default(PAGE_SIZE, f"mkfs's default, as is the alignment to the array; give {how}")}
    one, settings = found.superblock, dict[str, Fact[Value]]()
    if one.block_size <= PAGE_SIZE:
        settings["block_size"] = read(one.block_size, found.source)
    else:
        settings["block_size"] = default(
            PAGE_SIZE, f"the lab's kernels have no blocks of {format_size(one.block_size)}"
        )
    unit = int(settings["block_size"].value)
    if one.su and one.sw and one.su % unit == 0:
        settings["su"], settings["sw"] = read(one.su, found.source), read(one.sw, found.source)
    elif one.su == 0 and array.chunk_size is not None:
        settings["aligned"] = read(False, f"{found.source} (no stripe unit)")
    elif one.su:
        left_out.append(LeftOut(what="stripe unit without a width", source=found.source, why="mkfs refuses it"))
    if kind == "xfs" and one.sector_size is not None and one.sector_size <= unit:
        settings["sector_size"] = read(one.sector_size, found.source)
    if one.cluster_size is not None and one.cluster_size > one.block_size == unit:
        settings["cluster_size"] = read(one.cluster_size, found.source)
    settings |= {name: read(enabled, found.source) for name, enabled in _features(kind, one).items()}
    if one.log_size:
        size = f"log of {round(one.log_size / KIB / KIB)} MiB"
        why = "mkfs chooses a log that fits the smaller file system of the lab"
        left_out.append(LeftOut(what=size, source=found.source, why=why))
    return settings


def _features(kind: str, superblock: Superblock) -> dict[str, bool]:
    """Return the features that plans can request, by setting; an old xfs_info does not list all of them."""
    listed = {word.partition("=")[0] for word in superblock.features}
    return {
        name: word in superblock.features
        for name, word in FILESYSTEMS[kind].features.items()
        if "=" not in word or word.partition("=")[0] in listed
    }


def _data_mode(options: tuple[str, ...] | None) -> str | None:
    if options is None:
        return None
    modes = [one.partition("=")[2] for one in options if one.startswith("data=")]
    return modes[-1] if modes and modes[-1] in {"journal", "ordered", "writeback"} else "ordered"


def _data_fact(layers: Below, options: tuple[str, ...] | None, mode: str | None) -> Fact[Value]:
    if mode is None or layers.mount is None:
        return default("ordered", "the mount options were not read; ext4(5)")
    written = any(one.startswith("data=") for one in options or ())
    default_of = "" if written else " (not written: the default of ext4(5))"
    return read(mode, f"{layers.mount.source}{default_of}")


def _options(
    kind: str, layers: Below, options: tuple[str, ...] | None, left_out: list[LeftOut]
) -> dict[str, Fact[Value]]:
    if options is None or layers.mount is None:
        return {}
    kept = []
    for written in options:
        option = _SAME.get(written, written)
        name = option.partition("=")[0]
        if name in KEPT_BY_ALL | KEPT[kind] and re.fullmatch(r"[a-z0-9_]+(=[^,\s]+)?", option):
            kept.append(option)
        elif not _SILENT.fullmatch(option):
            why = "XFS of the lab's kernels refuses it" if "barrier" in option else "no effect on writes, or unknown"
            left_out.append(LeftOut(what=f"mount option {shortened(option)}", source=layers.mount.source, why=why))
    if not kept:
        return {}
    return {"mount_options": read(",".join(dict.fromkeys(kept)), layers.mount.source)}


def _log(
    layers: Below, reports: Reports, superblock: Superblock | None, options: tuple[str, ...] | None
) -> tuple[tuple[Drive, ...], LogPlace | None, bool | None]:
    """Return the drive of an external log, the place of the log, and whether an external log is mirrored."""
    named = [one.partition("=")[2] for one in options or () if one.startswith(("logdev=", "journal_path="))]
    external = bool(named) or (superblock is not None and superblock.log not in {"internal", "none"})
    if not external:
        if superblock is None:
            return (), None if options is None else "members", None
        return (), "none" if superblock.log == "none" else "members", None
    source = named[-1] if named else superblock.log if superblock else ""
    devices = reports.devices
    device = devices.called(source) if devices else None
    name = device.name if device else source.removeprefix("/dev/") or "log"
    log = drive(shortened(name), "log", reports)
    if device is None or devices is None:
        return (log,), "own disk", None
    chain = devices.chain(device)
    mirrored = any((one.type or "") in {"raid1", "raid10", "raid5", "raid6"} for one in chain)
    mine = {one.name for one in chain if one.type == "disk"}
    members = {found.name for member in layers.array.active if (found := devices.disk_of(member))}
    return (log,), "member's disk" if mine & members else "own disk", mirrored
