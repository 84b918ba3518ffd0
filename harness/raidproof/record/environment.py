"""The environment of a run as it was found, and the differences of two environments."""

from collections.abc import Iterator, Mapping
from typing import Any

from raidproof.record.cell import CellRecord, Strict

PASSING = frozenset({"array_state", "sync_action", "last_sync_action", "resynced", "mismatch_cnt", "kernel_name"})
"""Fields of a layer's state that say what it does at the moment, not how it was built."""
NAMES = ("uuid=", "fsid=", "clientaddr=")
"""Options that differ wherever something is built twice."""


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested record by dotted path; a list of plain values is one leaf."""
    if isinstance(tree, Mapping):
        for key, branch in tree.items():
            yield from flat(branch, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in tree):
        for place, branch in enumerate(tree):
            yield from flat(branch, f"{path}.{place}" if path else str(place))
    elif tree is not None or path:
        yield path or "value", list(tree) if isinstance(tree, tuple) else tree


class MachineRecord(Strict):
    """One machine of a lab."""

    name: str
    role: str
    asked: str
    """Kernel, image and packages in the words of the command line."""
    kernel: str
    """As ``uname -r`` says it."""
    build: str = ""
    """As /proc/version says it: tells two builds of one release apart."""
    packages: dict[str, str]
    """Version of each installed package that takes part; empty if nobody could tell."""
    cpus: int
    numa_nodes: int
    boot_s: float | None = None
    """From power to an answer, the last time."""


class Environment(Strict):
    """All machines, and the host below them."""

    raidproof: str
    provider: str
    host_kernel: str
    host_cpu: str
    host_cpus: int
    host_tools: dict[str, str]
    """Version of each host program that takes part."""
    machines: list[MachineRecord]
    notes: list[str]
    """What a reader must know about how the machines ran."""
    cannot_prove: list[str]
    """What a run on this provider says nothing about."""

    @property
    def kernels(self) -> str:
        """The machines' kernels in few words: of all, or by role where they differ."""
        return by_role({(one.role, one.kernel) for one in self.machines})


def by_role(values: set[tuple[str, str]]) -> str:
    """Say a value of all machines in few words, from pairs of role and value."""
    if len({value for _, value in values}) == 1:
        return next(iter(values))[1]
    return ", ".join(f"{role} {value}" for role, value in sorted(values, reverse=True))


class Built(Strict):
    """A field that one side has otherwise than the other."""

    field: str
    """Dotted, the layer first: ``filesystem.features``."""
    base: str
    """Of a list, only what the other side has not."""
    new: str
    cells: list[str]


def built_differently(pairs: list[tuple[CellRecord, CellRecord]]) -> list[Built]:
    """Return the fields in which the two sides of a cell were found to differ; cells that differ alike share one.

    So do members, and clients: then the field has a star where their names would stand.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for base, new in pairs:
        # A side where nothing was built has not built it differently.
        if not (base.effective and new.effective):
            continue
        ours, theirs = leaves(base), leaves(new)
        for field in dict.fromkeys([*ours, *theirs]):
            words = apart(ours.get(field), theirs.get(field))
            if words[0] != words[1]:
                found.setdefault((field, *words), []).append(base.name)
    alike: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for (field, old, changed), cells in found.items():
        layer, leaf = field.partition(".")[0], field.rpartition(".")[2]
        alike.setdefault((layer, leaf, old, changed, tuple(cells)), []).append(field)
    return [
        Built(field=starred(fields), base=old, new=changed, cells=list(cells))
        for (_, _, old, changed, cells), fields in alike.items()
    ]


def starred(fields: list[str]) -> str:
    """Return what several fields of one layer have in common, with a star for each part that differs."""
    parts = [field.split(".") for field in fields]
    if len({len(one) for one in parts}) > 1:
        return f"{parts[0][0]}.*.{parts[0][-1]}"
    return ".".join(part[0] if len(set(part)) == 1 else "*" for part in zip(*parts, strict=True))


def leaves(cell: CellRecord) -> dict[str, Any]:
    """Return what was found of each layer, but for what passes."""
    return {path: found for path, found in flat(cell.effective) if path.rpartition(".")[2] not in PASSING}


def apart(base: Any, new: Any) -> tuple[str, str]:
    """Return two values in words; of two lists what only one of them has."""
    if isinstance(base, list) and isinstance(new, list):
        ours, theirs = ([str(one) for one in words if not str(one).startswith(NAMES)] for words in (base, new))
        return (
            " ".join(one for one in ours if one not in theirs) or "-",
            " ".join(one for one in theirs if one not in ours) or "-",
        )
    return "-" if base is None else str(base), "-" if new is None else str(new)
