"""The history of a cell: its values in all stored runs that requested the same, and the changes of their level."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median

from pydantic import Field

from raidproof.core.errors import RequestError, nearest
from raidproof.record.cell import CellRecord, Strict
from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.record.sensitivity import Noticed
from raidproof.verdict.cell import why_not_of_the_hardware
from raidproof.verdict.change.change_point import Change, find_changes
from raidproof.verdict.change.host import reference_seconds, version_of
from raidproof.verdict.change.machines import Machine, by_machine
from raidproof.verdict.change.matching import hardware_of, requested
from raidproof.verdict.crash_states import noticed_by

NO_REFERENCE = "no reference measurement of this version: drift of the host is not excluded"
NEAR = 3
"""Greatest number of runs between a change of the values and that of the values relative to the host's speed."""
SCHEMA = 1
"""Version of the output of `raidproof history --json`."""


class Order(StrEnum):
    """The order of the values of a cell."""

    DATE = "date"
    """By the begin of the run."""
    KERNEL = "kernel"
    """By the version of the server's kernel, then by date; a change can begin only with another kernel."""


class HistoryPoint(Strict):
    """A cell in one run."""

    run: str
    started: datetime
    kernel: str
    """Effective kernel release of the server; empty if it is not known."""
    values: list[float]
    """The value of each repetition, in `CellHistory.unit`."""
    median: float | None
    limit: str
    """The resource that limited most repetitions."""
    reference_version: int | None = None
    """Version of the reference measurements before the repetitions; None if a repetition has none."""
    reference_s: float | None = None
    """Median of their durations in seconds; None as above."""
    why_not: str | None = None
    """Why the value is not tested: no measure of the requested hardware, or drift is not excluded; None if tested."""
    outcome: Outcome
    reason: str
    lost: str | None
    """The loss by a power cut, as text; None without a power cut."""
    noticed: Noticed | None = None
    """The missing flushes that the power cut or its crash states would have shown; None if not known."""

    @property
    def tested(self) -> bool:
        """Whether the test for changes of level uses the median of this point."""
        return self.median is not None and self.why_not is None


class LevelChange(Strict):
    """A change of the level of a cell's values."""

    after: str
    """The last run before the change."""
    run: str
    """The first run after the change."""
    level_before: float
    """Median of the values from the previous change on."""
    level: float
    """Median of the values up to the next change."""
    ratio: float | None
    """``level`` divided by ``level_before``; None if the latter is 0."""
    slower: bool
    p_value: float
    """Probability of a difference at least this great at any place, without a change."""


class CellHistory(Strict):
    """The values of one cell in the runs that requested the same hardware and configuration of it."""

    cell: str
    plan: str
    """Path of the plan in the newest run."""
    workload: str
    unit: str
    """Name of the value, which ends with its unit: ``write_mb_s``."""
    lower_is_better: bool
    order: Order
    host: str
    """Processor of the host on which the machines ran; empty if it is not known."""
    worker_host: str = ""
    """Name of the host, if workers of a cluster measured: each of their hosts has a history; else empty."""
    differs: list[str] = Field(default_factory=list)
    """Fields in which this history's request differs from that of the newest history of the same cell."""
    points: list[HistoryPoint]
    changes: list[LevelChange]

    @property
    def tested(self) -> list[HistoryPoint]:
        """The points whose medians are tested for changes of level."""
        return [point for point in self.points if point.tested]


Request = tuple[tuple[str, str], ...]
"""The requested hardware and configuration of a cell, and the host, as pairs of a field and its value."""


def histories(runs: Iterable[RunRecord], cell: str, order: Order = Order.DATE) -> list[CellHistory]:
    """Return the histories of the cells whose name is ``cell``, or matches it as a pattern (fnmatch).

    A cell has a history for each request, hardware and host: values under different ones are not comparable. A run on
    a cluster has a point in the history of each host. The newest history of a cell comes first.

    Raises:
        RequestError: no run has such a cell.
    """
    found: dict[tuple[str, str], dict[Request, list[tuple[RunRecord, CellRecord]]]] = {}
    names: set[str] = set()
    for run in runs:
        names |= {one.name for one in run.cells}
        for one in run.cells:
            if one.repeats and (one.name == cell or fnmatchcase(one.name, cell)):
                mine = found.setdefault((one.name, one.compared_with), {})
                for machine, part in by_machine(run, one).items():
                    mine.setdefault(request_of(run, part, machine), []).append((run, part))
    if not found:
        remedy = nearest(cell, names) if names else "give another directory with --results, or omit --plan"
        raise RequestError(f"no stored run has measured a cell {cell!r}", remedy=remedy)
    return [history for requests in found.values() for history in of_one_cell(requests, order)]


def of_one_cell(requests: Mapping[Request, Sequence[tuple[RunRecord, CellRecord]]], order: Order) -> list[CellHistory]:
    """Return the history of one cell for each request, the one with the newest run first."""
    by_age = sorted(requests, key=lambda one: max(run.started for run, _ in requests[one]), reverse=True)
    newest = dict(by_age[0])
    made = []
    for request in by_age:
        mine = dict(request)
        differs = sorted(
            f"{field} = {mine.get(field, '-')}, newest: {newest.get(field, '-')}"
            for field in {*mine, *newest}
            if mine.get(field) != newest.get(field)
        )
        made.append(history_of(requests[request], request, order, differs))
    return made


def history_of(
    cells: Sequence[tuple[RunRecord, CellRecord]], request: Request, order: Order, differs: Sequence[str] = ()
) -> CellHistory:
    """Return the history of a cell with one request, with its changes of level."""
    points = with_one_reference(sorted((point_of(run, cell) for run, cell in cells), key=lambda one: one.started))
    if order is Order.KERNEL:
        points.sort(key=lambda point: version_key(point.kernel))
    run, cell = max(cells, key=lambda pair: pair[0].started)
    fields = dict(request)
    measured = next((one for _, one in reversed(cells) if one.unit), cell)
    history = CellHistory(
        cell=cell.name,
        plan=run.plan.path if run.plan else "",
        workload=cell.compared_with,
        unit=measured.unit,
        lower_is_better=measured.lower_is_better,
        order=order,
        host=fields.get("host.cpu", ""),
        worker_host=fields.get("host.name", ""),
        differs=list(differs),
        points=points,
        changes=[],
    )
    return history.model_copy(update={"changes": changes_of(history)})


def with_one_reference(points: Sequence[HistoryPoint]) -> list[HistoryPoint]:
    """Return the points by date; those without reference measurements of the newest version are not tested."""
    version = next((one.reference_version for one in reversed(points) if one.reference_version is not None), None)
    return [
        one
        if one.why_not is not None or one.median is None or (version and one.reference_version == version)
        else one.model_copy(update={"why_not": NO_REFERENCE})
        for one in points
    ]


def changes_of(history: CellHistory) -> list[LevelChange]:
    """Return the changes of level of a cell's history that no change of the host's speed explains.

    The medians of the runs are tested, one value for each run; and the medians relative to the speed of the host, by
    the reference measurements. A change counts if both show it: at places near each other, in the same direction. See
    `raidproof.verdict.change.host`.
    """
    tested = history.tested
    splits = None
    if history.order is Order.KERNEL:
        splits = [place for place in range(1, len(tested)) if tested[place].kernel != tested[place - 1].kernel]
    medians = [point.median or 0.0 for point in tested]
    power = -1 if history.lower_is_better else 1
    scales = [(point.reference_s or 1.0) ** power for point in tested]
    relative = find_changes([value * scale for value, scale in zip(medians, scales, strict=True)], splits=splits)
    return [
        LevelChange(
            after=tested[change.index - 1].run,
            run=tested[change.index].run,
            level_before=change.before,
            level=change.after,
            ratio=change.ratio,
            slower=(change.after < change.before) is not history.lower_is_better,
            p_value=max(change.p_value, same.p_value),
        )
        for change in find_changes(medians, splits=splits)
        if (same := nearest_change(change, relative)) is not None
    ]


def nearest_change(change: Change, others: Sequence[Change]) -> Change | None:
    """Return the nearest of other changes in the same direction, at most `NEAR` runs away; None if there is none."""
    rises = change.after > change.before
    alike = [one for one in others if abs(one.index - change.index) <= NEAR and (one.after > one.before) is rises]
    return min(alike, key=lambda one: abs(one.index - change.index), default=None)


def point_of(run: RunRecord, cell: CellRecord) -> HistoryPoint:
    """Return the point of a cell in one run."""
    cycle = run.power_cut_of(cell)
    version = version_of(cell)
    return HistoryPoint(
        run=run.run,
        started=run.started,
        kernel=run.server_kernel,
        values=cell.measured,
        median=cell.median,
        limit=cell.limit,
        reference_version=version,
        reference_s=None if version is None else median(reference_seconds(cell)),
        why_not=why_not_of_the_hardware(cell),
        outcome=cell.outcome,
        reason=cell.reason,
        lost=cell.lost,
        noticed=noticed_by(cycle, cell),
    )


def version_key(version: str) -> list[tuple[int, str]]:
    """Return a key that sorts versions by their numbers: 6.9 before 6.12."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[^\d.]+", version)]


def request_of(run: RunRecord, cell: CellRecord, machine: Machine) -> Request:
    """Return the requested hardware, configuration and workload of a cell, and the host that measured.

    Fields without a value do not count: a newer version of raidproof may have fields that an older one lacks.
    """
    fields = {**hardware_of(run.topology), **requested(cell), "unit": cell.unit or None}
    fields |= {"host.name": machine.name, "host.cpu": machine.cpu, "host.cpus": machine.cpus}
    return tuple(sorted((field, str(value)) for field, value in fields.items() if value not in (None, [], "")))


def name_of_plan(history: CellHistory) -> str:
    """Return the name of a history's plan file."""
    return Path(history.plan).name
