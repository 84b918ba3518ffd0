"""What two sides have built of the same request: a new kernel or tool may choose other defaults."""

from typing import Any

from harness.record.cell import CellRecord, Strict
from harness.record.leaves import flat

PASSING = frozenset({"array_state", "sync_action", "last_sync_action", "resynced", "mismatch_cnt", "kernel_name"})
"""Fields of a layer's state that say what it does at the moment, not how it was built."""
NAMES = ("uuid=", "fsid=", "clientaddr=")
"""Options that differ wherever something is built twice."""


class Built(Strict):
    """A field that one side has otherwise than the other."""

    field: str
    """Dotted, the layer first: ``filesystem.features``."""
    base: str
    """Of a list, only what the other side has not."""
    new: str
    cells: list[str]


def built_differently(pairs: list[tuple[CellRecord, CellRecord]]) -> list[Built]:
    """Return the fields in which the two sides of a cell were found to differ; cells that differ alike share one."""
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
    return [Built(field=field, base=ours, new=theirs, cells=cells) for (field, ours, theirs), cells in found.items()]


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
