"""A plan, and a comparison of two sides, on a cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from raidproof.cluster.campaign import require_portable
from raidproof.cluster.connection import connected
from raidproof.cluster.identity import software_digest
from raidproof.cluster.round_pool import Done, RoundPool
from raidproof.cluster.rounds import ALONE, CutRequest, Made, PlanJob, Request, RoundRequest, SideResult
from raidproof.cluster.spec import ClusterSpec
from raidproof.core.errors import RequestError
from raidproof.core.files import make_directory, write_durably
from raidproof.core.log import say, step
from raidproof.core.topology import Platform, Topology
from raidproof.plan.cell import Cell, Matrix
from raidproof.plan.forecast import CUT, EXPLORATION, in_words, repetition_overheads, timed_s
from raidproof.provider.hosts import lab as hosts
from raidproof.record import RunRecord
from raidproof.record.comparison import BASE, NEW, ComparisonRecord
from raidproof.record.results.progress import report_progress
from raidproof.record.worker import WorkerRecord
from raidproof.run.comparison import Effort, Place, in_turn, measure, run_ab
from raidproof.run.plan_runner import PlanRunner, key_of, run_plan
from raidproof.run.slow_motion import with_factor
from raidproof.verdict.change.comparison import why_nothing_is_compared
from raidproof.verdict.change.statistics import evenly

LONGEST_ROUND_S = 30 * 60.0
"""Greatest expected duration of a round in seconds: if its worker disappears, the whole round is made again."""


def run_plan_on(
    spec: ClusterSpec, matrix: Matrix, path: Path, results: Path, *, platform: Platform | None = None, **options: Any
) -> tuple[RunRecord, Path | None]:
    """Run a plan on a cluster, or resume a run of it there; as `run_plan`, whose other parameters it has.

    Raises:
        RequestError: as for `run_plan`, or the plan needs files of this host, or a round takes too long.
        RequirementMissing: this host cannot run a lab, or Dask is not installed.
        RigError: no worker is left, workers refused a round, or the scheduler is lost.
    """
    matrix = without_probe(matrix)
    topology = matrix.plan.hardware.topology(platform or matrix.plan.run.platform)
    require_movable(matrix, [topology], files=not spec.on_this_host)
    with connected(spec) as client:
        return run_plan(
            matrix,
            path,
            results,
            platform=platform,
            carry_out=partial(_carry_out_plan, client, spec.wait_s),
            **options,
        )


def run_ab_on(
    spec: ClusterSpec, matrix: Matrix, path: Path, results: Path, *, base: Platform, new: Platform, **options: Any
) -> tuple[ComparisonRecord, Path]:
    """Compare two sides on a cluster; as `run_ab`, whose other parameters it has.

    Raises:
        RequestError: the plan needs files of this host, or a round of both sides takes too long.
        RequirementMissing: this host cannot run a lab, or Dask is not installed.
        RigError: no worker is left, workers refused a round, or the scheduler is lost.
    """
    matrix = without_probe(matrix)
    topologies = [matrix.plan.hardware.topology(platform) for platform in (base, new)]
    require_movable(matrix, topologies, files=not spec.on_this_host)
    with connected(spec) as client:
        carry_out = partial(_carry_out_comparison, client, spec.wait_s)
        return run_ab(matrix, path, results, base=base, new=new, carry_out=carry_out, **options)


def without_probe(matrix: Matrix) -> Matrix:
    """Return a matrix whose plan has a slow-motion factor: a probe on this host says nothing about the workers.

    Raises:
        RequestError: the plan requests a probe.
    """
    matrix.plan.hardware.refuse_auto("with --cluster")
    return with_factor(matrix, matrix.plan.hardware.factor)


def require_movable(matrix: Matrix, topologies: Sequence[Topology], *, files: bool = True) -> None:
    """Verify that workers can make the rounds of a plan, for each of these labs.

    ``files``: whether the plan must do without files of this host, because workers run on other hosts.

    Raises:
        RequestError: the plan needs a file or machines of this host, or a round takes longer than `LONGEST_ROUND_S`.
    """
    remedy = "run the plan without --cluster"
    for topology in topologies:
        if topology.provider == hosts.NAME:
            raise RequestError("provider hosts has the machines of one inventory, not of workers", remedy=remedy)
        if not files:
            continue
        require_portable(topology)
        if profile := next((one.profile for one in topology.disks if one.profile and is_file(one.profile)), None):
            raise RequestError(
                f"the disk profile {profile} is a file of this host, which the workers of a cluster do not have",
                remedy="use a profile of raidproof, or run the plan without --cluster",
            )
    for cell in matrix.cells:
        if files and (named := getattr(cell.workload, "files", ())):
            raise RequestError(
                f"workload {cell.workload_name}: {named[0]} is a file of this host, which the workers of a cluster "
                "do not have",
                remedy=remedy,
            )
    durations = round_of(matrix, len(topologies))
    if (whole := sum(durations.values())) > LONGEST_ROUND_S:
        name, longest = max(durations.items(), key=lambda one: one[1])
        raise RequestError(
            f"a round of this plan takes about {in_words(whole)}, more than {in_words(LONGEST_ROUND_S)}; the longest "
            f"cell, {name}, takes {in_words(longest)}: a round is the unit that one worker makes without interruption",
            remedy="select fewer cells with -k, shorten the workload, or run the plan without --cluster",
        )


def is_file(profile: str) -> bool:
    """Return whether a disk profile is a file of the user; see `raidproof.disk.profile.load_profile`."""
    return profile.endswith(".toml")


def round_of(matrix: Matrix, sides: int) -> dict[str, float]:
    """Return the expected duration in seconds of each cell in the first round, by the cell's name.

    ``sides``: number of sides of the comparison, each of which measures the cell; 1 for a plan alone.
    """
    overheads = repetition_overheads(matrix)
    return {cell.name: sides * (overheads[1, cell.name] + timed_s(matrix.plan, cell)) for cell in matrix.cells}


def job_of(runners: Mapping[str, PlanRunner]) -> PlanJob:
    """Return the job for the workers, from the runners of all sides."""
    one = next(iter(runners.values()))
    topologies = {side: runner.current_run.topology for side, runner in runners.items()}
    # The earlier results of a resumed run are not sent.
    record = one.record.model_copy(update={"order": [], "workers": []})
    software = {side: software_digest(topology) for side, topology in topologies.items()}
    return PlanJob(one.matrix, record, topologies, software)


def _carry_out_plan(client: Any, wait_s: float, runner: PlanRunner) -> None:
    named = {ALONE: runner}
    with RoundPool[Request, Made](client, job_of(named), wait_s=wait_s) as pool:
        carry_out_plan(OnWorkers(pool, named), runner)


def carry_out_plan(hands: "OnWorkers", runner: PlanRunner) -> None:
    """Make every remaining repetition of a plan, then every power cut."""
    hands.take_turns({ALONE: runner}, hands.begin(runner))
    if runner.plan.run.cut is not None:
        hands.finish(runner)


def _carry_out_comparison(client: Any, wait_s: float, executions: Sequence[PlanRunner], effort: Effort) -> None:
    named = dict(zip((BASE, NEW), executions, strict=True))
    with RoundPool[Request, Made](client, job_of(named), wait_s=wait_s) as pool:
        measure(executions, effort, OnWorkers(pool, named))


class OnWorkers:
    """Repetitions and power cuts by the workers of a cluster; see `raidproof.run.comparison.Hands`."""

    def __init__(self, pool: RoundPool[Request, Made], named: Mapping[str, PlanRunner]) -> None:
        self._pool = pool
        self._named = named
        self._earlier = {side: list(runner.record.workers) for side, runner in named.items()}
        self._done: dict[tuple[str, str], WorkerRecord] = {}
        """The workers of this process by side and session."""

    def begin(self, execution: PlanRunner) -> list[Place]:
        """Return the remaining repetitions of one side, in order; the workers boot labs."""
        return execution.left()

    def take_turns(self, named: Mapping[str, PlanRunner], places: Iterable[Place]) -> None:
        """Make repetitions in whole rounds; both sides of a round are made by one worker in turn."""
        self._take(self._rounds(named, places))

    def _take(self, requests: Iterable[Request]) -> None:
        try:
            for done in self._pool.results(requests):
                self._merge(done)
        finally:
            # Also those that refused a request, if that ended the run.
            self._note_workers()

    def _rounds(self, named: Mapping[str, PlanRunner], places: Iterable[Place]) -> Iterator[RoundRequest]:
        for round_, group in groupby(places, key=lambda place: place[0]):
            turns = turns_of(named, round_, [cell for _, cell in group])
            if self._nothing_is_compared():
                return
            if turns:
                yield RoundRequest(round_, turns)

    def _nothing_is_compared(self) -> bool:
        if not {BASE, NEW} <= {*self._named}:
            return False
        base, new = (self._named[side].current_run.record for side in (BASE, NEW))
        return why_nothing_is_compared(base, new) is not None

    def finish(self, execution: PlanRunner) -> None:
        """Make the power cuts of one side, in as many parts as the cluster has slots."""
        side = next(name for name, one in self._named.items() if one is execution)
        measured, made = execution.begin_cuts(list(execution.cells.values()))
        groups: dict[str, list[Cell]] = {}
        for cell in measured:
            if (key := key_of(cell)) in made:
                execution.has_cut(cell, made[key])
            else:
                groups.setdefault(key, []).append(cell)
        self._take(self._cuts(execution, side, list(groups.values())))

    def _cuts(self, execution: PlanRunner, side: str, groups: list[list[Cell]]) -> Iterator[CutRequest]:
        taken = frozenset(one.name for one in execution.current_run.store.path.iterdir())
        rest = iter(groups)
        for part, size in enumerate(evenly(len(groups), self._pool.workers.slots), start=1):
            cells = [cell for _ in range(size) for cell in next(rest)]
            step(f"power cuts on a worker of the cluster: {'; '.join(cell.name for cell in cells)}")
            yield CutRequest(side, tuple(execution.records[cell.name] for cell in cells), part, taken)

    def _merge(self, done: Done[Request, Made]) -> None:
        """Add what a worker made to the runs of all sides."""
        for side, result in done.made.items():
            runner = self._named[side]
            write_files(runner.current_run.store.path, result.files)
            record = runner.current_run.record
            record.environment = record.environment or result.environment
            mine = self._done.setdefault((side, done.session), distinct(done.worker, self._earlier[side]))
            if isinstance(done.request, RoundRequest):
                number = sum(runner.take(cell, mine.name) for cell in result.cells)
            else:
                number = take_cuts(runner, done.request, result)
            mine.done += number
            self._note_workers()
        self._tell(done)

    def _note_workers(self) -> None:
        for side, runner in self._named.items():
            here = {
                session: self._done.get((side, session), record).model_copy(update={"left_out": record.left_out})
                for session, record in self._pool.workers.records.items()
            }
            workers = [*self._earlier[side], *here.values()]
            runner.record.workers = sorted(workers, key=lambda one: one.name)
            runner.current_run.store.save(runner.current_run.record)

    def _tell(self, done: Done[Request, Made]) -> None:
        runners = list(self._named.values())
        total = sum(len(one.order) for one in runners)
        made = sum(len(cell.repeats) for one in runners for cell in one.records.values())
        left_s = sum(one.forecast.left_s for one in runners) / self._pool.workers.slots
        left = f" (about {timedelta(seconds=round(left_s))} left)" if made else ""
        step(f"{done.request.label} by worker {done.worker.name}: {made} of {total} repetitions made{left}")
        for one in runners:
            mine = sum(len(cell.repeats) for cell in one.records.values())
            report_progress(
                one.current_run.store.path,
                done.request.label,
                done=mine,
                total=len(one.order),
                unit="repetitions",
                left_s=left_s,
            )


def distinct(worker: WorkerRecord, earlier: Sequence[WorkerRecord]) -> WorkerRecord:
    """Return a copy of a worker's record, with another name if an earlier worker of this name had another machine."""
    taken = any(one.name == worker.name and one.host != worker.host for one in earlier)
    return worker.model_copy(update={"name": f"{worker.name} on {worker.host}"} if taken else {})


def turns_of(named: Mapping[str, PlanRunner], round_: int, cells: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return side and cell of each remaining repetition of a round, in order; the sides are in turn."""
    sides = list(named)
    turns = []
    for cell in cells:
        order = in_turn(round_, named[sides[0]].cells[cell].index) if len(sides) > 1 else (0,)
        turns += [(sides[place], cell) for place in order if not named[sides[place]].is_done(round_, cell)]
    return tuple(turns)


def take_cuts(runner: PlanRunner, request: CutRequest, result: SideResult) -> int:
    """Add the power cuts that a worker made to a run, and return their number without controls."""
    record, store = runner.current_run.record, runner.current_run.store
    record.cycles += result.cycles
    made = {cell.name: cell for cell in result.cells}
    for asked in request.cells:
        mine, cell = runner.records[asked.name], made[asked.name]
        mine.cycle, mine.explored, mine.holes = cell.cycle, cell.explored, cell.holes
        key = key_of(runner.cells[asked.name])
        runner.forecast.dropped(CUT, key)
        runner.forecast.dropped(EXPLORATION, key)
        if cell.cycle is None:
            say(f"{cell.name}: no power cut is made, because a control did not show what it had to show")
    store.read_explorations(record)
    store.save(record)
    return sum(cycle.control is None for cycle in result.cycles)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files durably below a folder, by their relative paths."""
    for name, content in files.items():
        path = folder / name
        make_directory(path.parent, exist_ok=True)
        write_durably(path, content)
