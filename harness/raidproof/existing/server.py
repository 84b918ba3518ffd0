"""An existing server as the plan re-creates it: drives, settings by axis with their sources, and what is left out."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from raidproof.core.errors import RequestError
from raidproof.disk.profile import load_profile
from raidproof.existing.appliance import appliance_of
from raidproof.existing.array_facts import ArrayFacts, array_facts
from raidproof.existing.below import Below, below
from raidproof.existing.client_facts import ClientFacts, client_facts
from raidproof.existing.drives import Drive, drives_of
from raidproof.existing.export_facts import export_facts
from raidproof.existing.exports import Client, Exported, chosen
from raidproof.existing.fact import Fact, LeftOut, StandIn, default, read
from raidproof.existing.filesystem_facts import FilesystemFacts, filesystem_facts
from raidproof.existing.reports import Reports
from raidproof.plan.configuration import Configuration, write_cache_of
from raidproof.plan.table import Value
from raidproof.storage.mount import SESSIONS
from raidproof.storage.server import USUAL_LEASE_S

USUAL_THREADS = 8
"""Number of nfsd threads without a setting: nfs.conf(5), threads."""
_NFSD = "/proc/fs/nfsd"
_PLANS_LEASE_S = 10
_LEASE_RANGE = range(10, 3601)
"""Seconds that nfsd accepts as lease and as grace period."""
_CACHES: Mapping[str, str] = {
    "none": "no write cache",
    "volatile": "a volatile write cache",
    "protected": "a protected write cache",
}


class ExistingServer(BaseModel):
    """One export of an existing server, with all layers below and the mount of a client."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    export: str
    """The exported directory."""
    export_source: str | None
    appliance: Fact[str] | None = None
    """The system of network storage whose layout the files have: ``Synology DSM``; None: no known one."""
    drives: tuple[Drive, ...]
    """The disks of the server: members in the order of their slots, then spares, journal and log."""
    settings: dict[str, Fact[Value]]
    """The value of each axis of a plan, by name of the axis."""
    left_out: tuple[LeftOut, ...]
    stand_ins: tuple[StandIn, ...] = ()
    """Properties of the server that the lab has in another form."""
    alternatives: tuple[str, ...] = ()
    """The names of switches of which the plan compares both values."""
    lacks_member: bool = False
    """Whether one member of the array is missing or not rebuilt."""
    configuration: Configuration
    """The values that the rules for warnings read."""

    @property
    def defaults(self) -> dict[str, str]:
        """The reason for each setting that was not read, by name of the axis."""
        return {name: fact.why_default for name, fact in self.settings.items() if fact.why_default is not None}


def export_paths(reports: Reports) -> tuple[str, ...]:
    """Return the exported directories that clients may write; the root of the NFSv4 name space only if it is alone.

    Raises:
        RequestError: an exports file was given, and no export is writable.
    """
    if reports.exports is None:
        return ()
    writable = [one for one in reports.exports if one.writer is not None]
    if not writable:
        found = ", ".join(one.path for one in reports.exports) or "no entry"
        raise RequestError(
            f"no export is writable (rw): {found}", remedy="a read-only export has no acknowledged writes to test"
        )
    # With fsid=0 a directory is the root for NFSv4; what clients write is usually in the exports below it.
    others = [one for one in writable if one.writer and one.writer.fsid not in {"0", "root"}]
    return tuple(dict.fromkeys(one.path for one in others or writable))


def server_of(reports: Reports, path: str | None, filesystem: str | None = None) -> ExistingServer:
    """Return the server with the export of a path. ``path`` None: no exports file was given; any array counts.

    ``filesystem`` replaces the type of the file system.

    Raises:
        RequestError: the path is not exported, is read-only, or is on no md array that a plan can re-create.
    """
    exported = chosen(reports.exports, path) if reports.exports is not None and path is not None else None
    client = exported.writer if exported else None
    if exported is not None and client is None:
        raise RequestError(f"{exported.source}: {exported.path} is read-only", remedy="export it with rw")
    where = path or _usual_path(reports)
    layers = below(reports, where, filesystem)
    drives = drives_of(layers.array, reports)
    array = array_facts(layers.array, reports)
    stored = filesystem_facts(layers, reports, array, filesystem)
    export = export_facts(exported, client)
    mounted = client_facts(reports, where)
    settings = {
        **array.settings,
        **layers.volume,
        **stored.settings,
        **export.settings,
        **_server_settings(reports),
        **mounted.settings,
    }
    without_tls = _without_tls(settings)
    return ExistingServer(
        export=where,
        export_source=exported.source if exported else None,
        appliance=appliance_of(reports),
        drives=(*drives, *stored.log_drives),
        settings=settings,
        left_out=(
            *array.left_out,
            *stored.left_out,
            *export.left_out,
            *_earlier_left_out(reports, exported),
            *mounted.left_out,
            *without_tls,
            *_between_left_out(reports, layers),
            *_caches_left_out(drives),
        ),
        stand_ins=(*array.stand_ins, *export.stand_ins),
        alternatives=export.alternatives,
        lacks_member=layers.array.lacks_one,
        configuration=_configuration(reports, layers, array, stored, mounted, drives, client, settings),
    )


def _without_tls(settings: dict[str, Fact[Value]]) -> list[LeftOut]:
    """Remove TLS, which the export requires, from the settings of a client whose NFS version has none in a lab."""
    required = settings.get("xprtsec")
    if required is None or settings["vers"].value in SESSIONS:
        return []
    del settings["xprtsec"]
    why = f"a lab has TLS only with NFS version {' and '.join(SESSIONS)}"
    return [LeftOut(what=f"export option xprtsec={required.value}", source=required.source, why=why)]


def _between_left_out(reports: Reports, layers: Below) -> tuple[LeftOut, ...]:
    source = reports.devices.source if reports.devices else "lsblk"
    why = "the lab has at most one device between file system and array: dm-crypt, or a linear or thin volume"
    return tuple(LeftOut(what=what, source=source, why=why) for what in layers.between)


def _caches_left_out(drives: tuple[Drive, ...]) -> tuple[LeftOut, ...]:
    """Return the write caches that were read and differ from those of the profiles of the drives."""
    groups: dict[tuple[str, str, str], list[Drive]] = {}
    for one in drives:
        simulated = write_cache_of((load_profile(one.profile.value),))
        if one.write_cache.was_read and one.write_cache.value != simulated:
            groups.setdefault((one.write_cache.value, one.profile.value, simulated), []).append(one)
    return tuple(
        LeftOut(
            what=f"drives with {_CACHES[found]}: {', '.join(one.name for one in those)}",
            source=str(those[0].write_cache.source),
            why=f"disks with profile {profile} have {_CACHES[simulated]}",
        )
        for (found, profile, simulated), those in groups.items()
    )


def _usual_path(reports: Reports) -> str:
    """Return a directory on the first array that is mounted, if no exports file was given."""
    devices = reports.devices.devices.values() if reports.devices else ()
    for device in devices:
        if device.kernel_name.startswith("md") and device.mounts:
            return device.mounts[0]
    for entry in reports.mounts:
        if entry.device.startswith("/dev/md"):
            return entry.directory
    return "/srv"


def _earlier_left_out(reports: Reports, exported: Exported | None) -> tuple[LeftOut, ...]:
    """Return the other entries of the same directory."""
    if exported is None:
        return ()
    others = [one for one in reports.exports or () if one.path == exported.path and one is not exported]
    why = f"of several entries of a directory, the last one counts ({exported.source})"
    return tuple(LeftOut(what=f"another entry of {exported.path}", source=one.source, why=why) for one in others)


def _server_settings(reports: Reports) -> dict[str, Fact[Value]]:
    conf, files = reports.nfs_conf, reports.kernel_files

    def effective(name: str, configured: Fact[int] | None) -> Fact[int] | None:
        file = files.get(f"{_NFSD}/{name}")
        if file is not None and file.number:
            return read(file.number, f"{file.source}, {file.path}")
        return configured

    threads = effective("threads", conf.threads)
    settings: dict[str, Fact[Value]] = {}
    if threads is not None and 1 <= threads.value <= 1024:
        settings["threads"] = read(threads.value, str(threads.source))
    else:
        settings["threads"] = default(USUAL_THREADS, "neither nfs.conf nor /proc/fs/nfsd/threads has it; nfs.conf(5)")
    for name, fact in (
        ("lease", effective("nfsv4leasetime", conf.lease_s)),
        ("grace", effective("nfsv4gracetime", conf.grace_s)),
    ):
        if fact is not None and fact.value in _LEASE_RANGE and fact.value != USUAL_LEASE_S:
            settings[name] = read(fact.value, str(fact.source))
        else:
            settings[name] = default(_PLANS_LEASE_S, _why_short(fact))
    return settings


def _why_short(fact: Fact[int] | None) -> str:
    """Return the reason for the plan's lease or grace period instead of the server's."""
    short = "to keep tests short"
    if fact is None:
        return f"{_PLANS_LEASE_S} s in place of the server's default of {USUAL_LEASE_S} s, {short}"
    if fact.value not in _LEASE_RANGE:
        least, most = _LEASE_RANGE[0], _LEASE_RANGE[-1]
        return f"{_PLANS_LEASE_S} s; nfsd refuses the {fact.value} s of {fact.source}: it accepts {least} to {most} s"
    return f"{_PLANS_LEASE_S} s in place of the server's {fact.value} s ({fact.source}), {short}"


def _configuration(
    reports: Reports,
    layers: Below,
    array: ArrayFacts,
    stored: FilesystemFacts,
    mounted: ClientFacts,
    drives: tuple[Drive, ...],
    client: Client | None,
    settings: dict[str, Fact[Value]],
) -> Configuration:
    members = [one for one in drives if one.duty == "member"]
    caches = {one.write_cache.value for one in members}
    sizes = [one.real_size for one in members if one.real_size]
    rotating = {one.rotational for one in members}
    conf = reports.nfs_conf

    def seconds(name: str, configured: Fact[int] | None) -> int:
        file = reports.kernel_files.get(f"{_NFSD}/{name}")
        found = file.number if file else None
        return found or (configured.value if configured else USUAL_LEASE_S)

    return Configuration(
        write_cache="volatile" if "volatile" in caches else next(iter(caches)) if len(caches) == 1 else None,
        rotational=next(iter(rotating)) if len(rotating) == 1 else None,
        member_size=min(sizes) if sizes else None,
        level=str(settings["level"].value),
        members=layers.array.raid_devices,
        layout=array.layout,
        chunk_size=array.chunk_size,
        policy=array.policy,
        degraded=array.degraded,
        mismatches=array.mismatches,
        sync_speed_max=array.sync_speed_max,
        filesystem=layers.filesystem,
        su=stored.su,
        sw=stored.sw,
        barriers=stored.barriers,
        data_mode=stored.data_mode,
        log_place=stored.log_place,
        log_mirrored=stored.log_mirrored,
        sync=client.sync if client else None,
        wdelay=client.wdelay if client else None,
        subtree_check=client.subtree_check if client else None,
        open_to_all=client.split_from is not None if client else None,
        lease_s=seconds("nfsv4leasetime", conf.lease_s),
        grace_s=seconds("nfsv4gracetime", conf.grace_s),
        **mounted.configuration,
    )
