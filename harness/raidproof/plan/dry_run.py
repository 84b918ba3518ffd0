"""The description of a run that has not begun, as a record: what ``--dry-run --json`` prints."""

from pydantic import BaseModel, ConfigDict

from raidproof.core.topology import Platform
from raidproof.monitor.model import Expected
from raidproof.plan.axes import write_value
from raidproof.plan.ceiling import ceilings_of
from raidproof.plan.cell import Matrix
from raidproof.plan.forecast import expect
from raidproof.plan.warnings import Warned, warnings_of

DRY_RUN_SCHEMA = 1


class Record(BaseModel):
    """Base class of the records of this file: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class Ceiling(Record):
    """The throughput that the model computes from the hardware and the settings of a cell."""

    mb_s: float
    """10^6 bytes per second that the application reads and writes."""
    iops: float
    """Application requests per second."""
    limit: str
    """The term of the model that limits the throughput: ``disks``, ``network``, ``sync latency``, ..."""


class PlannedCell(Record):
    """One cell that the run would measure."""

    name: str
    settings: dict[str, str]
    """The cell's value on each axis, in the notation of plan files; axes that do not apply to the cell are missing."""
    workload: str
    """Name of the workload."""
    on: str
    """Where the workload runs: ``clients``, ``server``, ``array``, or the serial of a disk."""
    clients: int
    """Number of clients that run the workload at the same time."""
    ceiling: Ceiling | None = None
    """None: no formula applies, or nothing limits the cell, as on disks without simulated latency."""


class ImpossibleCombination(Record):
    """A combination of values that no stack can have."""

    name: str
    reason: str


class DryRun(Record):
    """What `raidproof run` would measure, how long it would take, and what it needs."""

    schema_version: int = DRY_RUN_SCHEMA
    plan: str
    """Name of the plan."""
    title: str
    platform: Platform
    """The provider of the machines, and their requested software."""
    combinations: int
    """Number of combinations of the plan's values, including impossible ones."""
    cells: list[PlannedCell]
    impossible: list[ImpossibleCombination]
    merged: int
    """Number of combinations that are not measured, as they equal others without the axes that do not apply."""
    repeats: int
    """Repetitions of each cell."""
    repetitions: int
    """Repetitions of all cells together."""
    seed: int
    cut: str | None
    """``power``: one power cut per configuration; ``explore``: also explore the crash states; None: no power cut."""
    faults: list[str] = []
    """The faults of each crash test in their order, as text; empty: a power cut."""
    expected_s: float
    """Estimated duration of the run in seconds."""
    duration_unknown: bool
    """Whether a workload ends only when its work is done, so that its duration is assumed."""
    memory: int
    """Bytes of memory of all machines."""
    disk: int
    """Bytes of memory for the data on the disks, if the workloads write every block."""
    warnings: list[Warned] = []
    """Warnings about the configurations of the cells, the most severe first."""


class ComparisonDryRun(Record):
    """What `raidproof ab` would measure on each of its two sides."""

    schema_version: int = DRY_RUN_SCHEMA
    base: DryRun
    new: DryRun
    alike: bool
    """Whether both sides request the same software."""
    expected_s: float
    """Estimated duration of both sides together in seconds."""
    memory: int
    """Bytes of memory of the machines of both labs, which run at the same time."""


def dry_run(matrix: Matrix, platform: Platform) -> DryRun:
    """Return the description of a run of a plan's cells on a platform."""
    plan, expected, ceilings = matrix.plan, expect(matrix), ceilings_of(matrix)
    return DryRun(
        plan=plan.name,
        title=plan.title,
        platform=platform,
        combinations=plan.combinations,
        cells=[
            PlannedCell(
                name=cell.name,
                settings={name: write_value(name, value) for name, value in cell.settings.items()},
                workload=cell.workload_name,
                on=cell.on,
                clients=cell.clients,
                ceiling=_ceiling(ceilings[cell.name]),
            )
            for cell in matrix.cells
        ],
        impossible=[ImpossibleCombination(name=one.name, reason=one.reason) for one in matrix.impossible],
        merged=matrix.merged,
        repeats=plan.run.repeats,
        repetitions=expected.repetitions,
        seed=plan.run.seed,
        cut=plan.run.cut,
        faults=[str(one) for one in plan.faults],
        expected_s=expected.total_s,
        duration_unknown=expected.open_ended,
        memory=expected.memory,
        disk=expected.disk,
        warnings=list(warnings_of(matrix)),
    )


def _ceiling(expected: Expected | None) -> Ceiling | None:
    if expected is None:
        return None
    return Ceiling(mb_s=expected.mb_s, iops=expected.iops, limit=expected.limit)


def dry_run_of_sides(matrix: Matrix, base: Platform, new: Platform) -> ComparisonDryRun:
    """Return the description of an A/B comparison of a plan's cells on two platforms."""
    sides = [dry_run(matrix, side) for side in (base, new)]
    return ComparisonDryRun(
        base=sides[0],
        new=sides[1],
        alike=base == new,
        expected_s=sum(side.expected_s for side in sides),
        memory=sum(side.memory for side in sides),
    )
