"""The export of an existing server: the settings of a plan, and the options that no plan re-creates."""

from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.existing.exports import EVERYBODY, Client, Exported
from raidproof.existing.fact import Fact, LeftOut, StandIn, default, read
from raidproof.plan.table import Value
from raidproof.storage.kerberos import FLAVOURS
from raidproof.storage.server.export_options import ANONYMOUS, OTHERS, in_etab, name_of, read_fsid, why_refused
from raidproof.storage.tls import POLICIES

_SILENT = frozenset(
    [
        *("rw", "sync", "async", "wdelay", "no_wdelay", "no_subtree_check", "subtree_check", "hide", "nocrossmnt"),
        *("root_squash", "no_root_squash", "all_squash", "no_all_squash", "secure", "insecure", "secure_locks"),
        *("auth_nlm", "acl", "no_pnfs", f"anonuid={ANONYMOUS}", f"anongid={ANONYMOUS}", "sec=sys"),
    ]
)
"""Options that a setting has, or that are defaults of exports(5)."""
_SWITCHES = ("all_squash", "subtree_check", "insecure")
"""The settings that a plan has only if they are not the default, which is false."""
_NUMBERS = ("anonuid", "anongid")
_COMPARED = {"export": "sync", "root_squash": "root_squash", **{name: name for name in _SWITCHES}}
"""The settings in which the options for other clients may differ, with the field of `Client`."""
_SECURITY = {"sec": FLAVOURS, "xprtsec": POLICIES}
"""The values of settings that say which security the export accepts, from the least on."""
_UNKNOWN = "a plan has no setting for it"


class ExportFacts(NamedTuple):
    """The facts about an export."""

    settings: dict[str, Fact[Value]]
    left_out: tuple[LeftOut, ...]
    stand_ins: tuple[StandIn, ...] = ()
    alternatives: tuple[str, ...] = ()
    """The name of a switch that the options for another client set to its other value."""


def export_facts(exported: Exported | None, client: Client | None) -> ExportFacts:
    """Return the facts about an export for one of its clients; None: no exports file was given."""
    if exported is None or client is None:
        why = "no --exports was given; exports(5)"
        usual: dict[str, Fact[Value]] = {"export": default(True, f"sync: {why}")}
        return ExportFacts(usual | {name: default(True, why) for name in ("wdelay", "root_squash")}, ())
    settings = _usual_settings(exported, client)
    left_out: list[LeftOut] = []
    others: list[str] = []
    for option in dict.fromkeys(client.options):
        if option in _SILENT or _is_overridden(option, client):
            continue
        setting = _setting(option, exported, others)
        if isinstance(setting, str):
            left_out.append(LeftOut(what=f"export option {option}", source=exported.source, why=setting))
        else:
            settings |= setting
    if others:
        settings["export_options"] = read(",".join(others), exported.source)
    others_left, stand_ins, alternatives = _other_clients(exported, client)
    for name in alternatives:
        settings.setdefault(name, read(False, exported.source))
    return ExportFacts(settings, (*left_out, *others_left), stand_ins, alternatives)


def _usual_settings(exported: Exported, client: Client) -> dict[str, Fact[Value]]:
    """Return the settings that a plan has also if they are the default, and the switches that are not."""
    usual = f"{exported.source} (not written: the default of exports(5))"

    def source(*options: str) -> str:
        return exported.source if client.names(*options) else usual

    settings: dict[str, Fact[Value]] = {"export": read(client.sync, source("sync", "async"))}
    if client.sync:
        settings["wdelay"] = read(client.wdelay, source("wdelay", "no_wdelay"))
    settings["root_squash"] = read(client.root_squash, source("root_squash", "no_root_squash"))
    return settings | {name: read(True, exported.source) for name in _SWITCHES if getattr(client, name)}


def _is_overridden(option: str, client: Client) -> bool:
    """Return whether another option of the same name follows, which counts instead."""
    name, equals, value = option.partition("=")
    return bool(equals) and client.value(name) != value


def _setting(option: str, exported: Exported, others: list[str]) -> dict[str, Fact[Value]] | str:
    """Return the setting of an option, or why no plan has one; add an option without an own setting to ``others``."""
    name, value = name_of(option), option.partition("=")[2]
    if name in _NUMBERS:
        if value.isdecimal() and int(value) < 1 << 32:
            return {name: read(int(value), exported.source)}
        return "not a number from 0 to 4294967295"
    if name == "fsid":
        try:
            return {name: read(str(read_fsid(value)), exported.source)}
        except RequestError as error:
            return str(error)
    if name in _SECURITY:
        # What the export requires: a client may use any value that it accepts. Without a setting, it is the first one.
        valid = _SECURITY[name]
        accepted = [one for one in valid if one in value.split(":")]
        if not accepted:
            return f"unknown security: a lab has {', '.join(valid)}"
        return {} if accepted[0] == valid[0] else {name: read(accepted[0], exported.source)}
    if (reason := why_refused(option)) is not None:
        return reason
    other = in_etab(option)
    if name_of(other) not in OTHERS:
        return _UNKNOWN
    if other.partition("=")[2] not in {"", exported.path}:
        return "the lab exports another directory, which is itself the mount point of the file system"
    # The lab exports the mount point of the file system itself.
    others.append(name_of(other))
    return {}


class _Others(NamedTuple):
    left_out: tuple[LeftOut, ...]
    stand_ins: tuple[StandIn, ...]
    alternatives: tuple[str, ...]


def _other_clients(exported: Exported, client: Client) -> _Others:
    """Return what becomes of the clients of an export: the lab has clients of its own, all with the same options.

    If the options for the other clients differ in one switch only, the plan compares both of its values.
    """
    others = [one for one in exported.clients if one is not client]
    differing = {one.host: _difference(one, client) for one in others if one.options != client.options}
    switches = {name for names in differing.values() for name in names or ()}
    left_out, stand_ins = [], []
    for one in others:
        if one.options == client.options:
            continue
        what, names = f"options for {one.host}: {','.join(one.options) or 'none'}", differing[one.host]
        if not one.rw:
            why = "clients that may only read have no acknowledged writes: the lab's clients are those that may write"
            stand_ins.append(StandIn(what=what, source=exported.source, why=why))
        elif names is not None and len(switches) <= 1:
            why = f"the plan compares both values of {next(iter(names))}" if names else "they have the same effect"
            stand_ins.append(StandIn(what=what, source=exported.source, why=why))
        else:
            why = f"the options for {client.host} are taken"
            left_out.append(LeftOut(what=what, source=exported.source, why=why))
    if hosts := [one.host for one in (client, *others) if one.host != EVERYBODY]:
        why = "the lab's own clients, in the lab's network"
        stand_ins.append(StandIn(what=f"clients {', '.join(hosts)}", source=exported.source, why=why))
    return _Others(tuple(left_out), tuple(stand_ins), tuple(sorted(switches)) if len(switches) == 1 else ())


def _difference(one: Client, client: Client) -> set[str] | None:
    """Return the settings in which the options for two clients differ; None if also something else differs."""
    if not one.rw or (one.sync and client.sync and one.wdelay != client.wdelay):
        return None
    # The first fsid of a directory is that of its file handles, for all clients.
    others = [
        {name for name in which.options if name not in _SILENT and name_of(name) != "fsid"} for which in (one, client)
    ]
    if others[0] != others[1]:
        return None
    return {name for name, field in _COMPARED.items() if getattr(one, field) != getattr(client, field)}
