"""The mount of a client of an existing server: the settings of a plan, and the values that the rules read."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from raidproof.core.errors import RequestError
from raidproof.core.layer import PAGE_SIZE
from raidproof.core.units import KIB, MIB, format_size
from raidproof.existing.fact import Fact, LeftOut, default, read
from raidproof.existing.fstab import Entry, size_in, within
from raidproof.existing.given import shortened
from raidproof.existing.reports import Reports
from raidproof.plan.axes import axis_of, read_value
from raidproof.plan.configuration import NEGOTIATED
from raidproof.plan.table import Value
from raidproof.storage.kerberos import SYS
from raidproof.storage.mount import ATTRIBUTE_TIMES, NO_PROTOCOL, MountSpec, why_refused
from raidproof.storage.tls import NONE

NEWEST = "4.2"
"""The version that client and server negotiate if both are of Linux 4.x or later (nfs(5), nfsvers)."""
_VERSIONS = {"3": "3", "4": NEWEST, "4.0": "4.0", "4.1": "4.1", "4.2": "4.2"}
_SILENT = frozenset(
    [
        "defaults",
        "rw",
        "async",
        "auto",
        "noauto",
        "_netdev",
        "nofail",
        "bg",
        "fg",
        "tcp",
        "proto=tcp",
        "relatime",
        "user",
        "namlen=255",
        "local_lock=none",
        "lookupcache=all",
        "write=lazy",
        "fatal_neterrors=none",
    ]
)
_TAKEN = frozenset({"vers", "nfsvers", "minorversion", "rsize", "wsize", "nconnect", "addr", "clientaddr", "sync"})
_NUMBERS = ("retrans", "actimeo", *ATTRIBUTE_TIMES, "max_connect")
_WORDS = ("lookupcache", "local_lock", "write", "sec", "xprtsec")
_OTHERS_AXIS = "mount_options_client"
_SWITCHES: Mapping[str, tuple[str, Value]] = {
    "noac": ("noac", True),
    "nocto": ("cto", False),
    "nolock": ("lock", False),
    "nosharecache": ("sharecache", False),
    "softreval": ("softreval", True),
}
_RESETS = {"hard": "recovery", "ac": "noac", "cto": "cto", "lock": "lock", "sharecache": "sharecache"}
"""Defaults, with the axis whose other values they replace if they follow."""
_DEFAULTS: Mapping[str, Value] = {"timeo": "60s", "retrans": 2, "sec": SYS, "xprtsec": NONE}
_OTHERS = frozenset({"noatime", "nodiratime", "nosuid", "nodev", "noexec", "nordirplus"})
"""Options without an axis of their own that a client lists, and so can be read back."""
_UNKNOWN = "a plan has no setting for it"
_MOST_CONNECTIONS = 16


class ClientFacts(NamedTuple):
    """The facts about a mount."""

    settings: dict[str, Fact[Value]]
    left_out: tuple[LeftOut, ...]
    configuration: dict[str, Any]
    """Values of the fields of `Configuration` about the mount; empty if no mount was read."""


def client_facts(reports: Reports, path: str) -> ClientFacts:
    """Return the facts about the first mount of the export in the clients' files.

    Raises:
        RequestError: rsize or wsize is malformed.
    """
    entry = _mount_of(reports.client_mounts, path)
    if entry is None:
        why = "no --client-fstab with this export was given"
        return ClientFacts({"vers": default(NEWEST, f"{why}; client and server negotiate it")}, (), {})
    settings: dict[str, Fact[Value]] = {"vers": _version(entry)}
    left_out: list[LeftOut] = []
    for name in ("rsize", "wsize"):
        if (fact := _transfer(entry, name, left_out)) is not None:
            settings[name] = fact
    # noac makes each write synchronous (nfs(5)).
    at_once = bool({"sync", "noac"} & {*entry.options})
    written = at_once or "async" in entry.options
    settings["mount"] = read(at_once, entry.source if written else f"implied: no option sync in {entry.source}")
    connections = entry.value("nconnect")
    if connections is not None and connections.isdecimal() and 1 <= int(connections[:4]) <= _MOST_CONNECTIONS:
        settings["nconnect"] = read(int(connections), entry.source)
    words = [
        option
        for option in entry.options
        if option not in _SILENT and option.partition("=")[0] not in _TAKEN and not option.startswith("x-")
    ]
    # An option may be possible only with one that follows: acregmin=100 with acregmax=200.
    pending = [option for option in words if _add(option, entry, settings) is not None]
    left_out += [
        LeftOut(what=f"mount option {shortened(option)}", source=entry.source, why=reason)
        for option in pending
        if (reason := _add(option, entry, settings)) is not None
    ]
    others = [one for one in reports.client_mounts if one is not entry and _exported(one) == _exported(entry)]
    if any(set(one.options) != set(entry.options) for one in others):
        where = ", ".join(one.source for one in others)
        left_out.append(LeftOut(what=f"other options in {where}", source=entry.source, why="this mount is taken"))
    return ClientFacts(settings, tuple(left_out), _configuration(entry, settings))


def _add(option: str, entry: Entry, settings: dict[str, Fact[Value]]) -> str | None:
    """Add the setting of a mount option to ``settings``; return why no plan has it, or None."""
    if option in _RESETS:
        settings.pop(_RESETS[option], None)
        return None
    found = _setting_of(option)
    if found is None:
        return why_refused(option) or NO_PROTOCOL.get(option.removeprefix("proto=")) or _UNKNOWN
    axis, value = found
    if axis == _OTHERS_AXIS and axis in settings:
        value = f"{settings[axis].value},{value}"
    if _DEFAULTS.get(axis) == value:
        settings.pop(axis, None)
        return None
    try:
        _validate({**{key: fact.value for key, fact in settings.items()}, axis: value})
    except RequestError as error:
        return str(error)
    settings[axis] = read(value, entry.source)
    return None


def _setting_of(option: str) -> tuple[str, Value] | None:
    """Return the axis and the value of a mount option; None if no axis has it."""
    name, _, value = option.partition("=")
    if option in {"soft", "softerr"}:
        return "recovery", option
    if name == "timeo" and value.isdecimal():
        return name, f"{int(value) / 10:g}s"
    if name in _NUMBERS and value.isdecimal():
        return name, int(value)
    if name in _WORDS:
        return name, "positive" if value == "pos" else value
    return _SWITCHES.get(option) or ((_OTHERS_AXIS, option) if option in _OTHERS else None)


def _validate(settings: Mapping[str, Value]) -> None:
    """Check that a mount can have these settings, by name of the axis.

    Raises:
        RequestError: the options contradict each other, or have no effect.
    """
    fields = {axis_of(name).field: read_value(name, value) for name, value in settings.items() if name != "mount"}
    MountSpec.model_validate({field.removeprefix("mount."): value for field, value in fields.items()})


def _mount_of(mounts: tuple[Entry, ...], path: str) -> Entry | None:
    """Return the mount of an export: of the path itself, or below it, or, if there is no other, the only mount.

    With NFSv4 the path that a client mounts may be a part of the exported path, below the root with fsid=0.
    """
    for matches in (
        [one for one in mounts if _exported(one) == path],
        [one for one in mounts if within(_exported(one), path)],
        [one for one in mounts if _exported(one) != "/" and path.endswith(_exported(one))],
    ):
        if matches:
            return matches[0]
    return mounts[0] if len({_exported(one) for one in mounts}) == 1 else None


def _exported(entry: Entry) -> str:
    path = entry.device.rpartition(":")[2]
    return path.rstrip("/") or "/"


def _version(entry: Entry) -> Fact[Value]:
    version, minor = entry.value("vers", "nfsvers"), entry.value("minorversion")
    if version is None and (entry.type == "nfs4" or "v4" in entry.options):
        version = "4"
    if version == "4" and minor in {"0", "1", "2"}:
        version = f"4.{minor}"
    if version is None:
        return default(NEWEST, f"{entry.source} has no version; client and server negotiate it")
    if version not in _VERSIONS:
        return default("3", f"{entry.source}: version {shortened(version)} does not exist any more")
    known = _VERSIONS[version]
    return read(known, entry.source if known == version else f"{entry.source} (the minor version is negotiated)")


def _transfer(entry: Entry, name: str, left_out: list[LeftOut]) -> Fact[Value] | None:
    """Return rsize or wsize as the kernel clamps it: at most 1 MiB, whole pages; None: the client's default."""
    size = size_in(entry, name)
    if size is None:
        return None
    if size < KIB:
        why = "less than 1 KiB: the client takes its default instead"
        left_out.append(LeftOut(what=f"{name}={size}", source=entry.source, why=why))
        return None
    effective = min(size, MIB)
    effective = effective // PAGE_SIZE * PAGE_SIZE if effective >= PAGE_SIZE else 1 << (effective.bit_length() - 1)
    changed = "" if effective == size else f" ({size}, which the client changes to {format_size(effective)})"
    return read(effective, f"{entry.source}{changed}")


def _configuration(entry: Entry, settings: dict[str, Fact[Value]]) -> dict[str, Any]:
    options = set(entry.options)
    recovery = next((word for word in reversed(entry.options) if word in {"soft", "softerr", "hard"}), "hard")
    return {
        "vers": str(settings["vers"].value),
        "udp": "udp" in options or entry.value("proto") in {"udp", "udp6"},
        "recovery": recovery,
        "wsize": int(settings["wsize"].value) if "wsize" in settings else NEGOTIATED,
        "sends_at_once": bool(options & {"sync", "noac"}),
        "interruptible": bool(options & {"intr", "nointr"}),
        "nolock": "nolock" in options or entry.value("local_lock") in {"all", "posix"},
    }
