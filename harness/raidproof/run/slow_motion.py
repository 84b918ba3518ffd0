"""`slow_motion = "auto"`: the slow-motion factor of a plan, found by a probe before the first repetition.

The probe measures a few cells in a lab of its own, with the disks at their own speed, and finds what limited them.
While a processor of the simulation does, the factor rises. One factor holds for all cells, rounds and sides, because
values under different factors are not comparable.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from raidproof.core.errors import NotEffective, RequestError, RequirementMissing, RigError
from raidproof.core.files import make_directory
from raidproof.core.log import say, step
from raidproof.core.topology import Platform, Topology
from raidproof.plan.ceiling import ceilings_of
from raidproof.plan.cell import Cell, Matrix
from raidproof.plan.hardware import AUTO
from raidproof.provider.hosts import lab as hosts
from raidproof.provider.registry import lab_of
from raidproof.record.cell import Repetition
from raidproof.record.results.store import RunStore
from raidproof.run.repetition import new_record, run_repetition
from raidproof.run.stack_deployer import StackDeployer
from raidproof.verdict.cell import PROCESSORS, judge_cell
from raidproof.verdict.slow_motion import MOST, factor_for

FACTORS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, MOST)
"""The factors that a probe chooses from: few, so that runs on one host have equal factors and stay comparable."""
PROBED = 2
"""Greatest number of cells that a probe measures."""
TRIES = 3
"""Greatest number of factors that a probe tries."""
PROBE_S = 2.0
"""Greatest number of seconds of the timed part of a workload with a run time, while it is probed."""


def with_factor(matrix: Matrix, factor: float) -> Matrix:
    """Return a matrix whose plan requests this slow-motion factor."""
    hardware = matrix.plan.hardware.model_copy(update={"slow_motion": float(factor)})
    return replace(matrix, plan=matrix.plan.model_copy(update={"hardware": hardware}))


def with_recorded_factor(matrix: Matrix, resumed: RunStore) -> Matrix:
    """Return a matrix with the factor of a stored run in the place of "auto"."""
    if matrix.plan.hardware.slow_motion != AUTO:
        return matrix
    return with_factor(matrix, float(resumed.load().topology.get("slow_motion", 1.0)))


def with_probed_factor(matrix: Matrix, platforms: Sequence[Platform], probed: Sequence[Cell] = ()) -> Matrix:
    """Return a matrix with a factor in the place of "auto": the greatest that one of the platforms needs.

    ``probed``: the cells that the probe chooses from; default: all.
    """
    hardware = matrix.plan.hardware
    if hardware.slow_motion != AUTO:
        return matrix
    among, factor = replace(matrix, cells=tuple(probed) or matrix.cells), 1
    for place, platform in enumerate(platforms):
        if platform not in platforms[:place]:
            factor = probe(among, hardware.topology(platform), factor)
    return with_factor(matrix, factor)


def probe(matrix: Matrix, topology: Topology, least: int = 1) -> int:
    """Return the least factor of `FACTORS` from ``least`` on at which no processor limits the probed cells.

    After `TRIES` factors, it is the next one. If the probe fails, it is the factor of the failed lab; the run itself
    then reports the reason.
    """
    if not topology.timed or topology.provider == hosts.NAME:
        return least
    factor, cells = least, busiest(matrix)
    for _ in range(TRIES):
        step(f"probe for slow motion, factor {factor}: {', '.join(cell.name for cell in cells)}")
        try:
            needed = needed_factor(matrix, cells, topology.model_copy(update={"slow_motion": float(factor)}))
        except (RigError, NotEffective, RequestError, RequirementMissing) as error:
            say(f"the probe for slow motion failed, and the factor is {factor}: {error}")
            return factor
        if needed <= factor:
            say(f"slow motion: factor {factor}, found by a probe")
            return factor
        if factor == MOST:
            break
        factor = next((one for one in FACTORS if one >= needed), MOST)
    say(f"slow motion: factor {factor}; the probe ended before it found a factor at which no processor is the limit")
    return factor


def busiest(matrix: Matrix) -> list[Cell]:
    """Return the cells to probe: those of which the model expects the most requests and the most bytes per second."""
    ceilings = ceilings_of(matrix)
    known = [(cell, found) for cell in matrix.cells if (found := ceilings[cell.name]) is not None]
    if not known:
        return list(matrix.cells[:1])
    chosen = (max(known, key=lambda one: one[1].iops), max(known, key=lambda one: one[1].mb_s))
    return list({cell.name: cell for cell, _ in chosen}.values())[:PROBED]


def needed_factor(matrix: Matrix, cells: Sequence[Cell], topology: Topology) -> float:
    """Measure cells once in a lab; return the factor that they need by the result, at least that of the lab.

    Raises:
        NotEffective, RequestError, RequirementMissing, RigError: a cell could not be measured.
    """
    plan = matrix.plan.model_copy(update={"run": matrix.plan.run.model_copy(update={"reference": False})})
    used = topology.slow_motion
    needed: list[float] = [used]
    with TemporaryDirectory(prefix="raidproof-probe-") as directory, lab_of(topology, logs=Path(directory)) as lab:
        deployer = StackDeployer(lab)
        for cell in cells:
            record, repeat = new_record(cell), Repetition(round=1)
            files = Path(directory) / str(cell.index)
            make_directory(files)
            run_repetition(deployer, plan, shortened(cell), record, repeat, files)
            record.repeats.append(repeat)
            judge_cell(record, None)
            # A cell that is faster than its hardware writes to a cache: slower disks would not change its limit.
            if record.limit in PROCESSORS and (record.ratio or 0.0) < 1:
                needed.append(factor_for(record, used))
        deployer.teardown()
    return max(needed)


def shortened(cell: Cell) -> Cell:
    """Return a cell whose workload takes at most `PROBE_S`, if its run time can be set."""
    runtime = getattr(cell.workload, "runtime_s", None)
    if runtime is None or runtime <= PROBE_S:
        return cell
    return replace(cell, workload=cell.workload.model_copy(update={"runtime_s": PROBE_S}))
