"""The requested beside the effective configuration of every layer, over all crash tests or cells of a run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raidproof.core.units import format_size
from raidproof.record.environment import flat
from raidproof.report.words import UNKNOWN

NOT_ASKED = "(not requested)"
"""Text in place of the requested value of a field that has only an effective one."""
_NOT_READ = object()
"""Effective value of a field that was not read back."""
_SIZES = frozenset({"su", "rsize", "wsize", "memory"})
"""Names of fields in bytes; all fields with ``size`` in their names are in bytes, too."""


class Configured(Protocol):
    """The interface of a crash test's or a cell's record, as far as it concerns the configuration."""

    asked: dict[str, Any]
    """The requested configuration, by layer."""
    effective: dict[str, Any]
    """The configuration as read back from the machines, by layer."""


@dataclass(frozen=True)
class Case:
    """The requested and effective value of one field, in the crash tests or cells that have the same values."""

    cycles: str
    """Numbers of these crash tests or cells as text; empty for all."""
    asked: str
    """The requested value as text."""
    found: str
    """The effective value as text."""
    differs: bool
    """Whether the effective value differs from the requested one."""


@dataclass(frozen=True)
class Setting:
    """One field of a layer, with a `Case` for each distinct pair of requested and effective value."""

    field: str
    cases: list[Case]


def configuration(cycles: Sequence[Configured]) -> dict[str, list[Setting]]:
    """Return every field of every layer, by layer; crash tests or cells with equal values share a `Case`."""
    cases: dict[tuple[str, str], dict[tuple[str, str, bool], list[int]]] = {}
    for place, cycle in enumerate(cycles, start=1):
        for layer, field, asked, found in fields(cycle):
            differs = asked is not None and found is not _NOT_READ and not same(asked, found)
            case = (NOT_ASKED if asked is None else value(field, asked), value(field, found), differs)
            cases.setdefault((layer, field), {}).setdefault(case, []).append(place)
    layers: dict[str, list[Setting]] = {}
    for (layer, field), by_case in cases.items():
        listed = [
            Case("" if len(places) == len(cycles) else ", ".join(map(str, places)), *case)
            for case, places in by_case.items()
        ]
        layers.setdefault(layer, []).append(Setting(field, listed))
    return layers


def fields(cycle: Configured) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield layer, field, requested value (None: not requested), effective value (``_NOT_READ``: not read back)."""
    for layer, asked, found in layers(cycle):
        wanted, there = dict(flat(asked)), dict(flat(found))
        matched = {field: counterpart(field, there) for field in wanted}
        for field, wish in wanted.items():
            match = matched[field]
            content = option(field, there) if match is None else there[match]
            if wish is not None or content is not _NOT_READ:
                yield layer, field, wish, content
        for field, found_value in there.items():
            if field not in matched.values():
                yield layer, field, None, found_value


def layers(cycle: Configured) -> Iterator[tuple[str, Any, Any]]:
    """Yield each layer with its requested and effective configuration; the layer ``mount`` once for each client."""
    found = dict(cycle.effective)
    mounts = found.pop("mounts", None)
    found.pop("caveats", None)  # shown in the section on what a run cannot prove
    for layer, asked in cycle.asked.items():
        if layer == "mount" and mounts and layer not in found:
            for client, mount in mounts.items():
                yield f"mount on {client}", asked, mount
        else:
            yield layer, asked, found.pop(layer, None)
    for layer, state in found.items():
        yield layer, None, state


def counterpart(field: str, there: Mapping[str, Any]) -> str | None:
    """Return the path in the layer's effective state that corresponds to a requested field; None without one.

    This is the same path, or else the only path whose last part is equal.
    """
    if field in there:
        return field
    leaf = field.rpartition(".")[2]
    alike = [path for path in there if path.rpartition(".")[2] == leaf]
    return alike[0] if len(alike) == 1 else None


def option(field: str, there: Mapping[str, Any]) -> Any:
    """Return the value of a field from the layer's effective options, such as ``no_wdelay`` (exports(5)).

    ``there``: the layer's effective state. The value is ``_NOT_READ`` if no option sets the field.
    """
    options = there.get("options")
    for word in options if isinstance(options, list) else []:
        if word in (field, f"no_{field}", f"a{field}"):
            return word == field
        if isinstance(word, str) and word.startswith(f"{field}="):
            return word.removeprefix(f"{field}=")
    return _NOT_READ


def same(asked: Any, found: Any) -> bool:
    """Return whether an effective value is equal to the requested one.

    A disk is requested by its serial, with which the name of its device ends. Values are also compared as text.
    """
    if asked == "none" and found is None:
        return True
    return bool(asked == found) or str(asked) == str(found) or str(found).endswith(f"-{asked}")


def caveats(cycles: Sequence[Configured]) -> dict[str, list[int]]:
    """Return sentences on what the stacks cannot prove, each with the numbers of its crash tests or cells."""
    held: dict[str, list[int]] = {}
    for place, cycle in enumerate(cycles, start=1):
        for caveat in cycle.effective.get("caveats", ()):
            held.setdefault(str(caveat), []).append(place)
    return held


def value(field: str, content: Any) -> str:
    """Return the value of a field as text; sizes in binary units."""
    leaf = field.rpartition(".")[2]
    if content is _NOT_READ or content is None:
        return UNKNOWN
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, int) and ("size" in leaf or leaf in _SIZES):
        return format_size(content)
    if isinstance(content, list):
        return ", ".join(map(str, content)) or "none"
    return str(content)
