"""Comparison of two stored runs, whose plans may differ: the cells are matched by what both plans share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raidproof.record.cell import CellRecord
from raidproof.record.comparison import MARGIN, Alone, AxisValues, Built, ComparisonRecord, Matching
from raidproof.record.environment import flat
from raidproof.record.known import KnownRecord
from raidproof.record.run import RunRecord
from raidproof.verdict.change.comparison import compare, difference, different_fields, starred
from raidproof.verdict.change.machines import with_machines

NO_PARTNER = "the other run has no cell with the same workload and the same values of the shared axes"
SEVERAL = "several cells of the other run have the same workload and the same values of the shared axes"
OTHER_VALUE = "the cell of the other run has another measured value"
HARDWARE = ("disks", "controllers", "slow_motion", "provider", "inventory")
"""Parts of a requested lab that are not software; those of the machines are compared without their software."""

CellPair = tuple[CellRecord, CellRecord]


def compare_stored(
    base: RunRecord, new: RunRecord, *, name: str, margin: float = MARGIN, known: KnownRecord | None = None
) -> ComparisonRecord:
    """Return the comparison of two stored runs, which were not measured in turn.

    Values that workers of clusters measured are compared within a machine. A pair of cells has the name of the cell of
    base. ``margin``: the greatest change of a cell that is the same, as a share. ``known``: the differences that are
    expected.
    """
    pairs, matching = match(base, new)
    ours = base.model_copy(update={"cells": [with_machines(base, cell) for cell, _ in pairs]})
    theirs = [with_machines(new, other).model_copy(update={"name": cell.name}) for cell, other in pairs]
    compared = compare(
        ours, new.model_copy(update={"cells": theirs}), name=name, margin=margin, paired=False, known=known
    )
    return compared.model_copy(update={"matching": matching})


def match(base: RunRecord, new: RunRecord) -> tuple[list[CellPair], Matching]:
    """Return the pairs of cells with the same workload and the same values of the axes that both plans have.

    If several cells of a run share these, only cells with the same name or the same requested configuration are pairs.
    """
    ours, theirs = axes_of(base.cells), axes_of(new.cells)
    shared = [axis for axis in ours if axis in theirs]
    others = groups(new.cells, shared)
    pairs: list[CellPair] = []
    only_base: list[Alone] = []
    for key, group in groups(base.cells, shared).items():
        found = pairs_of(group, others.get(key, []))
        pairs += found
        only_base += alone(group, [cell for cell, _ in found], others.get(key, []))
    matched = [other for _, other in pairs]
    mine = groups(base.cells, shared)
    only_new = [one for key, group in others.items() for one in alone(group, matched, mine.get(key, []))]
    order = {cell.name: place for place, cell in enumerate(base.cells)}
    pairs.sort(key=lambda pair: order[pair[0].name])
    return pairs, Matching(
        axes=shared,
        axes_of_base=[AxisValues(axis=axis, values=values) for axis, values in ours.items() if axis not in theirs],
        axes_of_new=[AxisValues(axis=axis, values=values) for axis, values in theirs.items() if axis not in ours],
        renamed={cell.name: other.name for cell, other in pairs if cell.name != other.name},
        only_base=only_base,
        only_new=only_new,
        requested=requested_differently(base, new, pairs),
        apart_s=(new.started - base.started).total_seconds(),
    )


def axes_of(cells: Iterable[CellRecord]) -> dict[str, list[str]]:
    """Return the values of each axis of a run's cells, in order of appearance."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        for axis, value in cell.settings.items():
            found.setdefault(axis, {})[value] = None
    return {axis: list(values) for axis, values in found.items()}


def groups(cells: Iterable[CellRecord], axes: Sequence[str]) -> dict[tuple[str | None, ...], list[CellRecord]]:
    """Return the cells by workload and values of some axes; None is the value of an axis that does not apply."""
    found: dict[tuple[str | None, ...], list[CellRecord]] = {}
    for cell in cells:
        key = (cell.compared_with, *(cell.settings.get(axis) for axis in axes))
        found.setdefault(key, []).append(cell)
    return found


def pairs_of(base: Sequence[CellRecord], new: Sequence[CellRecord]) -> list[CellPair]:
    """Return the pairs of two groups of cells that share workload and values of axes."""
    pairs: list[CellPair] = []
    left, others = list(base), list(new)
    for same in (
        lambda one, other: one.name == other.name,
        lambda one, other: one.asked == other.asked and one.workload == other.workload,
        lambda *_: len(left) == len(others) == 1,
    ):
        for one in list(left):
            other = next((other for other in others if same(one, other) and same_value(one, other)), None)
            if other is not None:
                pairs.append((one, other))
                left.remove(one)
                others.remove(other)
    return pairs


def same_value(base: CellRecord, new: CellRecord) -> bool:
    """Return whether two cells measure the same value; a cell that was not measured fits any other."""
    return not (base.unit and new.unit) or base.unit == new.unit


def alone(group: Sequence[CellRecord], matched: Sequence[CellRecord], others: Sequence[CellRecord]) -> list[Alone]:
    """Return the cells of a group without a partner, each with the reason; ``others``: the group of the other run."""
    taken = {id(cell) for cell in matched}
    left = [cell for cell in group if id(cell) not in taken]
    if not others:
        why = NO_PARTNER
    elif len(group) == len(others) == 1:
        why = OTHER_VALUE
    else:
        why = SEVERAL
    return [Alone(cell=cell.name, why=why) for cell in left]


def requested_differently(base: RunRecord, new: RunRecord, pairs: Sequence[CellPair]) -> list[Built]:
    """Return the requested hardware and configuration that differ between two runs."""
    names = [cell.name for cell, _ in pairs]
    ours, theirs = hardware_of(base.topology), hardware_of(new.topology)
    hosts = [run.environment.host_cpu if run.environment else None for run in (base, new)]
    found: dict[tuple[str, str], list[str]] = {}
    for field in dict.fromkeys([*ours, *theirs]):
        values = difference(ours.get(field), theirs.get(field))
        if values[0] != values[1]:
            found.setdefault(values, []).append(field)
    hardware = [
        Built(field=path, base=values[0], new=values[1], cells=names)
        for values, fields in found.items()
        for path in dict.fromkeys(starred(list(alike)) for alike in by_last_part(fields).values())
    ]
    faults = [", ".join(run.plan.faults) if run.plan is not None else "" for run in (base, new)]
    if faults[0] != faults[1]:
        hardware.append(
            Built(field="faults", base=faults[0] or "a power cut", new=faults[1] or "a power cut", cells=names)
        )
    on_workers = any(run.plan is not None and run.plan.workers for run in (base, new))
    if not on_workers and None not in hosts and hosts[0] != hosts[1]:
        hardware.append(Built(field="host.cpu", base=str(hosts[0]), new=str(hosts[1]), cells=names))
    return [*hardware, *different_fields(pairs, requested)]


def hardware_of(topology: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a requested lab by dotted path, without the software of its machines."""
    fields = dict(flat({part: topology.get(part) for part in HARDWARE}))
    for machine in topology.get("machines", ()):
        named = {key: value for key, value in machine.items() if key not in {"software", "name"}}
        fields |= dict(flat(named, f"machines.{machine.get('name')}"))
    return fields


def by_last_part(fields: Iterable[str]) -> dict[tuple[str, str], list[str]]:
    """Return dotted paths by their first and last parts."""
    found: dict[tuple[str, str], list[str]] = {}
    for field in fields:
        found.setdefault((field.partition(".")[0], field.rpartition(".")[2]), []).append(field)
    return found


def requested(cell: CellRecord) -> dict[str, Any]:
    """Return the requested configuration and the workload of a cell by dotted path."""
    return dict(flat({**cell.asked, "workload": cell.workload}))
