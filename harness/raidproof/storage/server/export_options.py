"""The options of exports(5): as requested, as exportfs's table (etab) lists them, and as the kernel lists them."""

import re
from collections.abc import Iterable
from typing import Any

from raidproof.core.errors import RequestError

ANONYMOUS = 65534
"""The default of anonuid and anongid: the user and the group of requests from a squashed user."""
_UNLISTED = {
    "subtree_check": "no_subtree_check",
    "secure": "insecure",
    "no_all_squash": "all_squash",
    "hide": "nohide",
    "nocrossmnt": "crossmnt",
    "no_pnfs": "pnfs",
    "secure_locks": "insecure_locks",
    f"anonuid={ANONYMOUS}": "anonuid",
    f"anongid={ANONYMOUS}": "anongid",
}
"""The options that the kernel does not list (exp_flags in fs/nfsd/export.c), with the option that it lists instead."""
_ETAB_ONLY = frozenset({"acl", "mountpoint", "sec", "xprtsec"})
"""Names of the options that only etab lists in this notation: rpc.mountd applies them, or the kernel has numbers."""
_SAME = {"mp": "mountpoint", "no_auth_nlm": "insecure_locks", "auth_nlm": "secure_locks"}
"""Other names of options, with the name that etab has."""
_UUID = re.compile(r"[0-9a-f]{32}")
_FIELDS = {
    **dict.fromkeys(("sync", "async"), "sync"),
    **dict.fromkeys(("wdelay", "no_wdelay"), "wdelay"),
    **dict.fromkeys(("subtree_check", "no_subtree_check"), "subtree_check"),
    **dict.fromkeys(("root_squash", "no_root_squash"), "root_squash"),
    **dict.fromkeys(("all_squash", "no_all_squash"), "all_squash"),
    **dict.fromkeys(("insecure", "secure"), "insecure"),
    **{name: name for name in ("anonuid", "anongid", "fsid", "sec", "xprtsec")},
}
"""The field of `raidproof.storage.server.knfsd.ExportSpec` that sets an option, by name of the option."""
REFUSED = {
    "ro": "a read-only export has no acknowledged writes to test",
    "rw": "raidproof exports always with rw",
    "no_acl": "the kernel ignores it: only specially patched kernels have it (exports(5))",
    "pnfs": "with a layout, the writes of clients would bypass the server",
    "refer": "clients would be referred to another server",
    "replicas": "clients would be referred to another server",
}
"""Options that cannot be requested, with the reason."""
OTHERS = frozenset({"crossmnt", "nohide", "mountpoint", "insecure_locks", "nordirplus", "security_label"})
"""Options without a field that take effect; another one may be of another system's exportfs."""


def name_of(option: str) -> str:
    """Return the name of an option, without its value."""
    return option.partition("=")[0]


def why_refused(option: str) -> str | None:
    """Return why an option cannot be requested; None if it can."""
    return REFUSED.get(name_of(option))


def read_others(value: Any) -> Any:
    """Return options that have no field of their own, in etab's notation; ``value``: a list, or text as in exports(5).

    Raises:
        RequestError: an option has a field, or cannot be requested.
    """
    if isinstance(value, str):
        value = tuple(option for option in value.split(",") if option)
    if not isinstance(value, tuple | list):
        return value
    for option in map(str, value):
        if (field := _FIELDS.get(name_of(option))) is not None:
            raise RequestError(f"export option {option} has a setting of its own: {field}")
        if (reason := why_refused(option)) is not None:
            raise RequestError(f"export option {option}: {reason}")
    return tuple(in_etab(option) for option in map(str, value))


def read_fsid(value: Any) -> Any:
    """Return the value of the option fsid: a number, ``root`` (0), or a UUID (exports(5)), as text.

    Raises:
        RequestError: the value is none of these.
    """
    if value is None:
        return None
    text = str(value).lower()
    if text == "root":
        return "0"
    if text.isdecimal() and int(text) < 1 << 32:
        return str(int(text))
    if _UUID.fullmatch(_digits(text)):
        return text
    raise RequestError(f"fsid {value}: not a number from 0 to 4294967295, root, or a UUID of 32 hexadecimal digits")


def in_effect(etab: Iterable[str], kernel: Iterable[str] | None) -> set[str]:
    """Return the options in effect, in etab's notation and with those that the kernel does not list.

    ``kernel``: the options that the kernel lists; None until a client accesses the export, then etab's count.
    """
    in_table = {*etab}
    if kernel is None:
        return _in_full(in_table)
    listed = {*kernel}
    uuids = {_digits(option) for option in listed if name_of(option) == "uuid"}
    numbers = {option for option in in_table if name_of(option) == "fsid" and _digits(option) in uuids}
    only = {option for option in in_table if name_of(option).removeprefix("no_") in _ETAB_ONLY}
    return _in_full(listed) | numbers | only


def _in_full(listed: set[str]) -> set[str]:
    """Return the options with those that are not listed because they are the opposite of an absent one."""
    names = {name_of(option) for option in listed}
    return listed | {unlisted for unlisted, instead in _UNLISTED.items() if instead not in names}


def in_etab(option: str) -> str:
    """Return an option by the name that etab has for it."""
    name, equals, value = option.partition("=")
    return f"{_SAME.get(name, name)}{equals}{value}"


def _digits(text: str) -> str:
    """Return the hexadecimal digits of a UUID that may be the value of an option."""
    return text.rpartition("=")[2].replace("-", "").replace(":", "").lower()
