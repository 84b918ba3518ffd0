"""The cells of a plan: each possible combination of values with its stack; each impossible one with the reason."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from raidproof.core.errors import RequestError
from raidproof.core.layer import one_of
from raidproof.fault.schedule import Schedule
from raidproof.plan import works
from raidproof.plan.axes import VOLUME, Settings, axis_of, level_of, write_value
from raidproof.plan.hardware import Duty, Hardware
from raidproof.plan.plan import Plan, Selection, load_plan
from raidproof.plan.table import Value
from raidproof.storage.array import LEVELS
from raidproof.storage.filesystem import USUAL
from raidproof.storage.stack import StackSpec
from raidproof.storage.volume import DEFAULT, VOLUMES
from raidproof.workload.workload import SERVER, AnyWorkload

LEASE_S = 10
"""Default NFS lease in seconds, the shortest that nfsd accepts. With the kernel's default of 90 s, each power cut
under NFSv4.0 would wait for a grace period of 90 s."""


def wanted(settings: Settings) -> dict[Duty, int]:
    """Return the number of spare, journal, cache and log disks that a cell with these settings needs, by duty."""
    return {
        "spare": int(settings.get("spares", 0)),
        "journal": int(settings.get("consistency_policy") == "journal"),
        "cache": len(further_disks(settings)),
        "log": int(settings.get("log") == "external"),
    }


def further_disks(settings: Settings) -> tuple[str, ...]:
    """Return the fields of the volume's request that name a disk outside the array."""
    return VOLUMES[str(settings.get(VOLUME, DEFAULT))].further_disks


def usual_members(hardware: Hardware, all_settings: Iterable[Settings]) -> int:
    """Return the default number of members: the greatest number that is possible in every cell.

    A disk that one cell needs for another duty is a member in no cell, so that the cells are comparable.
    """
    duties = [disk.duty for disk in hardware.each_disk]
    missing = [
        sum(max(0, number - duties.count(duty)) for duty, number in wanted(settings).items())
        for settings in all_settings
    ]
    return duties.count("member") - max(missing, default=0)


def stack_of(hardware: Hardware, settings: Settings, members: int, *, assume_clean: bool) -> StackSpec:
    """Return the stack that a cell's settings specify, on disks of the plan's hardware.

    ``members``: number of members of a cell that sets no number.

    Raises:
        RequestError: the stack is impossible, or the hardware has too few or too small disks for the stack.
    """
    layers: dict[str, dict[str, Any]] = {
        "export": {"lease_s": LEASE_S},
        "array": {"assume_clean": assume_clean},
        "filesystem": {"type": USUAL},
        "link": hardware.network.model_dump(),
    }
    for name, value in settings.items():
        layer, _, field = axis_of(name).field.partition(".")
        if field:
            layers.setdefault(layer, {})[field] = value
    # A grace period shorter than the lease would end before an idle client notices the server's restart.
    layers["export"].setdefault("grace_s", layers["export"]["lease_s"])
    array = layers["array"]
    # Set the level explicitly, even the default, so that the record of a cell shows it.
    array.setdefault("level", level_of(settings).name)
    _place(hardware, settings, members, layers)
    if not LEVELS[array["level"]].chunked:
        array.setdefault("chunk_size", None)
    stack = StackSpec.model_validate(layers)
    stack.refuse_disks(hardware.disk_sizes)
    return stack


def _place(hardware: Hardware, settings: Settings, members: int, layers: dict[str, dict[str, Any]]) -> None:
    free: dict[str, list[str]] = {}
    for disk in hardware.each_disk:
        free.setdefault(disk.duty, []).append(disk.spec.serial)

    def take(duty: Duty, number: int) -> tuple[str, ...]:
        # Disks of this duty first, then the member disks that the array does not use.
        found = [*free.get(duty, []), *(free.get("member", []) if duty != "member" else [])][:number]
        if len(found) < number:
            raise RequestError(
                f"{number} {duty} disk{'s' if number > 1 else ''} requested, only {len(found)} available"
            )
        for serial in found:
            next(serials for serials in free.values() if serial in serials).remove(serial)
        return tuple(found)

    layers["array"]["members"] = take("member", int(settings.get("members", members)))
    wants = wanted(settings)
    if spares := take("spare", wants["spare"]):
        layers["array"]["spares"] = spares
    if journal := take("journal", wants["journal"]):
        layers["array"]["journal"] = journal[0]
    caches = take("cache", wants["cache"])
    layers.setdefault("volume", {}).update(zip(further_disks(settings), caches, strict=True))
    if log := take("log", wants["log"]):
        layers["filesystem"]["log"] = log[0]


@dataclass(frozen=True)
class Cell:
    """One configuration under one workload: the unit that a run measures and ranks."""

    name: str
    """The settings on the varied axes, ``level=5 chunk=64KiB``: stable and unique in the plan."""
    settings: Mapping[str, Value]
    """Values by axis name, including values that all cells share, without axes that do not apply."""
    stack: StackSpec
    workload: AnyWorkload
    workload_name: str
    """Name of the workload in cells and tables; see `works.names`."""
    on: str
    """Where the workload runs: ``clients``, ``server``, ``array``, or the serial of a disk."""
    clients: int
    """Number of clients that run the workload at the same time."""
    index: int
    """Index among all possible cells of the plan, from 0 on; a selection of cells does not change the index."""

    def __str__(self) -> str:
        return self.name

    @property
    def words(self) -> tuple[str, ...]:
        """The settings in the cell's name, one per element: ``("level=5", "chunk=64KiB")``."""
        return tuple(self.name.split())


@dataclass(frozen=True)
class Impossible:
    """A combination of values for which no stack can be built."""

    name: str
    """The settings on the varied axes, in the form of `Cell.name`."""
    reason: str
    """The error that building the stack's specification raised."""


@dataclass(frozen=True)
class Matrix:
    """All cells of a plan, and the combinations of values that are no cells."""

    plan: Plan
    cells: tuple[Cell, ...]
    impossible: tuple[Impossible, ...] = ()
    without: tuple[str, ...] = ()
    """One sentence for each axis that at least one combination leaves out: the combinations and the reason."""
    merged: int = 0
    """Number of combinations that are not measured: without the axes that do not apply, they equal another one."""

    def select(self, expression: str | None) -> "Matrix":
        """Return a matrix of only the cells whose names match an expression; see `Selection`.

        Raises:
            RequestError: the expression is invalid, or no cell matches.
        """
        if not expression:
            return self
        selection = Selection(expression)
        cells = tuple(cell for cell in self.cells if selection.matches(cell.name))
        if not cells:
            raise RequestError(
                f"-k {expression!r}: no cell's name matches",
                remedy=f"a cell's name is for example {self.cells[0].name!r}",
            )
        return replace(self, cells=cells)

    @property
    def digest(self) -> str:
        """Digest of hardware, run options, faults and cells; a run can be resumed only if the digest is equal."""
        text = "\n".join(
            [
                self.plan.hardware.model_dump_json(),
                self.plan.run.model_dump_json(),
                *(json.dumps(fault, sort_keys=True) for fault in self.plan.fault),
                *(
                    f"{cell.name} {cell.on} {cell.clients} {cell.stack.model_dump_json()} "
                    f"{cell.workload.model_dump_json()}"
                    for cell in self.cells
                ),
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Combination:
    """One combination of values and workload, without axes that do not apply; it may be impossible."""

    varied: Mapping[str, Value]
    """Values of the axes that the plan varies."""
    settings: Mapping[str, Value]
    """Values of all axes, including values that all cells share."""
    workload: int
    """Index in `Plan.workload`."""


def matrix_of(plan: Plan) -> Matrix:
    """Return the cells of a plan; this boots no machine.

    Raises:
        RequestError: no combination is possible, two workloads have the same name, or the option ``only`` or a
            published figure names no cell.
    """
    names = works.names(plan.workload)
    combinations, without = _combinations(plan)
    members = usual_members(plan.hardware, [one.settings for one in combinations])
    cells: list[Cell] = []
    impossible: list[Impossible] = []
    for one in combinations:
        label = names[one.workload] if len(names) > 1 else ""
        name = _name(one.varied, label) or names[one.workload]
        try:
            cells.append(_cell(plan, one, members, name, names[one.workload], len(cells)))
        except RequestError as error:
            impossible.append(Impossible(name, str(error)))
    if not cells:
        why = "; ".join(dict.fromkeys(one.reason for one in impossible))
        raise RequestError(f"no cell of this plan is possible: {why}")
    matrix = Matrix(
        plan=plan,
        cells=tuple(cells),
        impossible=tuple(impossible),
        without=tuple(without),
        merged=plan.combinations - len(combinations),
    ).select(plan.run.only)
    known = [cell.name for cell in matrix.cells]
    for figure in plan.figure:
        one_of(f"cell of figure {figure.name!r}", figure.cell, known)
    return matrix


def _combinations(plan: Plan) -> tuple[list[_Combination], list[str]]:
    """Return all combinations, each once, and a sentence for each axis that does not apply in some of them."""
    without: dict[str, None] = {}
    found: dict[tuple[object, ...], _Combination] = {}
    for workload, values in product(range(len(plan.workload)), list(product(*plan.axes.values()))):
        varied = dict(zip(plan.axes, values, strict=True))
        both = {**plan.fixed, **varied}
        for name in _idle(both):
            where = axis_of(name).where
            without[f"{name} is left out where {where.unless if where else ''}"] = None
        settings = {name: value for name, value in both.items() if name not in set(_idle(both))}
        key = (workload, *((name, repr(value)) for name, value in settings.items()))
        varied = {name: value for name, value in varied.items() if name in settings}
        found.setdefault(key, _Combination(varied, settings, workload))
    return list(found.values()), list(without)


def _idle(settings: Mapping[str, Value]) -> Iterator[str]:
    return (name for name in settings if not axis_of(name).applies(settings))


def _name(varied: Mapping[str, Value], workload: str) -> str:
    words = [f"{name}={write_value(name, value)}" for name, value in varied.items()]
    return " ".join([*words, *([f"workload={workload}"] if workload else [])])


def _cell(plan: Plan, one: _Combination, members: int, name: str, workload_name: str, index: int) -> Cell:
    clients = int(one.settings.get("clients", plan.hardware.clients))
    if not 1 <= clients <= plan.hardware.clients:
        most = plan.hardware.clients
        raise RequestError(f"clients = {clients}: not from 1 to the hardware's number of clients, {most}")
    stack = stack_of(plan.hardware, one.settings, members, assume_clean=plan.run.assume_clean)
    if plan.fault:
        Schedule.of(plan.faults, stack).refuse(stack)
    on = works.where(plan.workload[one.workload], plan.hardware.disk_sizes)
    if on == works.ARRAY and stack.array.only_filesystem is not None:
        raise RequestError(
            f"on = {works.ARRAY!r}: raid = {stack.array.type} makes no device of the array",
            remedy=f"write on = {SERVER!r}, or the name of a disk",
        )
    return Cell(
        name=name,
        settings=one.settings,
        stack=stack,
        workload=works.with_settings(plan.workload[one.workload], one.settings),
        workload_name=workload_name,
        on=on,
        clients=clients,
        index=index,
    )


@dataclass(frozen=True)
class PlannedCell(Cell):
    """A cell with the matrix and the plan file that contain it, as a parameter of pytest tests."""

    matrix: Matrix = field(repr=False, compare=False)
    path: Path = field(repr=False, compare=False)


def cells_of(path: Path | str, k: str | None = None) -> tuple[PlannedCell, ...]:
    """Return the possible cells of a plan file, for ``pytest.mark.parametrize``; ``str()`` of a cell is its name.

    ``k``: an expression that selects cells; see `Selection`.

    Raises:
        RequestError: the plan is invalid, or ``k`` selects no cell.
    """
    matrix = matrix_of(load_plan(Path(path)))
    return tuple(
        PlannedCell(**{one.name: getattr(cell, one.name) for one in fields(Cell)}, matrix=matrix, path=Path(path))
        for cell in matrix.select(k).cells
    )
