"""The axes that a plan may vary: under which name, what each goes to, how it reads, and where it means nothing."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BeforeValidator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.units import format_duration, format_rate, parse_duration, parse_rate, parse_size
from raidproof.plan.table import (
    Value,
    read_number,
    read_size,
    read_switch,
    read_sync,
    read_text,
    read_whole_seconds,
    require_known,
    word_of,
    write_plain,
    write_seconds,
    write_size,
    write_sync,
)
from raidproof.storage.array.level import DEFAULT, LEVELS, Level, level_names, listed, read_level
from raidproof.storage.filesystem import FILESYSTEMS, FilesystemSpec
from raidproof.storage.server import SERVERS

Settings = Mapping[str, Value]
"""Values by the name of their axis; what is not in it is left to the layer's default."""

WORKLOAD = "workload."
"""Begins the name of an axis that is a setting of the workload itself: ``workload.block_size``."""
USUAL_FILESYSTEM = "xfs"
"""The default file system of a plan."""


class Where(NamedTuple):
    """The condition under which an axis applies; elsewhere the axis is left out."""

    holds: Callable[[Settings], bool]
    text: str
    """Where it has none, and why; ``{}`` stands for the levels of `levels`."""
    levels: Callable[[type[Level]], bool] | None = None

    @property
    def unless(self) -> str:
        """Where it has none, and why."""
        return self.text if self.levels is None else self.text.format(listed(self.levels, "or"))


class Axis(NamedTuple):
    """One setting that a plan can vary."""

    name: str
    field: str
    """Where it goes: ``layer.field`` of the stack; empty where it chooses disks or clients."""
    help: str
    read: Callable[[Any], Value] = read_text
    write: Callable[[Value], str] = write_plain
    where: Where | None = None

    def applies(self, settings: Settings) -> bool:
        """Return whether the axis applies with these other settings."""
        return self.where is None or self.where.holds(settings)


def level_of(settings: Settings) -> type[Level]:
    """The level that these settings ask for."""
    return LEVELS[str(settings.get("level", DEFAULT))]


STRIPED = Where(
    lambda its: level_of(its).chunked,
    "level is {}: it keeps whole copies, not stripes",
    lambda kind: not kind.chunked,
)
REDUNDANT = Where(
    lambda its: level_of(its).redundant,
    "level is {}: it has no redundancy to keep consistent",
    lambda kind: not kind.redundant,
)
BITMAPPED = Where(
    lambda its: (
        level_of(its).redundant and its.get("bitmap") != "none" and its.get("consistency_policy", "bitmap") == "bitmap"
    ),
    "there is no bitmap: level is {}, or bitmap is none, or consistency_policy is another",
    lambda kind: not kind.redundant,
)
PARITY = Where(
    lambda its: level_of(its).parity > 0,
    "level is not {}: no other has a stripe cache",
    lambda kind: kind.parity > 0,
)
LAID_OUT = Where(
    lambda its: level_of(its).default_layout is not None,
    "level is not {}: no other has one",
    lambda kind: kind.default_layout is not None,
)
NESTED = Where(
    lambda its: level_of(its).parts is not None,
    "level is not {}: no other has legs",
    lambda kind: kind.parts is not None,
)
ON_SYNC = Where(
    lambda its: its.get("export", True) is True, "export is async: wdelay has no effect there (exports(5))"
)


def _read_level(value: Any) -> str:
    return read_level(read_text(value))


def _size(name: str, field: str, text: str, where: Where | None = None) -> Axis:
    return Axis(name, field, text, read_size, write_size, where)


def _number(name: str, field: str, text: str, where: Where | None = None) -> Axis:
    return Axis(name, field, text, read_number, write_plain, where)


def _seconds(name: str, field: str, text: str) -> Axis:
    return Axis(name, field, text, read_whole_seconds, write_seconds)


def _read_rate(value: Any) -> int:
    return parse_rate(read_text(value))


def _write_rate(value: Value) -> str:
    return format_rate(int(value))


def _read_duration(value: Any) -> int:
    return parse_duration(read_text(value))


def _write_duration(value: Value) -> str:
    return format_duration(int(value))


_ARRAY = (
    _number("members", "", "disks in the array; all that are not needed beside it, if not said"),
    _number("spares", "", "disks kept as spares"),
    _size("chunk", "array.chunk_size", "bytes on one member before the next", STRIPED),
    Axis("layout", "array.layout", "left-symmetric, n2, f2, ...", where=LAID_OUT),
    _number("legs", "array.legs", "arrays that a nested array is made of", NESTED),
    Axis("bitmap", "array.bitmap", "write-intent bitmap", word_of("none", "internal"), where=REDUNDANT),
    _size("bitmap_chunk", "array.bitmap_chunk", "bytes that one bit of the bitmap stands for", BITMAPPED),
    Axis(
        "consistency_policy",
        "array.consistency_policy",
        "how a write that a crash cut short is made good",
        word_of("resync", "bitmap", "journal", "ppl"),
        where=REDUNDANT,
    ),
)
_FILESYSTEM = (
    _size("block_size", "filesystem.block_size", "block size of the filesystem"),
    _size("su", "filesystem.su", "stripe unit of the file system, in place of the array's own"),
    _number("sw", "filesystem.sw", "stripe units in a stripe of the file system"),
    Axis(
        "aligned",
        "filesystem.aligned",
        "whether the filesystem knows the stripes",
        read_switch,
        write_plain,
        STRIPED,
    ),
    Axis("log", "", "where the log (XFS) or journal (ext4) is", word_of("internal", "external")),
    _size("log_size", "filesystem.log_size", "bytes of the log or journal"),
    Axis("mount_options", "filesystem.mount_options", 'what the server mounts with, as "sync,noatime"'),
)
_ABOVE = (
    Axis("export", "export.sync", "whether the server has it on disk when it answers", read_sync, write_sync),
    Axis("wdelay", "export.wdelay", "whether nfsd waits for more to write", read_switch, write_plain, ON_SYNC),
    _number("threads", "export.threads", "threads of nfsd"),
    _size("max_block_size", "export.max_block_size", "the most that the server takes in one READ or WRITE"),
    _seconds("lease", "export.lease_s", "how long a silent client keeps opens and locks; 10 s, if not said"),
    _seconds("grace", "export.grace_s", "how long a restarted server waits for reclaims; the lease, if not said"),
    Axis("delegations", "export.delegations", "whether NFSv4 lends files to clients", read_switch),
    Axis("mount", "mount.sync", "whether the client sends each write at once", read_sync, write_sync),
    Axis("vers", "mount.vers", "NFS version: 3 4.0 4.1 4.2", word_of("3", "4.0", "4.1", "4.2")),
    _size("rsize", "mount.rsize", "the most that a READ asks for"),
    _size("wsize", "mount.wsize", "the most that a WRITE carries"),
    _number("nconnect", "mount.nconnect", "connections of a client"),
    Axis(
        "scheduler",
        "tuning.scheduler",
        "I/O scheduler of the members",
        word_of("none", "mq-deadline", "kyber", "bfq"),
    ),
    _number("nr_requests", "tuning.nr_requests", "requests that may wait at each member"),
    _size("max_request", "tuning.max_request", "the largest request that a member is given"),
    _size("read_ahead", "tuning.read_ahead", "read-ahead of each member"),
    _size("array_read_ahead", "tuning.array_read_ahead", "read-ahead of the array"),
    _number("stripe_cache_size", "tuning.stripe_cache_size", "stripes that md keeps in memory", PARITY),
    _number("md_threads", "tuning.md_threads", "threads that help md with stripes", PARITY),
    _size("server_dirty_bytes", "tuning.server_dirty_bytes", "dirty pages beyond which the server's writers wait"),
    _size("server_dirty_background_bytes", "tuning.server_dirty_background_bytes", "... and it begins to write"),
    _size("client_dirty_bytes", "tuning.client_dirty_bytes", "dirty pages beyond which a client's writers wait"),
    _size("client_dirty_background_bytes", "tuning.client_dirty_background_bytes", "... and it begins to send"),
    Axis("rate", "link.rate", "rate of each machine's link", _read_rate, _write_rate),
    Axis("delay", "link.delay", "delay of what a machine sends", _read_duration, _write_duration),
    Axis("jitter", "link.jitter", "how much the delay varies", _read_duration, _write_duration),
    _number("clients", "", "clients that work at the same time; all of them, if not said"),
)


def axes() -> dict[str, Axis]:
    """Return all axes by name, the lowest layer first: those of every stack, and those of single file systems.

    Raises:
        RigError: a file system calls an axis of its own like another one.
    """
    return _axes(tuple(level_names()), tuple(FILESYSTEMS.items()), tuple(SERVERS))


@cache
def _axes(
    levels: tuple[str, ...], kinds: tuple[tuple[str, type[FilesystemSpec]], ...], servers: tuple[str, ...]
) -> dict[str, Axis]:
    level = Axis("level", "array.level", f"RAID level: {' '.join(levels)}", _read_level)
    words = [name for name, _ in kinds]
    kind = Axis("filesystem", "filesystem.type", " or ".join(words), word_of(*words))
    common = {axis.name: axis for axis in (level, *_ARRAY, kind, *_FILESYSTEM)}
    server = Axis("server", "export.type", f"NFS server: {' or '.join(servers)}", word_of(*servers))
    above = {axis.name: axis for axis in (server, *_ABOVE)}
    own = {name: _own_axis(name, text, dict(kinds)) for _, one in kinds for name, text in one.axes.items()}
    if twice := sorted(own.keys() & (common.keys() | above.keys())):
        raise RigError(f"file systems have axes of their own that are named like another: {', '.join(twice)}")
    return {**common, **own, **above}


def _own_axis(name: str, text: str, kinds: Mapping[str, type[FilesystemSpec]]) -> Axis:
    """Return the axis of a field that not every file system has."""
    fields = {kind: spec.model_fields[name] for kind, spec in kinds.items() if name in spec.model_fields}
    read, write = _how([part for one in fields.values() for part in (*_parts(one.annotation), *one.metadata)])
    where = Where(
        lambda its: its.get("filesystem", USUAL_FILESYSTEM) in fields, f"filesystem is not {' or '.join(fields)}"
    )
    return Axis(name, f"filesystem.{name}", text, read, write, where)


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _how(parts: list[Any]) -> tuple[Callable[[Any], Value], Callable[[Value], str]]:
    """Return how a field of a spec is read and written, by the parts of its annotation."""
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
        RequestError: there is none; the message names the nearest.
    """
    if name.startswith(WORKLOAD):
        return Axis(name, "", "a setting of the workload", read=_read_any)
    known = axes()
    require_known("axis", name, known)
    return known[name]


def read_value(name: str, value: Any) -> Value:
    """Read one value of an axis into its one form.

    Raises:
        RequestError: there is no such axis, or it has no such value.
    """
    axis = axis_of(name)
    try:
        return axis.read(value)
    except RequestError as error:
        raise RequestError(f"{name}: {error}") from error


def write_value(name: str, value: Value) -> str:
    """Write one value of an axis the way a user reads it."""
    return axis_of(name).write(value)


def _read_any(value: Any) -> Value:
    if not isinstance(value, str | int | bool):
        raise RequestError(f"neither a word, a number nor a switch: {value!r}")
    return value
