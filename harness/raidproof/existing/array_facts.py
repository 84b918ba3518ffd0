"""The array of an existing server: the settings of a plan, and the state that the rules for warnings read."""

from collections.abc import Mapping
from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.core.layer import power_of_two
from raidproof.core.units import KIB, MIB, parse_size
from raidproof.existing.fact import Fact, LeftOut, StandIn, default, read
from raidproof.existing.given import plain, shortened
from raidproof.existing.md import MdArray
from raidproof.existing.reports import Reports
from raidproof.plan.table import Value
from raidproof.storage.array import LEVELS, Level
from raidproof.storage.array.member_flags import FAILFAST, MOST_BEHIND, WRITE_MOSTLY
from raidproof.storage.array.superblock import LARGEST_CHUNK

USUAL_CHUNK = 512 * KIB
"""Bytes of mdadm's default chunk size since mdadm 3.1."""
_BY_KERNEL_NAME = {f"raid{name}": name for name in ("0", "1", "4", "5", "6", "10")}
_LEAST_BITMAP_CHUNK = MIB
"""Bytes of the smallest bitmap chunk for which mdadm has room on the lab's disks, whatever their size."""
_STRIPE_CACHE = range(17, 32769)
_WHY = {
    WRITE_MOSTLY: "plans have it for some members of a RAID1 without spares; md ignores it on other levels",
    FAILFAST: "plans have it for all members of a RAID1 or RAID10; md ignores it on other levels",
}
"""The reason why a flag of a member is not re-created."""
SCHEDULERS = ("none", "mq-deadline", "kyber", "bfq")


class ArrayFacts(NamedTuple):
    """The facts about an array."""

    settings: dict[str, Fact[Value]]
    left_out: tuple[LeftOut, ...]
    stand_ins: tuple[StandIn, ...]
    layout: str | None
    chunk_size: int | None
    policy: str | None
    degraded: int | None
    mismatches: int | None
    sync_speed_max: int | None


def array_facts(array: MdArray, reports: Reports) -> ArrayFacts:
    """Return the facts about an array.

    Raises:
        RequestError: the level or its layout is not among those that a plan can create.
    """
    if array.level not in _BY_KERNEL_NAME:
        raise RequestError(
            f"{array.source}: {array.name} has level {shortened(array.level)}, which raidproof cannot create",
            remedy=f"possible levels: {', '.join(_BY_KERNEL_NAME)}",
        )
    level = _BY_KERNEL_NAME[array.level]
    kind = LEVELS[level]
    if array.raid_devices < kind.least_members:
        raise RequestError(
            f"{array.source}: {array.name} is a RAID{level} of {array.raid_devices} members; at least "
            f"{kind.least_members} are needed",
            remedy="an array of one member has no redundancy: raidproof tests arrays of several members",
        )
    settings: dict[str, Fact[Value]] = {"level": read(level, array.source)}
    layout = array.layout if kind.default_layout is not None else None
    if kind.chunked:
        settings["chunk"] = _chunk(array)
    if kind.default_layout is not None:
        settings["layout"] = (
            read(layout, array.source)
            if layout
            else default(kind.default_layout, "mdadm's default; give --mdadm or --mdstat")
        )
        if (known := kind.layouts(array.raid_devices)) and settings["layout"].value not in known:
            raise RequestError(
                f"{array.source}: {array.name} has layout {shortened(str(layout))}, which raidproof cannot create",
                remedy=f"possible layouts: {', '.join(known)}",
            )
    if spares := array.named("spare"):
        settings["spares"] = read(len(spares), array.source)
    if kind.redundant:
        settings["consistency_policy"] = _policy(array)
        settings |= _bitmap_chunk(array, settings["consistency_policy"])
    settings |= _tuning(array, reports, parity=kind.parity > 0)
    flags = _flags(array, kind, reports)
    settings |= flags.settings
    return ArrayFacts(
        settings=settings,
        left_out=(*_left_out(array, settings), *flags.left_out),
        stand_ins=_stand_ins(array),
        layout=layout,
        chunk_size=int(settings["chunk"].value) if "chunk" in settings else None,
        policy=array.policy if array.policy is not None and kind.redundant else None,
        degraded=array.degraded,
        mismatches=_number(reports, array, "mismatch_cnt"),
        sync_speed_max=_kib(_number(reports, array, "sync_speed_max")),
    )


def _chunk(array: MdArray) -> Fact[Value]:
    if array.chunk_size is None:
        return default(USUAL_CHUNK, "mdadm's default; give --mdadm or --mdstat")
    if not power_of_two(array.chunk_size) and array.level != "raid0":
        raise RequestError(f"{array.source}: the chunk size of {array.name} is not a power of two")
    return read(array.chunk_size, array.source)


def _policy(array: MdArray) -> Fact[Value]:
    if array.policy is None or array.policy == "none":
        return default("bitmap", "mdadm's default for arrays of more than 100 GB; give --mdadm or --mdstat")
    return read(array.policy, array.source)


def _bitmap_chunk(array: MdArray, policy: Fact[Value]) -> dict[str, Fact[Value]]:
    """Return the setting for the chunk of the bitmap; empty if a plan cannot request it."""
    if array.bitmap_chunk is None or policy.value != "bitmap":
        return {}
    # mdadm and the kernel write KB for units of 1024 bytes.
    size = parse_size(array.bitmap_chunk.replace("B", "iB"))
    possible = power_of_two(size) and _LEAST_BITMAP_CHUNK <= size <= LARGEST_CHUNK
    return {"bitmap_chunk": read(size, array.source)} if possible else {}


def _tuning(array: MdArray, reports: Reports, *, parity: bool) -> dict[str, Fact[Value]]:
    found: dict[str, Fact[Value]] = {}
    cache = reports.kernel_files.get(f"/sys/block/{array.name}/md/stripe_cache_size")
    if parity and cache is not None and cache.number is not None and cache.number in _STRIPE_CACHE:
        found["stripe_cache_size"] = read(cache.number, cache.source)
    chosen: dict[str, str] = {}
    for path, file in reports.kernel_files.items():
        if path.endswith("/queue/scheduler") and "[" in file.value and _of_member(path, array, reports):
            chosen[file.value.partition("[")[2].partition("]")[0]] = file.source
    if len(chosen) == 1 and (scheduler := next(iter(chosen))) in SCHEDULERS:
        found["scheduler"] = read(scheduler, chosen[scheduler])
    return found


class _Flags(NamedTuple):
    settings: dict[str, Fact[Value]]
    left_out: tuple[LeftOut, ...]


def _flags(array: MdArray, kind: type[Level], reports: Reports) -> _Flags:
    """Return the settings for the flags of members, and the flagged members that the plan re-creates without flag."""
    settings: dict[str, Fact[Value]] = {}
    flagged = {flag: [one.name for one in array.members if flag in one.flags] for flag in (WRITE_MOSTLY, FAILFAST)}
    others = [name for role in ("spare", "journal") for name in array.named(role)]
    mostly = array.write_mostly
    if mostly and len(mostly) < array.raid_devices and not others:
        settings["write_mostly"] = read(len(mostly), array.source)
        flagged[WRITE_MOSTLY] = [name for name in flagged[WRITE_MOSTLY] if name not in mostly]
        behind = reports.kernel_files.get(f"/sys/block/{array.name}/md/bitmap/backlog")
        if behind is not None and behind.number and array.policy == "bitmap" and behind.number <= MOST_BEHIND:
            settings["write_behind"] = read(behind.number, behind.source)
    if flagged[FAILFAST] and FAILFAST in kind.member_flags and not {*array.active, *others} - {*flagged[FAILFAST]}:
        settings["failfast"] = read(True, array.source)
        flagged[FAILFAST] = []
    left = [(f"{name}: {flag}", flag) for flag, names in flagged.items() for name in names]
    return _Flags(settings, tuple(LeftOut(what=what, source=array.source, why=_WHY[flag]) for what, flag in left))


def _of_member(path: str, array: MdArray, reports: Reports) -> bool:
    disk = path.split("/")[3]
    devices = reports.devices
    disks = {found.kernel_name for name in array.active if devices and (found := devices.disk_of(name))}
    return disk in (disks or {name.rstrip("0123456789") for name in array.active})


def _number(reports: Reports, array: MdArray, name: str) -> int | None:
    file = reports.kernel_files.get(f"/sys/block/{array.name}/md/{name}")
    return file.number if file else None


def _kib(number: int | None) -> int | None:
    return None if number is None else number * KIB


def _left_out(array: MdArray, settings: Mapping[str, Fact[Value]]) -> tuple[LeftOut, ...]:
    found = []
    if array.metadata is not None and array.metadata not in {"1.2", "1.20"}:
        found.append((f"metadata {shortened(array.metadata)}", "plans create arrays with metadata 1.2"))
    if array.bitmap == "external":
        found.append(("bitmap in a file", "plans create an internal bitmap"))
    if array.bitmap_chunk is not None and "bitmap_chunk" not in settings:
        found.append((f"bitmap chunk {array.bitmap_chunk}", "mdadm may have no room for it on the lab's disks"))
    if array.degraded and not array.lacks_one:
        found.append((f"{array.degraded} missing or rebuilding members", "plans have at most one missing member"))
    found += [
        (plain(one), "plans do not re-create it") for one in dict.fromkeys(array.others) if one not in _rebuilds(array)
    ]
    return tuple(LeftOut(what=what, source=array.source, why=why) for what, why in found)


def _rebuilds(array: MdArray) -> tuple[str, ...]:
    """Return the progress of the rebuild of the only member that is not rebuilt, as the kernel writes it."""
    return tuple(one for one in array.others if array.lacks_one and one.startswith("recovery = "))


def _stand_ins(array: MdArray) -> tuple[StandIn, ...]:
    if not array.lacks_one:
        return ()
    how = 'explore_members = ["missing"]: clients also write to the array without one member, and the power is cut'
    return (
        StandIn(what=", ".join(("1 missing or rebuilding member", *_rebuilds(array))), source=array.source, why=how),
    )
