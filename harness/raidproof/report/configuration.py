"""The requested and effective configuration of every layer, over all crash tests or cells of a run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raidproof.core.units import format_size
from raidproof.record.environment import flat
from raidproof.report.words import UNKNOWN

NOT_ASKED = "(not requested)"
_UNWRITTEN = object()
_SIZES = frozenset({"su", "rsize", "wsize", "memory"})


class Configured(Protocol):
    """A crash test or a plan's cell, with the requested and effective configuration by layer."""

    asked: dict[str, Any]
    effective: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """The requested and effective value of one field, in some crash tests or cells."""

    cycles: str
    """Numbers of these crash tests or cells; empty for all."""
    asked: str
    found: str
    differs: bool


@dataclass(frozen=True)
class Setting:
    """One field of a layer, with its different cases."""

    field: str
    cases: list[Case]


def configuration(cycles: Sequence[Configured]) -> dict[str, list[Setting]]:
    """Return every field of every layer; crash tests or cells with equal values of a field share a case."""
    cases: dict[tuple[str, str], dict[tuple[str, str, bool], list[int]]] = {}
    for place, cycle in enumerate(cycles, start=1):
        for layer, field, asked, found in fields(cycle):
            differs = asked is not None and found is not _UNWRITTEN and not same(asked, found)
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
    """Yield layer, field, requested value (None if none) and effective value (``_UNWRITTEN`` if not known)."""
    for layer, asked, found in layers(cycle):
        wanted, there = dict(flat(asked)), dict(flat(found))
        matched = {field: counterpart(field, there) for field in wanted}
        for field, wish in wanted.items():
            match = matched[field]
            content = option(field, there) if match is None else there[match]
            if wish is not None or content is not _UNWRITTEN:
                yield layer, field, wish, content
        for field, found_value in there.items():
            if field not in matched.values():
                yield layer, field, None, found_value


def layers(cycle: Configured) -> Iterator[tuple[str, Any, Any]]:
    """Yield each layer with its requested and effective configuration; a mount once for each client."""
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
    """Return the path in a layer's state of a field of its specification: the same path, else a unique last part."""
    if field in there:
        return field
    leaf = field.rpartition(".")[2]
    alike = [path for path in there if path.rpartition(".")[2] == leaf]
    return alike[0] if len(alike) == 1 else None


def option(field: str, there: Mapping[str, Any]) -> Any:
    """Return the value of a field from the options of a layer, as in exports(5): wdelay, no_wdelay, fsid=0."""
    said = there.get("options")
    for word in said if isinstance(said, list) else []:
        if word in (field, f"no_{field}", f"a{field}"):
            return word == field
        if isinstance(word, str) and word.startswith(f"{field}="):
            return word.removeprefix(f"{field}=")
    return _UNWRITTEN


def same(asked: Any, found: Any) -> bool:
    """Return whether a request took effect; JSON turns tuples into lists, and a disk's device ends with its serial."""
    if asked == "none" and found is None:
        return True
    return bool(asked == found) or str(asked) == str(found) or str(found).endswith(f"-{asked}")


def caveats(cycles: Sequence[Configured]) -> dict[str, list[int]]:
    """Return what the stacks cannot prove, with the numbers of the crash tests or cells concerned."""
    held: dict[str, list[int]] = {}
    for place, cycle in enumerate(cycles, start=1):
        for caveat in cycle.effective.get("caveats", ()):
            held.setdefault(str(caveat), []).append(place)
    return held


def value(field: str, content: Any) -> str:
    """Return the value of a field as text."""
    leaf = field.rpartition(".")[2]
    if content is _UNWRITTEN or content is None:
        return UNKNOWN
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, int) and ("size" in leaf or leaf in _SIZES):
        return format_size(content)
    if isinstance(content, list):
        return ", ".join(map(str, content)) or "none"
    return str(content)
