"""The axes that a plan may vary: name, stack field, parser, formatter, and condition of each axis."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, BeforeValidator

from raidproof.core.errors import RequestError, RigError, nearest
from raidproof.core.registry import is_built_in
from raidproof.core.units import format_duration, format_rate, parse_duration, parse_rate, parse_size
from raidproof.plan.table import (
    Value,
    read_number,
    read_seconds,
    read_size,
    read_switch,
    read_sync,
    read_text,
    read_whole_seconds,
    word_of,
    write_plain,
    write_seconds,
    write_size,
    write_sync,
)
from raidproof.storage.array import ARRAYS, ArraySpec
from raidproof.storage.array.array import DEFAULT_KIND
from raidproof.storage.array.level import DEFAULT, LEVELS, Level, level_names, listed, read_level
from raidproof.storage.array.member_flags import FAILFAST, WRITE_MOSTLY, taking
from raidproof.storage.filesystem import FILESYSTEMS, USUAL, FilesystemSpec
from raidproof.storage.kerberos import FLAVOURS
from raidproof.storage.server import SERVERS, ServerSpec
from raidproof.storage.server.server import DEFAULT as USUAL_SERVER
from raidproof.storage.tls import POLICIES
from raidproof.storage.volume import DEFAULT as USUAL_VOLUME
from raidproof.storage.volume import VOLUMES, VolumeSpec

Settings = Mapping[str, Value]
"""Values by axis name. For an axis without a value, the stack layer uses its default."""

WORKLOAD = "workload."
"""Prefix of the names of axes that set a field of the workload: ``workload.bs``."""
RAID = "raid"
"""Name of the axis with the kind of array."""
VOLUME = "volume"
"""Name of the axis with the kind of device between the array and the file system."""


class Where(NamedTuple):
    """The condition under which an axis applies; a cell that does not meet the condition leaves the axis out."""

    holds: Callable[[Settings], bool]
    """Return whether the settings of a cell meet the condition."""
    text: str
    """Text for users: the settings under which the axis does not apply, and the reason. `unless` replaces ``{}``."""
    levels: Callable[[type[Level]], bool] | None = None
    """Return whether the text names a RAID level in place of ``{}``; None: the text has no ``{}``."""

    @property
    def unless(self) -> str:
        """Text for users: the settings under which the axis does not apply, and the reason."""
        return self.text if self.levels is None else self.text.format(listed(self.levels, "or"))


class Axis(NamedTuple):
    """One setting that a plan can vary."""

    name: str
    field: str
    """The field that the axis sets: ``layer.field`` of the stack; empty if the axis chooses disks or clients."""
    help: str
    read: Callable[[Any], Value] = read_text
    write: Callable[[Value], str] = write_plain
    where: Where | None = None

    def applies(self, settings: Settings) -> bool:
        """Return whether the axis applies to a cell with these settings."""
        return self.where is None or self.where.holds(settings)


def level_of(settings: Settings) -> type[Level]:
    """Return the RAID level in these settings, or the default level."""
    return LEVELS[str(settings.get("level", DEFAULT))]


def filesystem_of(settings: Settings) -> str:
    """Return the file system in these settings, or the default one."""
    return str(settings.get("filesystem", USUAL))


STRIPED = Where(
    lambda its: level_of(its).chunked,
    "level is {}: this level has no stripes",
    lambda kind: not kind.chunked,
)
REDUNDANT = Where(
    lambda its: level_of(its).redundant,
    "level is {}: this level has no redundancy",
    lambda kind: not kind.redundant,
)
BITMAPPED = Where(
    lambda its: (
        level_of(its).redundant and its.get("bitmap") != "none" and its.get("consistency_policy", "bitmap") == "bitmap"
    ),
    "the array has no bitmap: level is {}, bitmap is none, or consistency_policy is not bitmap",
    lambda kind: not kind.redundant,
)
PARITY = Where(
    lambda its: level_of(its).parity > 0 and ARRAYS[str(its.get(RAID, DEFAULT_KIND))].md_files,
    "level is not {}, or raid has no files of md in sysfs: only these arrays have a stripe cache",
    lambda kind: kind.parity > 0,
)
LAID_OUT = Where(
    lambda its: level_of(its).default_layout is not None,
    "level is not {}: only these levels have a layout",
    lambda kind: kind.default_layout is not None,
)
MIRRORED = Where(
    lambda its: taking(WRITE_MOSTLY)(level_of(its)),
    "level is not {}: only there md reads from one of several members",
    taking(WRITE_MOSTLY),
)
FAILING_FAST = Where(
    lambda its: taking(FAILFAST)(level_of(its)),
    "level is not {}: only there the flag takes effect",
    taking(FAILFAST),
)
NESTED = Where(
    lambda its: level_of(its).parts is not None,
    "level is not {}: only these levels have inner arrays",
    lambda kind: kind.parts is not None,
)
SPARED = Where(
    lambda its: "spares" in ARRAYS[str(its.get(RAID, DEFAULT_KIND))].model_fields, "raid has no spares of its own"
)
ON_SYNC = Where(
    lambda its: its.get("export", True) is True, "export is async: wdelay has no effect with async (exports(5))"
)

ON_V3 = Where(lambda its: its.get("vers") == "3", "vers is not 3: NFSv4 has its own locks")


def read_raid_level(value: Any) -> str:
    """Return the name of a RAID level, written as ``5`` or ``"raid5"``.

    Raises:
        RequestError: no level has this name.
    """
    return read_level(read_text(value))


def _size(name: str, field: str, text: str, where: Where | None = None) -> Axis:
    return Axis(name, field, text, read_size, write_size, where)


def _number(name: str, field: str, text: str, where: Where | None = None) -> Axis:
    return Axis(name, field, text, read_number, write_plain, where)


def _seconds(name: str, field: str, text: str) -> Axis:
    return Axis(name, field, text, read_whole_seconds, write_seconds)


def read_timeo(value: Any) -> str:
    """Return a duration in seconds, with fractions, as text: ``1.4s``.

    Raises:
        RequestError: the value is not a duration.
    """
    return write_seconds(f"{read_seconds(value):g}")


def read_rate(value: Any) -> int:
    """Return a rate in bits per second, written as ``"1Gbit"``.

    Raises:
        RequestError: the value is not a rate.
    """
    return parse_rate(read_text(value))


def _write_rate(value: Value) -> str:
    return format_rate(int(value))


def read_duration(value: Any) -> int:
    """Return a duration in nanoseconds, written as ``"100us"``.

    Raises:
        RequestError: the value is not a duration.
    """
    return parse_duration(read_text(value))


def _write_duration(value: Value) -> str:
    return format_duration(int(value))


_ARRAY = (
    _number("members", "", "number of member disks; default: all that no cell needs as another disk"),
    _number("spares", "", "number of spare disks of the array", SPARED),
    _size("chunk", "array.chunk_size", "chunk size of the array", STRIPED),
    Axis("layout", "array.layout", "layout of the array: left-symmetric, n2, f2, ... (md(4))", where=LAID_OUT),
    _number("legs", "array.legs", "number of inner arrays of a nested RAID level", NESTED),
    Axis(
        "bitmap",
        "array.bitmap",
        "write-intent bitmap of the array (md(4))",
        word_of("none", "internal"),
        where=REDUNDANT,
    ),
    _size(
        "bitmap_chunk",
        "array.bitmap_chunk",
        "bytes of the array that one bit of the write-intent bitmap covers",
        BITMAPPED,
    ),
    Axis(
        "consistency_policy",
        "array.consistency_policy",
        "how md makes the array consistent after a crash (mdadm(8))",
        word_of("resync", "bitmap", "journal", "ppl"),
        where=REDUNDANT,
    ),
    _number(
        "write_mostly",
        "array.write_mostly",
        "number of write-mostly members of the array, the last ones (mdadm(8))",
        MIRRORED,
    ),
    _number(
        "write_behind",
        "array.write_behind",
        "number of writes that md acknowledges before the write-mostly members have them (mdadm(8))",
        MIRRORED,
    ),
    Axis(
        "failfast",
        "array.failfast",
        "whether the members have the flag failfast (md(4))",
        read_switch,
        where=FAILING_FAST,
    ),
)
_FILESYSTEM = (
    _size("block_size", "filesystem.block_size", "block size of the file system"),
    _size("su", "filesystem.su", "stripe unit of the file system; default: the chunk size of the array"),
    _number("sw", "filesystem.sw", "stripe width of the file system, in stripe units"),
    Axis(
        "aligned",
        "filesystem.aligned",
        "whether the file system is aligned to the array's stripes",
        read_switch,
        write_plain,
        STRIPED,
    ),
    Axis(
        "log",
        "",
        "place of the log (XFS) or journal (ext4): in the file system (internal) or on a separate disk (external)",
        word_of("internal", "external"),
    ),
    _size("log_size", "filesystem.log_size", "size of the log or journal"),
    Axis(
        "mount_options",
        "filesystem.mount_options",
        'mount options of the file system on the server, for example "sync,noatime"',
    ),
)
_ABOVE = (
    Axis(
        "export",
        "export.sync",
        "export option sync or async: whether the server replies after the data are on disk (exports(5))",
        read_sync,
        write_sync,
    ),
    Axis(
        "wdelay",
        "export.wdelay",
        "whether nfsd delays a write to combine it with other writes (exports(5))",
        read_switch,
        write_plain,
        ON_SYNC,
    ),
    Axis(
        "root_squash",
        "export.root_squash",
        "whether the server maps root of a client to the anonymous user (exports(5))",
        read_switch,
    ),
    Axis("fsid", "export.fsid", "identity of the file system in file handles: a number, root, or a UUID (exports(5))"),
    _number("threads", "export.threads", "number of threads of the server"),
    _size("max_block_size", "export.max_block_size", "size of the largest READ or WRITE that the server accepts"),
    _seconds(
        "lease",
        "export.lease_s",
        "time for which the server keeps the opens and locks of a client that does not renew them; default: 10 s",
    ),
    _seconds(
        "grace",
        "export.grace_s",
        "time for which a restarted server accepts only reclaims of opens and locks; default: the value of lease",
    ),
    Axis("delegations", "export.delegations", "whether the server grants NFSv4 delegations", read_switch),
    Axis(
        "mount",
        "mount.sync",
        "mount option sync or async: whether a client sends each write at once (nfs(5))",
        read_sync,
        write_sync,
    ),
    Axis("vers", "mount.vers", "NFS version: 3 4.0 4.1 4.2", word_of("3", "4.0", "4.1", "4.2")),
    _size("rsize", "mount.rsize", "size of the largest READ that a client sends (nfs(5))"),
    _size("wsize", "mount.wsize", "size of the largest WRITE that a client sends (nfs(5))"),
    _number("nconnect", "mount.nconnect", "number of TCP connections of each client (nfs(5))"),
    Axis(
        "recovery",
        "mount.recovery",
        "what a client does if the server does not answer: hard, soft, softerr (nfs(5))",
        word_of("hard", "soft", "softerr"),
    ),
    Axis("timeo", "mount.timeo_s", "time after which a client repeats a request, for example 60s", read_timeo),
    _number("retrans", "mount.retrans", "number of retries of a client before further recovery (nfs(5))"),
    _seconds("actimeo", "mount.actimeo", "time for which a client caches attributes of files and directories"),
    _seconds("acregmin", "mount.acregmin", "least time for which a client caches attributes of a file"),
    _seconds("acregmax", "mount.acregmax", "greatest time for which a client caches attributes of a file"),
    _seconds("acdirmin", "mount.acdirmin", "least time for which a client caches attributes of a directory"),
    _seconds("acdirmax", "mount.acdirmax", "greatest time for which a client caches attributes of a directory"),
    Axis("noac", "mount.noac", "whether a client caches no attributes, and sends each write at once", read_switch),
    Axis("cto", "mount.cto", "whether an open revalidates the client's cache; false: nocto (nfs(5))", read_switch),
    Axis(
        "lookupcache",
        "mount.lookupcache",
        "which results of lookups a client caches: all, positive, none (nfs(5))",
        word_of("all", "positive", "none"),
    ),
    Axis(
        "lock",
        "mount.lock",
        "whether the server manages locks; false: nolock, of NFSv3 (nfs(5))",
        read_switch,
        where=ON_V3,
    ),
    Axis(
        "local_lock",
        "mount.local_lock",
        "which locks exclude only processes of one client: none, flock, posix, all; of NFSv3 (nfs(5))",
        word_of("none", "flock", "posix", "all"),
        where=ON_V3,
    ),
    Axis(
        "sharecache", "mount.sharecache", "whether mounts of an export on a client share caches (nfs(5))", read_switch
    ),
    Axis(
        "softreval",
        "mount.softreval",
        "whether a client uses its caches while the server is away (nfs(5))",
        read_switch,
    ),
    Axis(
        "write",
        "mount.write",
        "when a client sends the data of write(): lazy, eager, wait (nfs(5))",
        word_of("lazy", "eager", "wait"),
    ),
    _number("max_connect", "mount.max_connect", "greatest number of connections to addresses of a server (nfs(5))"),
    Axis(
        "sec",
        "mount.sec",
        "security of requests, of mounts and export: sys, krb5, krb5i, krb5p (nfs(5), exports(5))",
        word_of(*FLAVOURS),
    ),
    Axis(
        "xprtsec",
        "mount.xprtsec",
        "security of the transport, of mounts and export: none, tls, mtls (RFC 9289)",
        word_of(*POLICIES),
    ),
    Axis(
        "mount_options_client",
        "mount.other_options",
        'other mount options of the clients, as they stand, for example "noatime,nordirplus"',
    ),
    Axis(
        "scheduler",
        "tuning.scheduler",
        "I/O scheduler of the member disks",
        word_of("none", "mq-deadline", "kyber", "bfq"),
    ),
    _number("nr_requests", "tuning.nr_requests", "number of requests that may wait at each member disk (nr_requests)"),
    _size("max_request", "tuning.max_request", "size of the largest request to a member disk (max_sectors_kb)"),
    _size("read_ahead", "tuning.read_ahead", "read-ahead of each member disk"),
    _size("array_read_ahead", "tuning.array_read_ahead", "read-ahead of the array"),
    _number("stripe_cache_size", "tuning.stripe_cache_size", "size of md's stripe cache, in stripes", PARITY),
    _number(
        "md_threads",
        "tuning.md_threads",
        "number of additional md threads that handle stripes (group_thread_cnt)",
        PARITY,
    ),
    _size(
        "server_dirty_bytes",
        "tuning.server_dirty_bytes",
        "bytes of dirty pages on the server from which a writing process must itself write back (vm.dirty_bytes)",
    ),
    _size(
        "server_dirty_background_bytes",
        "tuning.server_dirty_background_bytes",
        "bytes of dirty pages on the server from which the kernel writes back (vm.dirty_background_bytes)",
    ),
    _size(
        "client_dirty_bytes",
        "tuning.client_dirty_bytes",
        "bytes of dirty pages on a client from which a writing process must itself write back (vm.dirty_bytes)",
    ),
    _size(
        "client_dirty_background_bytes",
        "tuning.client_dirty_background_bytes",
        "bytes of dirty pages on a client from which the kernel writes back (vm.dirty_background_bytes)",
    ),
    Axis("rate", "link.rate", "rate of each machine's network link", read_rate, _write_rate),
    Axis("delay", "link.delay", "delay of each packet that a machine sends", read_duration, _write_duration),
    Axis("jitter", "link.jitter", "random variation of the packet delay", read_duration, _write_duration),
    _number("clients", "", "number of clients that run the workload at the same time; default: all"),
)


def axes(*, built_in: bool = False) -> dict[str, Axis]:
    """Return all axes by name, the lowest layer first, including the axes of single kinds of a layer.

    ``built_in``: without the levels, arrays, volumes, file systems and servers of other distributions.

    Raises:
        RigError: an axis of a kind of layer has the name of another axis.
    """
    levels, arrays, volumes, kinds, servers = (
        [(name, kind) for name, kind in registry.items() if not built_in or is_built_in(kind)]
        for registry in (LEVELS, ARRAYS, VOLUMES, FILESYSTEMS, SERVERS)
    )
    named = [name for name in level_names() if name in dict(levels)]
    return _axes(tuple(named), tuple(arrays), tuple(volumes), tuple(kinds), tuple(servers))


@cache
def _axes(
    levels: tuple[str, ...],
    arrays: tuple[tuple[str, type[ArraySpec]], ...],
    volumes: tuple[tuple[str, type[VolumeSpec]], ...],
    kinds: tuple[tuple[str, type[FilesystemSpec]], ...],
    servers: tuple[tuple[str, type[ServerSpec]], ...],
) -> dict[str, Axis]:
    raids = [name for name, _ in arrays]
    raid = Axis(RAID, "array.type", f"kind of array: {' or '.join(raids)}", word_of(*raids))
    array = (_only_where_it_is_a_field(axis, _LAYER_ARRAY, dict(arrays)) for axis in _ARRAY)
    level = Axis("level", "array.level", f"RAID level: {' '.join(levels)}", read_raid_level)
    layers = [name for name, _ in volumes]
    text = f"device between array and file system: {' or '.join(layers)}"
    volume = Axis(VOLUME, "volume.type", text, word_of(*layers))
    words = [name for name, _ in kinds]
    kind = Axis("filesystem", "filesystem.type", f"type of the file system: {' or '.join(words)}", word_of(*words))
    shared = (_where_supported(axis, dict(kinds)) for axis in _FILESYSTEM)
    common = {axis.name: axis for axis in (raid, level, *array, volume, kind, *shared)}
    daemons = [name for name, _ in servers]
    server = Axis("server", "export.type", f"type of the NFS server: {' or '.join(daemons)}", word_of(*daemons))
    exported = (_only_where_it_is_a_field(axis, _LAYER_EXPORT, dict(servers)) for axis in _ABOVE)
    above = {axis.name: axis for axis in (server, *exported)}
    own = {
        name: _own_axis(name, text, layer, dict(of))
        for layer, of in (
            (_LAYER_ARRAY, arrays),
            (_LAYER_VOLUME, volumes),
            (_LAYER_FILES, kinds),
            (_LAYER_EXPORT, servers),
        )
        for _, one in of
        for name, text in one.axes.items()
    }
    if twice := sorted(own.keys() & (common.keys() | above.keys())):
        raise RigError(f"axes of single kinds have the same names as other axes: {', '.join(twice)}")
    return {**common, **own, **above}


class _Layer(NamedTuple):
    """A layer of the stack with several kinds."""

    name: str
    chooser: str
    """The axis that chooses the kind."""
    usual: str
    """The kind of a cell without a value on that axis."""


_LAYER_ARRAY = _Layer("array", RAID, DEFAULT_KIND)
_LAYER_VOLUME = _Layer("volume", VOLUME, USUAL_VOLUME)
_LAYER_FILES = _Layer("filesystem", "filesystem", USUAL)
_LAYER_EXPORT = _Layer("export", "server", USUAL_SERVER)


def _only_where_it_is_a_field(axis: Axis, layer: _Layer, kinds: Mapping[str, type[BaseModel]]) -> Axis:
    """Return an axis that also requires, if it is of this layer, a kind of the layer with the field of the axis."""
    of, _, field = axis.field.partition(".")
    having = {kind for kind, spec in kinds.items() if field in spec.model_fields}
    if of != layer.name or len(having) == len(kinds):
        return axis
    where = axis.where
    text = f"{layer.chooser} is not {' or '.join(sorted(having))}"
    return axis._replace(
        where=Where(
            lambda its: its.get(layer.chooser, layer.usual) in having and (where is None or where.holds(its)),
            f"{where.text}, or {text}" if where else text,
            where.levels if where else None,
        )
    )


def _own_axis(name: str, text: str, layer: _Layer, kinds: Mapping[str, type[BaseModel]]) -> Axis:
    """Return the axis of a setting that only some kinds of a layer have; ``kinds``: their specifications."""
    fields = {kind: spec.model_fields[name] for kind, spec in kinds.items() if name in spec.model_fields}
    read, write = _how([part for one in fields.values() for part in (*_parts(one.annotation), *one.metadata)])
    where = Where(
        lambda its: its.get(layer.chooser, layer.usual) in fields, f"{layer.chooser} is not {' or '.join(fields)}"
    )
    return Axis(name, f"{layer.name}.{name}", text, read, write, where)


def _where_supported(axis: Axis, kinds: Mapping[str, type[FilesystemSpec]]) -> Axis:
    """Return the axis of a common setting, which is left out for the file systems without this setting."""
    lacking = {name for name, kind in kinds.items() if axis.name in kind.unsupported}
    if not lacking:
        return axis
    reasons = [*([axis.where.unless] if axis.where else []), f"filesystem is {' or '.join(sorted(lacking))}"]
    holds = lambda its: axis.applies(its) and filesystem_of(its) not in lacking  # noqa: E731
    return axis._replace(where=Where(holds, "; or ".join(reasons)))


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _how(parts: list[Any]) -> tuple[Callable[[Any], Value], Callable[[Value], str]]:
    """Return the parser and the formatter of a field of a specification, chosen by the parts of its annotation."""
    if words := [word for part in parts if get_origin(part) is Literal for word in get_args(part)]:
        return word_of(*dict.fromkeys(words)), write_plain
    if BeforeValidator(parse_size) in parts:
        return read_size, write_size
    if bool in parts:
        return read_switch, write_plain
    return (read_number if int in parts else read_text), write_plain


def axis_of(name: str) -> Axis:
    """Return the axis of this name.

    Raises:
        RequestError: no axis has this name; the message names the nearest one.
    """
    if name.startswith(WORKLOAD):
        return Axis(name, "", "a setting of the workload", read=_read_any)
    known = axes()
    if name not in known:
        raise RequestError(f"unknown axis {name!r}; {nearest(name, known)}")
    return known[name]


def read_value(name: str, value: Any) -> Value:
    """Parse a value of an axis; equal values in different notations (``64KiB``, ``65536``) give the same result.

    Raises:
        RequestError: the axis is unknown, or the value is invalid for the axis.
    """
    axis = axis_of(name)
    try:
        return axis.read(value)
    except RequestError as error:
        raise RequestError(f"{name}: {error}") from error


def write_value(name: str, value: Value) -> str:
    """Return a value of an axis in the notation of plan files, such as ``64KiB``."""
    return axis_of(name).write(value)


def _read_any(value: Any) -> Value:
    if not isinstance(value, str | int | bool):
        raise RequestError(f"not text, a whole number, true or false: {value!r}")
    return value
