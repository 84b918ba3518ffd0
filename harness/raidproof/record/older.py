"""Conversion of the records that earlier versions of raidproof stored to the current schema.

Older records name the faults without their effects. Their observations are mappings, ``checks`` and ``files``, whose
keys are no fields of a model.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from raidproof.fault.fault import FaultEffects
from raidproof.fault.machine import PANIC

_AWAY = FaultEffects(server_away=True)
_RESTARTED = FaultEffects(nfsd_restarted=True, server_away=True)
_MEMORY_LOST = FaultEffects(server_memory_lost=True, nfsd_restarted=True, server_away=True)
_LEASE_LOST = FaultEffects(server_away=True, lease_lost=True)
_MEMBER_MISSING = FaultEffects(member_missing=True)
_UNREADABLE = FaultEffects(member_missing=True, unreadable_blocks=True)

EFFECTS: Mapping[str, FaultEffects] = MappingProxyType(
    {
        "power-cut": _MEMORY_LOST,
        "client-power-cut": FaultEffects(client_memory_lost=True),
        "kernel-panic": _MEMORY_LOST.model_copy(update={"kernel_messages": (PANIC,)}),
        "clean-reboot": _RESTARTED,
        "server-restart": _RESTARTED,
        "nfsd-restart": _RESTARTED,
        "nfsd-killed": _RESTARTED,
        "network-cut": _AWAY,
        "client-network-cut": _AWAY,
        "lease-expiry": _LEASE_LOST,
        "missed-grace": _LEASE_LOST,
        "degraded": _MEMBER_MISSING,
        "rebuilding": _MEMBER_MISSING,
        "reshaping": _MEMBER_MISSING,
        "member-fails": _MEMBER_MISSING,
        "member-vanishes": _MEMBER_MISSING,
        "second-member-fails": _UNREADABLE,
        "latent-sector-during-rebuild": _UNREADABLE,
        "silent-corruption": FaultEffects(content_changed=True),
        "corrupted-at-rest": _RESTARTED.model_copy(update={"content_changed": True}),
    }
)
"""The effects of the faults in older records, by name of the fault; faults with other names have no effects."""


def with_effects(cycle: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an older crash test record, completed with the effects of its faults.

    The effects come from the name of each fault, and from other fields of the older record: the policy of the disks'
    caches, allowed errors, the blame for a loss, and patterns of expected kernel messages.
    """
    new = dict(cycle)
    known = EFFECTS.get(str(new.get("fault")), FaultEffects()).model_dump()
    policy, errors, explanation = (new.pop(word, None) for word in ("policy", "allowed_by_fault", "explanation"))
    checks = dict(new.get("checks") or {})
    new["checks"] = checks
    if new.get("fault") == "power-cut":
        known["caches"] = policy
    known["errors"] = errors or ()
    known["explanation"] = explanation
    known["kernel_messages"] = (*known["kernel_messages"], *checks.pop("alarms", ()))
    new["effects"] = known
    if lost := new.pop("lost_power", None):
        new["fault_target"] = lost[0]
    # The explanation may be that of a fault in effect before the clients began.
    at_any_time = {"errors": new.pop("allowed_errors", None) or (), "explanation": explanation}
    new["during"] = [
        {
            **condition,
            "effects": {**EFFECTS.get(condition["fault"], FaultEffects()).model_dump(), **at_any_time},
        }
        for condition in new.get("during", ())
    ]
    return new


_FIELDS = {"old data": "old_data", "write back": "write_back", "write log": "write_log", "read back": "read_back"}
"""For each key of older records that was renamed: the current name of the field."""
_AWAY_OF, _CONSOLE_OF, _FIO = "server away ", "console ", "fio"
"""Prefixes of keys in ``files`` of older records, before the name of a machine or the number of a measurement."""


def with_observations(cycle: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a crash test record; older ones are converted to the form of `Observations` and `Files`."""
    new = dict(cycle)
    if "checks" in new:
        new["observed"] = {_FIELDS.get(word, word): found for word, found in (new.pop("checks") or {}).items()}
    if isinstance(files := new.get("files"), Mapping):
        new["files"] = _files(files)
    return new


def _files(files: Mapping[str, Any]) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for word, path in files.items():
        if word.startswith(_AWAY_OF):
            new.setdefault("away", {})[word.removeprefix(_AWAY_OF)] = path
        elif word.startswith(_CONSOLE_OF):
            new.setdefault("consoles", {})[word.removeprefix(_CONSOLE_OF)] = path
        elif word.startswith(_FIO) and isinstance(path, str):
            new.setdefault("fio", []).append(path)
        else:
            new[_FIELDS.get(word, word)] = path
    return new


_FINDINGS = {
    "higher": ("faster", ""),
    "lower": ("slower", ""),
    "no difference shown": ("undecided", "the ranges of the repetitions overlap"),
    "one repetition": ("undecided", "a side has one repetition"),
}
"""For each finding of a comparison of schema version 1 that was renamed: the current finding, and the reason for it.

Version 1 compared rates only, of which a greater value is faster.
"""


def with_findings(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a comparison of schema version 1 in the form of version 2.

    The findings stay those of version 1, which compared ranges; `Method.RANGES` says so.
    """
    pairs = []
    for pair in comparison.get("pairs", ()):
        finding, why = _FINDINGS.get(pair["finding"], (pair["finding"], pair.get("why", "")))
        pairs.append({**pair, "finding": finding, "why": why})
    return {**comparison, "schema_version": 2, "method": "ranges", "pairs": pairs}
