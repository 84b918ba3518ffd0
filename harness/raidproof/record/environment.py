"""The record of a run's environment (machines, host), and the differences of two configurations."""

from collections.abc import Iterator, Mapping
from typing import Any

from raidproof.record.cell import CellRecord, Strict

PASSING = frozenset({"array_state", "sync_action", "last_sync_action", "resynced", "mismatch_cnt", "kernel_name"})
"""Transient fields of a layer's state, which do not depend on how the layer was built."""
NAMES = ("uuid=", "fsid=", "clientaddr=")
"""Prefixes of options that differ in every build."""


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
    """Requested kernel, image and packages, as on the command line."""
    kernel: str
    """Kernel release (``uname -r``)."""
    build: str = ""
    """Kernel build (/proc/version), which distinguishes two builds of one release."""
    packages: dict[str, str]
    """Version of each relevant installed package; empty if not known."""
    cpus: int
    numa_nodes: int
    boot_s: float | None = None
    """Duration of the last boot in seconds, from power on to the first answer."""


class Environment(Strict):
    """All machines of a lab, and their host."""

    raidproof: str
    provider: str
    host_kernel: str
    host_cpu: str
    host_cpus: int
    host_tools: dict[str, str]
    """Version of each relevant host program."""
    machines: list[MachineRecord]
    notes: list[str]
    """Notes for the reader about how the machines ran."""
    cannot_prove: list[str]
    """What a run on this provider cannot prove."""

    @property
    def kernels(self) -> str:
        """The kernel of all machines, or the kernels by role where they differ."""
        return by_role({(one.role, one.kernel) for one in self.machines})


def by_role(values: set[tuple[str, str]]) -> str:
    """Return the common value of all machines, or the values by role; ``values``: pairs of role and value."""
    if len({value for _, value in values}) == 1:
        return next(iter(values))[1]
    return ", ".join(f"{role} {value}" for role, value in sorted(values, reverse=True))


class Built(Strict):
    """A field with different effective values on the two sides."""

    field: str
    """Dotted path, the layer first: ``filesystem.features``."""
    base: str
    """Value on the base side; of a list, only the elements that the other side lacks."""
    new: str
    cells: list[str]


def built_differently(pairs: list[tuple[CellRecord, CellRecord]]) -> list[Built]:
    """Return the fields whose effective values differ on the two sides of a cell.

    Cells with the same difference share an entry. So do members and clients, whose names become a star.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for base, new in pairs:
        # A side on which nothing was built does not count as different.
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
    """Return the common form of several fields of one layer, with a star for each part that differs."""
    parts = [field.split(".") for field in fields]
    if len({len(one) for one in parts}) > 1:
        return f"{parts[0][0]}.*.{parts[0][-1]}"
    return ".".join(part[0] if len(set(part)) == 1 else "*" for part in zip(*parts, strict=True))


def leaves(cell: CellRecord) -> dict[str, Any]:
    """Return the effective fields of each layer, without the transient ones."""
    return {path: found for path, found in flat(cell.effective) if path.rpartition(".")[2] not in PASSING}


def apart(base: Any, new: Any) -> tuple[str, str]:
    """Return two values as text; of two lists only the elements that the other lacks."""
    if isinstance(base, list) and isinstance(new, list):
        ours, theirs = ([str(one) for one in words if not str(one).startswith(NAMES)] for words in (base, new))
        return (
            " ".join(one for one in ours if one not in theirs) or "-",
            " ".join(one for one in theirs if one not in ours) or "-",
        )
    return "-" if base is None else str(base), "-" if new is None else str(new)
