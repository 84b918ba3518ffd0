"""The axes that `raidproof advise` varies, with the current value first, and the matrix of all candidates."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from raidproof.core.errors import RequestError, nearest
from raidproof.plan.axes import axes, axis_of, read_value, write_value
from raidproof.plan.cell import Cell, Matrix, matrix_of
from raidproof.plan.plan import Plan
from raidproof.plan.table import Value
from raidproof.plan.works import names, read_work
from raidproof.storage.deployment import Work, work_of

MOST_CANDIDATES = 600
"""Greatest number of combinations of the axes that are varied by default; further axes are varied on request only."""


@dataclass(frozen=True)
class _Default:
    """The values of an axis that a plan does not vary."""

    usual: object | None
    """The current value if the plan does not state one, in the notation of plans; None: the plan must state it."""
    values: tuple[object, ...]
    note: str = ""
    """What a change costs besides speed."""


IN_PLACE_POLICIES = ("bitmap", "resync")
"""Values of the axis ``consistency_policy`` between which mdadm changes an existing array."""
_RESYNC = "without a bitmap, md reads or writes the whole array after each crash"
DEFAULTS: Mapping[str, _Default] = {
    "chunk": _Default("512KiB", ("64KiB", "256KiB", "1MiB")),
    "wsize": _Default("1MiB", ("64KiB", "256KiB")),
    "stripe_cache_size": _Default(256, (1024, 4096), "each stripe takes a page of memory for each member"),
    "bitmap": _Default("internal", ("none",), _RESYNC),
    "consistency_policy": _Default(None, IN_PLACE_POLICIES, _RESYNC),
    "threads": _Default(8, (16, 64)),
    "wdelay": _Default(True, (False,)),
    "rsize": _Default("1MiB", ("256KiB",)),
    "aligned": _Default(True, (False,)),
    "md_threads": _Default(0, (2,)),
    "nconnect": _Default(1, (4,)),
    "mount_options": _Default("relatime", ("noatime",), "noatime: programs that read access times see old ones"),
    "block_size": _Default("4KiB", ("1KiB",)),
    "array_read_ahead": _Default(None, ("256KiB", "4MiB")),
    "scheduler": _Default(None, ("none", "mq-deadline")),
    "nr_requests": _Default(None, (64, 256)),
    "max_request": _Default(None, ("128KiB", "1MiB")),
    "read_ahead": _Default(None, ("128KiB", "1MiB")),
    "bitmap_chunk": _Default(None, ("64MiB", "128MiB"), "a greater chunk lengthens the resync after a crash"),
    "log_su": _Default(None, ("32KiB", "256KiB")),
    "server_dirty_bytes": _Default(None, ("64MiB", "256MiB")),
    "server_dirty_background_bytes": _Default(None, ("16MiB", "64MiB")),
    "client_dirty_bytes": _Default(None, ("64MiB", "256MiB")),
    "export": _Default("sync", ("async",), "an async export acknowledges writes that a crash loses"),
}
"""Values of axes by name, the most promising axis first. ``export`` is varied on request only."""
ON_REQUEST = frozenset({"export"})
"""Axes of `DEFAULTS` that are varied only on request, or if the current value gives up a promise."""


@dataclass(frozen=True)
class FreeAxis:
    """One axis that is varied."""

    name: str
    values: tuple[Value, ...]
    """The current value first."""
    assumed: bool = False
    """Whether the plan does not state the current value."""

    @property
    def work(self) -> Work:
        """What a change takes on a server that exists."""
        axis = axis_of(self.name)
        if axis.field == "array.consistency_policy" and {*self.values} <= {*IN_PLACE_POLICIES}:
            return work_of("array.bitmap")
        return work_of(axis.field or ("filesystem.log" if self.name == "log" else ""))

    @property
    def note(self) -> str:
        """What a change costs besides speed; empty if nothing is known."""
        return DEFAULTS[self.name].note if self.name in DEFAULTS else ""

    @property
    def written(self) -> list[str]:
        """The values in the notation of plans."""
        return [write_value(self.name, value) for value in self.values]


@dataclass(frozen=True)
class Free:
    """The axes that are varied, and the candidates."""

    matrix: Matrix
    """All possible combinations."""
    axes: tuple[FreeAxis, ...]
    current: Cell
    """The current configuration."""
    left: tuple[str, ...] = ()
    """Names of axes that are varied on request only, because there would be too many combinations."""

    def places(self, cell: Cell) -> tuple[int | None, ...]:
        """Return for each axis the place of a cell's value; None if the axis does not apply to the cell."""
        return tuple(
            axis.values.index(cell.settings[axis.name]) if axis.name in cell.settings else None for axis in self.axes
        )

    def with_current(self, cell: Cell, axis: str) -> Cell | None:
        """Return the candidate that differs from a cell only in that an axis has its current value; None without."""
        return self.like(cell, {axis: next(one for one in self.axes if one.name == axis).values[0]})

    def like(self, cell: Cell, changes: Mapping[str, Value]) -> Cell | None:
        """Return the candidate with the settings of a cell, except for changes; None if it is impossible."""
        wanted = {axis.name: cell.settings.get(axis.name, axis.values[0]) for axis in self.axes} | dict(changes)
        return next((one for one in self.matrix.cells if _fits(one, wanted)), None)

    def changes(self, cell: Cell) -> dict[str, str]:
        """Return the values of a cell that differ from the current ones, in the notation of plans."""
        return {
            axis.name: write_value(axis.name, cell.settings[axis.name])
            for axis in self.axes
            if axis.name in cell.settings and cell.settings[axis.name] != axis.values[0]
        }


def _fits(cell: Cell, wanted: Mapping[str, Value]) -> bool:
    return all(cell.settings[name] == value for name, value in wanted.items() if name in cell.settings)


def free_of(
    plan: Plan, vary: Sequence[str] | None = None, keep: Collection[str] = (), workload: str | None = None
) -> Free:
    """Return the axes of a plan that are varied, and all candidates; this boots no machine.

    ``vary`` and ``keep`` replace the keys of the plan's table ``[advise]``. Without ``vary``, the axes that the plan
    varies are free; of a plan without axes, those of `DEFAULTS`. An axis that is kept has its first value.
    ``workload``: name of the workload, if the plan has several.

    Raises:
        RequestError: the plan has faults, an axis or workload is unknown, no axis is free, or a current value is not
            known or impossible.
    """
    if plan.fault:
        raise RequestError(
            "advise cuts the power of the fastest configurations once, and the plan has tables [[fault]]",
            remedy="remove these tables; raidproof run tests the recommended configuration with them",
        )
    asked = tuple(vary if vary is not None else plan.advise.vary)
    kept = {*(keep or plan.advise.keep)}
    for name in (*asked, *sorted(kept)):
        axis_of(name)
    if both := sorted({*asked} & kept):
        raise RequestError(f"{', '.join(both)}: to be varied and to be kept; remove one of the two entries")
    chosen = _one_workload(plan, workload)
    stated = {**plan.fixed, **{name: values[0] for name, values in plan.axes.items()}}
    stated, alignment = _alignment(plan, stated, chosen)
    named = asked or tuple(name for name, values in plan.axes.items() if len(values) > 1)
    free = [_free(plan, stated, name) for name in named if name not in kept]
    left: list[str] = []
    if not named:
        free, left = _usual(plan, stated, {*kept, *_without_effect(chosen)})
        free += [axis for axis in alignment if axis.name not in kept]
    if stated.get("export") is False and "export" not in {*kept, *(axis.name for axis in free)}:
        free.append(FreeAxis("export", (False, True)))
    free = [axis for axis in free if len(axis.values) > 1]
    if not free:
        raise RequestError("no axis is free", remedy="name axes with --vary, or give axes of the plan several values")
    varied = {axis.name: axis.values for axis in free}
    base = {name: value for name, value in stated.items() if name not in varied}
    matrix = matrix_of(
        plan.model_copy(update={"axes": varied, "fixed": base, "workload": (dict(chosen),), "figure": ()})
    )
    first = {axis.name: axis.values[0] for axis in free}
    current = next((cell for cell in matrix.cells if _fits(cell, first)), None)
    if current is None:
        reason = matrix.impossible[0].reason if matrix.impossible else "an option leaves it out"
        raise RequestError(f"the current configuration is impossible: {reason}")
    return Free(matrix, tuple(free), current, tuple(left))


def _one_workload(plan: Plan, name: str | None) -> Mapping[str, Any]:
    listed = names(plan.workload)
    if name is None and len(listed) > 1:
        raise RequestError(
            f"the plan has {len(listed)} workloads, and advice is for one", remedy=f"--workload {'|'.join(listed)}"
        )
    if name is not None and name not in listed:
        raise RequestError(f"the plan has no workload {name!r}", remedy=nearest(name, listed))
    return plan.workload[listed.index(name) if name else 0]


def _alignment(
    plan: Plan, stated: Mapping[str, Value], work: Mapping[str, Any]
) -> tuple[dict[str, Value], list[FreeAxis]]:
    """Return the settings without su and sw that only repeat the array's, as they would not follow another chunk size.

    If they differ from the array's, also return the axes that change them to the array's.
    """
    without = {name: value for name, value in stated.items() if name not in {"su", "sw"}}
    if len(without) == len(stated):
        return without, []
    alone = plan.model_copy(update={"axes": {}, "fixed": without, "workload": (dict(work),), "figure": ()})
    stack = matrix_of(alone).cells[0].stack
    geometry = stack.array.geometry
    usual = stack.filesystem.alignment(geometry)
    if usual is None or (stated.get("su"), stated.get("sw")) == (usual.su, usual.sw):
        return (dict(stated), []) if usual is None else (without, [])
    right = {"su": usual.su, "sw": usual.sw}
    axes_ = [
        FreeAxis(name, (stated[name], right[name])) for name in right if stated.get(name, right[name]) != right[name]
    ]
    return dict(stated), axes_


def _without_effect(work: Mapping[str, Any]) -> set[str]:
    """Return the names of axes without an effect on a workload: those of reads if it only writes, and the reverse."""
    access = read_work(work).access(clients=1)
    if access is None or 0 < access.read_share < 1:
        return set()
    return {"wsize", "wdelay"} if access.read_share else {"rsize", "read_ahead", "array_read_ahead"}


def _free(plan: Plan, stated: Mapping[str, Value], name: str) -> FreeAxis:
    """Return an axis that the user names, with the plan's values or the default ones."""
    if len(values := plan.axes.get(name, ())) > 1:
        return FreeAxis(name, values)
    default = DEFAULTS.get(name)
    if default is None or (name not in stated and default.usual is None):
        known = "current value" if default else "values"
        raise RequestError(
            f"{name}: its {known} must be stated",
            remedy=f"write the values under [axes], the current one first: {name} = [...]",
        )
    others = [read_value(name, value) for value in (default.usual, *default.values) if value is not None]
    first = stated[name] if name in stated else others[0]
    return FreeAxis(name, (first, *(value for value in others if value != first)), assumed=name not in stated)


def _usual(plan: Plan, stated: Mapping[str, Value], kept: Collection[str]) -> tuple[list[FreeAxis], list[str]]:
    """Return the axes that are varied by default, and the names of those left out because of their number."""
    free: list[FreeAxis] = []
    left: list[str] = []
    for name, default in DEFAULTS.items():
        unknown = default.usual is None and name not in stated
        aligned_by_hand = name in {"aligned", "chunk"} and "su" in stated
        policy = name == "bitmap" and "consistency_policy" in stated
        policy |= name == "consistency_policy" and stated.get(name) not in IN_PLACE_POLICIES
        if name in kept or name in ON_REQUEST or unknown or aligned_by_hand or policy:
            continue
        if not axes()[name].applies(stated):
            continue
        axis = _free(plan, stated, name)
        if prod(len(one.values) for one in [*free, axis]) > MOST_CANDIDATES:
            left.append(name)
        else:
            free.append(axis)
    return free, left
