"""The configuration of every layer, asked beside found, over all cycles of a run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raidproof.core.units import format_size
from raidproof.record.environment import flat
from raidproof.report.words import UNKNOWN

NOT_ASKED = "(not asked)"
_UNWRITTEN = object()
_SIZES = frozenset({"su", "rsize", "wsize", "memory"})


class Configured(Protocol):
    """A cycle, or a plan's cell: layers that were asked, and found."""

    asked: dict[str, Any]
    effective: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What some cycles asked and found of one field."""

    cycles: str
    """Their numbers; empty for all."""
    asked: str
    found: str
    differs: bool


@dataclass(frozen=True)
class Setting:
    """One field of a layer."""

    field: str
    cases: list[Case]


def configuration(cycles: Sequence[Configured]) -> dict[str, list[Setting]]:
    """Return every field of every layer; cycles in which a field is the same share a case."""
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
    """Yield layer, field, asked (None if it was not) and found (``_UNWRITTEN`` if it is not known)."""
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
    """Yield each layer with what was asked and found of it; a mount once for each client."""
    found = dict(cycle.effective)
    mounts = found.pop("mounts", None)
    found.pop("caveats", None)  # stand where the report says what a run cannot prove
    for layer, asked in cycle.asked.items():
        if layer == "mount" and mounts and layer not in found:
            for client, mount in mounts.items():
                yield f"mount on {client}", asked, mount
        else:
            yield layer, asked, found.pop(layer, None)
    for layer, state in found.items():
        yield layer, None, state


def counterpart(field: str, there: Mapping[str, Any]) -> str | None:
    """Return where a layer's state has a field of its specification: by path, else by a name that is there once."""
    if field in there:
        return field
    leaf = field.rpartition(".")[2]
    alike = [path for path in there if path.rpartition(".")[2] == leaf]
    return alike[0] if len(alike) == 1 else None


def option(field: str, there: Mapping[str, Any]) -> Any:
    """Return what the options of a layer say of a field, in the words of exports(5): wdelay, no_wdelay, fsid=0."""
    said = there.get("options")
    for word in said if isinstance(said, list) else []:
        if word in (field, f"no_{field}", f"a{field}"):
            return word == field
        if isinstance(word, str) and word.startswith(f"{field}="):
            return word.removeprefix(f"{field}=")
    return _UNWRITTEN


def same(asked: Any, found: Any) -> bool:
    """Whether a wish came true; JSON has made lists of tuples, and a disk is asked by serial and found by device."""
    if asked == "none" and found is None:
        return True
    return bool(asked == found) or str(asked) == str(found) or str(found).endswith(f"-{asked}")


def caveats(cycles: Sequence[Configured]) -> dict[str, list[int]]:
    """Return what the stacks cannot stand for, with the numbers of the cycles that it holds for."""
    held: dict[str, list[int]] = {}
    for place, cycle in enumerate(cycles, start=1):
        for caveat in cycle.effective.get("caveats", ()):
            held.setdefault(str(caveat), []).append(place)
    return held


def value(field: str, content: Any) -> str:
    """Write the value of a field."""
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
