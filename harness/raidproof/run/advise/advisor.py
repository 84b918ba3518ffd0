"""`raidproof advise`: search, power cuts of the finalists, and the comparison of the fastest safe configuration."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from random import Random

from raidproof.core.errors import RequestError
from raidproof.core.log import progress, say, step
from raidproof.core.topology import Platform, Topology
from raidproof.core.waiting import now_ns, wall_clock
from raidproof.plan.axes import write_value
from raidproof.plan.cell import Cell
from raidproof.plan.forecast import (
    BOOT_EACH_S,
    BOOT_S,
    CONTROLS,
    CUT_S,
    REBUILD_S,
    cut_s,
    exploration_s,
    in_words,
    repetition_s,
    repetitions_of,
    timed_s,
)
from raidproof.plan.free_axes import Free
from raidproof.provider.registry import prepare
from raidproof.record import RunRecord, RunStore
from raidproof.record.advice import (
    ADVICE_SCHEMA,
    AdviceRecord,
    FreeAxisRecord,
    Picked,
    PickedBy,
    RungRecord,
)
from raidproof.record.outcome import Outcome
from raidproof.record.results.names import ADVICE
from raidproof.record.stored import read_record
from raidproof.report.advice import write_advice
from raidproof.run.advise.search import FINALISTS, Candidate, Result, Search
from raidproof.run.doctor import require_host
from raidproof.run.plan_runner import PlanRunner, record_of, require_same
from raidproof.run.repetition import expectation
from raidproof.run.run import Run, command_line
from raidproof.run.slow_motion import with_probed_factor, with_recorded_factor
from raidproof.storage.tuning import TuningSpec
from raidproof.verdict.advice import judge_advice, rivals, speeds
from raidproof.verdict.cell import SafetyWord, judge_cells, safety_of_cell
from raidproof.verdict.controls import blind

WHAT = "advise"
"""End of the names of the runs."""
FINAL_ROUNDS = 8
"""Rounds of the comparison after the power cuts: only these rounds can show that a configuration is faster."""
LEAST_FINAL_ROUNDS = 4
"""Rounds of this comparison for which the power cuts of further finalists leave time."""
FINALISTS_WITHIN = 0.2
"""Greatest difference of the logarithms of the speeds of the fastest configuration and another finalist."""
NEAR = 0.05
"""Safe finalists that are at most by this share slower than the fastest take part in the last comparison."""
MOST_RESERVED = 0.6
"""Greatest share of the budget that is reserved for power cuts and the last comparison."""
MODEL_S = 30.0
"""Seconds after which the model computes no further speed: a stack takes from a millisecond to some seconds."""
MOST_STEPS = 3
"""Greatest number of times that the last comparison goes on with a plainer or faster configuration."""


@dataclass(frozen=True)
class Budget:
    """The seconds of a run of `raidproof advise`, and their use."""

    total_s: float
    repetition_s: float
    """Estimated seconds of one repetition."""
    cuts_s: float
    """Seconds reserved for controls and power cuts."""
    final_s: float
    """Seconds reserved for the comparison after the power cuts."""

    @property
    def reserved_s(self) -> float:
        """Seconds that the search leaves for power cuts and the last comparison."""
        return min(self.cuts_s + self.final_s, MOST_RESERVED * self.total_s)

    @property
    def repetitions(self) -> int:
        """Estimated number of repetitions of the search."""
        return max(0, int((self.total_s - self.reserved_s) / self.repetition_s))


def budget_of(free: Free, minutes: float) -> Budget:
    """Return the use of a budget, by the estimates of a plan's run.

    Raises:
        RequestError: the budget does not suffice for the power cut of one configuration and its comparison.
    """
    plan, current = free.matrix.plan, free.current
    heaviest = sum(REBUILD_S.values()) / len(REBUILD_S)
    repetition = timed_s(plan, current) + repetition_s(plan) + heaviest
    cuts = CONTROLS * CUT_S + (FINALISTS + 1) * (cut_s(plan, current) + exploration_s(plan))
    boots = BOOT_S + BOOT_EACH_S * (plan.hardware.clients + 1)
    final = min(len(free.axes) + 2, 8) * FINAL_ROUNDS * repetition + boots
    least = boots + (CONTROLS + 2) * CUT_S + exploration_s(plan) + 8 * repetition
    if 60 * minutes < least:
        raise RequestError(
            f"--minutes {minutes:g} is too short: controls, two power cuts and 8 repetitions take about "
            f"{in_words(least)}",
            remedy=f"give --minutes {ceil(2 * least / 60)} or more",
        )
    return Budget(60 * minutes, repetition, cuts, final)


def candidates_of(free: Free, topology: Topology) -> list[Candidate]:
    """Return the candidates that keep their promises by design, with the speed that the model expects."""
    cells = list(_promising(free))
    keys = {cell.name: model_key(cell) for cell in cells}
    # In random order, as the time may not suffice for all.
    mixed = Random(free.matrix.plan.run.seed).sample(cells, len(cells))  # noqa: S311  a seeded order, no secret
    known: dict[str, float | None] = {}
    begun = now_ns()
    for cell in mixed:
        if (now_ns() - begun) / 1e9 > MODEL_S:
            break
        if keys[cell.name] not in known:
            made = expectation(topology, cell, "mb_s")
            known[keys[cell.name]] = None if made is None else float(made["value"])
    return [Candidate(cell.name, free.places(cell), known.get(keys[cell.name])) for cell in cells]


def _promising(free: Free) -> Iterator[Cell]:
    """Yield the cells that may be recommended, and the current configuration."""
    return (cell for cell in free.matrix.cells if cell.stack.export.sync or cell is free.current)


def model_key(cell: Cell) -> str:
    """Return the parts of a cell on which the model's formulas depend."""
    stack = cell.stack
    plain = TuningSpec(stripe_cache_size=stack.tuning.stripe_cache_size)
    without = {"threads", "wdelay"} & type(stack.export).model_fields.keys()
    export = stack.export.model_copy(update={name: type(stack.export).model_fields[name].default for name in without})
    mount = stack.mount.model_copy(update={"nconnect": None})
    parts = stack.model_copy(update={"tuning": plain, "export": export, "mount": mount})
    return f"{parts.model_dump_json()} {cell.workload.model_dump_json()} {cell.clients}"


class Advisor:
    """One run of `raidproof advise`, new or resumed."""

    def __init__(self, free: Free, search: Search, runner: PlanRunner, record: AdviceRecord, budget: Budget) -> None:
        self.free, self.search, self.runner, self.record, self.budget = free, search, runner, record, budget
        self.cells = {cell.name: cell for cell in free.matrix.cells}
        self._before_s, self._begun = record.spent_s, now_ns()
        self._cut_s = CUT_S
        """Seconds of the last power cut, or the estimate."""

    @property
    def run_record(self) -> RunRecord:
        """The record of the run with all repetitions and power cuts."""
        return self.runner.current_run.record

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget.total_s - self.spent_s

    @property
    def spent_s(self) -> float:
        """Seconds spent until now."""
        return self._before_s + (now_ns() - self._begun) / 1e9

    def advise(self) -> None:
        """Search, cut the power of the finalists, and compare the fastest safe configuration with its neighbours.

        Raises:
            RequirementMissing: a machine lacks the program of the workload.
            RigError: the lab does not boot.
        """
        self.runner.begin()
        self._search()
        self._cut_finalists()
        self._compare()

    def _search(self) -> None:
        rungs = [rung for rung in self.record.rungs if not rung.final]
        if any(rung.final for rung in self.record.rungs) or any(not one.control for one in self.run_record.cycles):
            return
        if rungs:
            self._measure(rungs[-1], self.budget.reserved_s)
        while True:
            left = int((self.left_s - self.budget.reserved_s) / self._repetition_s())
            rung = self.search.next_rung(rungs, self.results(), left)
            if rung is None:
                return
            rungs.append(rung)
            self.record.rungs.append(rung)
            say(
                f"round {rung.round}: {_count(len(rung.names), 'configuration')}, {in_words(max(0, self.left_s))} left"
            )
            self._measure(rung, self.budget.reserved_s)

    def _measure(self, rung: RungRecord, reserve_s: float) -> None:
        """Make the repetitions of a round that are left, unless the time does not suffice."""
        self.save()
        begun = now_ns()
        seed = 1000 * self.record.seed + rung.round
        names = [planned.cell.name for planned in repetitions_of([self.cells[name] for name in rung.names], 1, seed)]
        for name in names:
            self.runner.include(self.cells[name])
            if (rung.round, name) not in self.runner.order:
                self.runner.add(rung.round, name)
        for name in names:
            if self.left_s <= reserve_s:
                break
            for _ in range(2):  # once more after an error of the rig
                left = f" ({in_words(max(0.0, self.left_s))} of the budget left)"
                self.runner.turn(rung.round, name, who=f"round {rung.round}, ", left=left)
        rung.seconds += (now_ns() - begun) / 1e9
        if self.run_record.plan is not None:
            self.run_record.plan.repeats = len(self.record.rungs)
        judge_cells(self.run_record)
        self.save()

    def _repetition_s(self) -> float:
        """Return the mean seconds of the repetitions made until now, or the estimate without any."""
        made = [one.visit_s for cell in self.run_record.cells for one in cell.repeats]
        return sum(made) / len(made) if made else self.budget.repetition_s

    def results(self) -> list[Result]:
        """Return the result of the last attempt of each cell in each round."""
        found = {}
        for cell in self.run_record.cells:
            values = speeds(cell)
            for one in cell.repeats:
                found[cell.name, one.round] = Result(cell.name, one.round, values.get(one.round))
        return list(found.values())

    def _cut_finalists(self) -> None:
        """Cut the power of the leaders and of the current configuration; of further leaders until one is safe."""
        results = self.results()
        leaders, scores = self._leaders(results), self.search.scores(results)
        near = [name for name in leaders[:FINALISTS] if scores[name] >= scores[leaders[0]] - FINALISTS_WITHIN]
        for name in [*near[:1], self.record.current]:
            if not self._cut(name):
                return
        for name in near[1:]:
            if not self._cut(name, self._least_comparison_s(leaders[0])):
                break
        for name in leaders:
            if self._safe() or not self._cut(name):
                return

    def _leaders(self, results: Sequence[Result]) -> list[str]:
        """Return the configurations that may be recommended, the fastest first.

        Those whose value does not measure the requested hardware, and which therefore have no rank, come last.
        """
        rungs = [rung for rung in self.record.rungs if not rung.final]
        rankable = {cell.name for cell in self.run_record.cells if cell.rankable}
        leaders = [name for name in self.search.leaders(rungs, results) if self.cells[name].stack.export.sync]
        return sorted(leaders, key=lambda name: name not in rankable)

    def _least_comparison_s(self, leader: str) -> float:
        """Return the seconds of two rounds of the last comparison."""
        return LEAST_FINAL_ROUNDS * len(self._last(self.cells[leader])) * self._repetition_s()

    def _cut(self, name: str, reserve_s: float = 0.0) -> bool:
        """Cut the power of a configuration; return False if no further cut can be made.

        ``reserve_s``: seconds of the budget to leave for later work.
        """
        if self._is_cut(name):
            return True
        if self.left_s < self._cut_s + exploration_s(self.free.matrix.plan) + reserve_s:
            say("the budget does not suffice for another power cut")
            return False
        begun = now_ns()
        controls = sum(one.control is not None for one in self.run_record.cycles)
        self.runner.cut([self.cells[name]])
        if controls == sum(one.control is not None for one in self.run_record.cycles):
            self._cut_s = (now_ns() - begun) / 1e9
        judge_cells(self.run_record)
        self.save()
        return blind(self.run_record) is None

    def _is_cut(self, name: str) -> bool:
        made = {one.name for one in self.run_record.cycles if one.outcome is not Outcome.ERROR}
        return any(cell.name == name and cell.cycle in made for cell in self.run_record.cells)

    def _safe(self) -> list[str]:
        """Return the names of the cells that are shown to be safe, the fastest first."""
        scores = self.search.scores(self.results())
        safe = [
            cell.name
            for cell in self.run_record.cells
            if cell.cycle and cell.name in scores and safety_of_cell(self.run_record, cell).word is SafetyWord.SAFE
        ]
        return sorted(safe, key=lambda name: -scores[name])

    def _compare(self) -> None:
        """Compare the fastest safe configuration with those that lack one of its changes, in rounds of their own.

        If another one is shown to be as good, its power is cut, and the comparison goes on with the recommended one.
        If no configuration is shown to be faster than the current one, the comparison ends: more rounds for the best
        of several equal ones would show a gain that is not there.
        """
        judge_advice(self.record, self.run_record)
        tested = self.record.leader
        for _ in range(MOST_STEPS):
            if tested is None:
                return
            self._final_rounds(self.cells[tested])
            judge_advice(self.record, self.run_record)
            for name in rivals(self.record, self.run_record, tested):
                self._cut(name)
            judge_advice(self.record, self.run_record)
            chosen = self.record.chosen
            if chosen is None or not chosen.changes or chosen.name == tested:
                return
            tested = chosen.name

    def _final_rounds(self, chosen: Cell) -> None:
        """Measure the chosen configuration, its neighbours and the current one in rounds of their own."""
        picked = self._affordable(self._last(chosen))
        made = [rung for rung in self.record.rungs if rung.final and set(picked) <= set(rung.names)]
        if len(made) < FINAL_ROUNDS:
            self.runner.renew_lab()
        for rung in made:  # the last one is incomplete in a resumed run
            self._measure(rung, 0.0)
        for number in range(len(made), FINAL_ROUNDS):
            if self.left_s < len(picked) * self._repetition_s():
                say(f"the budget suffices for {number} of {FINAL_ROUNDS} rounds of the last comparison")
                break
            chosen_by = [Picked(name=name, by=by) for name, by in picked.items()]
            rung = RungRecord(round=len(self.record.rungs) + 1, picked=chosen_by, final=True)
            self.record.rungs.append(rung)
            self._measure(rung, 0.0)
        for cell in self._unsafe(chosen):
            if cell.name in self.runner.records and self.runner.records[cell.name].measured:
                self._cut(cell.name)

    def _affordable(self, picked: Mapping[str, PickedBy]) -> dict[str, PickedBy]:
        """Return as many configurations as the time allows to measure in all rounds, but the first two at least.

        Few rounds of many configurations would not show that any of them is faster.
        """
        most = int(self.left_s / (FINAL_ROUNDS * self._repetition_s()))
        return dict(list(picked.items())[: max(2, most)])

    def _last(self, chosen: Cell) -> dict[str, PickedBy]:
        """Return the configurations of the last comparison, each with the reason, the most important ones first."""
        safe, scores = self._safe(), self.search.scores(self.results())
        without = [self.free.with_current(chosen, axis) for axis in self.free.changes(chosen)]
        picked = {self.record.current: PickedBy.CURRENT}
        for names, by in (
            ([chosen.name], PickedBy.RESULTS),
            ([cell.name for cell in self._unsafe(chosen)], PickedBy.UNSAFE),
            ([cell.name for cell in without if cell is not None], PickedBy.WITHOUT),
            ([name for name in safe if scores[name] >= scores[safe[0]] - NEAR], PickedBy.RESULTS),
        ):
            for name in names:
                picked.setdefault(name, by)
        return picked

    def _unsafe(self, chosen: Cell) -> list[Cell]:
        """Return the candidate with an async export, else like the chosen one, if the axis ``export`` is varied."""
        if not any(axis.name == "export" for axis in self.free.axes):
            return []
        found = self.free.like(chosen, {"export": False})
        return [] if found is None or found.stack.export.sync else [found]

    def save(self) -> None:
        """Store the record; a killed run can be resumed from it."""
        self.record.spent_s = self.spent_s
        store = self.runner.current_run.store
        store.write_text(ADVICE, self.record.model_dump_json(indent=1) + "\n")

    def conclude(self) -> Path:
        """Judge what was measured, store the record and the page; return the path of the page."""
        judge_advice(self.record, self.run_record)
        self.save()
        return write_advice(self.record, self.runner.current_run.store.path)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def new_record(free: Free, run: str, minutes: float, expected: int) -> AdviceRecord:
    """Return the record of a search that has not begun."""
    matrix = free.matrix
    return AdviceRecord(
        run=run,
        plan=matrix.plan.name,
        digest=matrix.digest,
        command=command_line(sys.argv),
        started=wall_clock(),
        budget_s=60 * minutes,
        seed=matrix.plan.run.seed,
        workload=free.current.workload_name,
        current=free.current.name,
        fixed=written(free),
        axes=axis_records(free),
        candidates=len(matrix.cells),
        expected=expected,
    )


def axis_records(free: Free) -> list[FreeAxisRecord]:
    """Return the records of the varied axes."""
    return [
        FreeAxisRecord(name=one.name, values=one.written, assumed=one.assumed, work=one.work, note=one.note)
        for one in free.axes
    ]


def written(free: Free) -> dict[str, str]:
    """Return the settings that are not varied, in the notation of plans."""
    return {name: write_value(name, value) for name, value in free.matrix.plan.fixed.items()}


def load(path: Path) -> AdviceRecord:
    """Return a stored record.

    Raises:
        RequestError: the file cannot be read, or is no such record, or has another schema version.
    """
    try:
        return read_record(path, AdviceRecord, ADVICE_SCHEMA, "advice")
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error


def run_advise(
    free: Free,
    path: Path,
    results: Path,
    minutes: float,
    *,
    platform: Platform | None = None,
    resumed: RunStore | None = None,
) -> tuple[AdviceRecord, Path]:
    """Search, or resume a search; return its record and the path of its page.

    ``path``: the plan's file. After an interruption, what was measured until then is stored and judged.

    Raises:
        RequestError: the search to resume has another request, or the budget is too small.
        RequirementMissing: this host cannot run a lab, or a machine lacks a program.
        RigError: the lab does not boot.
    """
    require_host()
    plan = free.matrix.plan
    platform = platform or plan.run.platform
    topology = plan.hardware.topology(platform)
    budget = budget_of(free, minutes)
    if resumed is not None:
        free = replace(free, matrix=with_recorded_factor(free.matrix, resumed))
        require_same(resumed, free.matrix, free.matrix.plan.hardware.topology(platform))
    with progress("preparing kernel and image"):
        prepare(topology)
        step("the model orders the candidates")
        candidates = candidates_of(free, topology)
        fastest = max(candidates, key=lambda one: one.expected or 0.0).name
        probed = [cell for cell in free.matrix.cells if cell.name in {fastest, free.current.name}]
        free = replace(free, matrix=with_probed_factor(free.matrix, [platform], probed))
        topology = free.matrix.plan.hardware.topology(platform)
        search = Search(candidates, free.current.name, plan.run.seed)
        advisor: Advisor | None = None
        try:
            with Run(f"{plan.name}-{WHAT}", results, topology, resumed=resumed) as current_run:
                record = _record(free, current_run, minutes, candidates, resumed)
                if current_run.record.plan is None:
                    current_run.record.plan = record_of(free.matrix, path)
                runner = runner_of(free, current_run)
                advisor = Advisor(free, search, runner, record, budget)
                try:
                    advisor.advise()
                except KeyboardInterrupt:
                    say(
                        f"interrupted; what was measured until now is in {current_run.store.path}, and the same "
                        "command with --resume continues"
                    )
                    raise
                record.ended = wall_clock()
        finally:
            page = None if advisor is None else advisor.conclude()
    assert page is not None  # noqa: S101  the run has begun
    return record, page


def _record(
    free: Free, current_run: Run, minutes: float, candidates: Sequence[Candidate], resumed: RunStore | None
) -> AdviceRecord:
    if resumed is not None:
        record = load(resumed.path / ADVICE)
        record.ended, record.budget_s = None, 60 * minutes
        return record
    expected = sum(one.expected is not None for one in candidates)
    return new_record(free, current_run.store.path.name, minutes, expected)


def runner_of(free: Free, current_run: Run) -> PlanRunner:
    """Return the runner of a run whose rounds the search chooses; it has the cells that were measured before."""
    plan = free.matrix.plan
    # The plan's own number of repetitions and its power cuts do not apply: the search decides about both.
    run = plan.run.model_copy(update={"repeats": 0, "cut": plan.run.cut or "power"})
    made = {cell.name for cell in current_run.record.cells}
    cells = tuple(cell for cell in free.matrix.cells if cell.name in made or cell is free.current)
    order: Mapping[tuple[int, str], None] = dict.fromkeys(
        current_run.record.plan.order if current_run.record.plan else ()
    )
    runner = PlanRunner(replace(free.matrix, plan=plan.model_copy(update={"run": run}), cells=cells), current_run)
    runner.order.extend(order)
    return runner
