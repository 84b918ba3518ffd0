"""`raidproof run`: measure every cell once in each round, then run controls and power cuts."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from raidproof.core.blame import Culprit
from raidproof.core.errors import ProductError, RequestError, RigError
from raidproof.core.log import logger, progress, say, step
from raidproof.core.topology import Platform, Topology
from raidproof.core.waiting import now_ns
from raidproof.disk.cache import CacheMode
from raidproof.disk.disks import riskiest_mode
from raidproof.fault import CleanReboot
from raidproof.plan.cell import Cell, Matrix
from raidproof.plan.forecast import (
    CONTROL,
    CUT,
    CUT_S,
    EXPLORATION,
    REPETITION,
    Forecast,
    cut_s,
    exploration_s,
    left_in_words,
    repetition_overheads,
    repetition_s,
    repetitions_of,
    timed_s,
)
from raidproof.plan.members import Members
from raidproof.plan.plan import Plan
from raidproof.provider.registry import prepare
from raidproof.record import RunRecord, RunStore
from raidproof.record.cell import CellRecord, Explored, FigureRecord, PlanRecord, Repetition
from raidproof.record.known import KnownDifference
from raidproof.record.outcome import Outcome
from raidproof.record.results.progress import report_progress
from raidproof.record.run import ControlSpec, CrashTestRecord
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.directed import check_directed
from raidproof.run.doctor import require_host
from raidproof.run.exploration import explored
from raidproof.run.repetition import new_record, run_repetition
from raidproof.run.run import Run
from raidproof.run.slow_motion import with_probed_factor, with_recorded_factor
from raidproof.run.stack_deployer import StackDeployer
from raidproof.run.write_hole import WriteHole
from raidproof.storage.stack import StackSpec
from raidproof.verdict.cell import judge_cells
from raidproof.verdict.controls import blind
from raidproof.verdict.known import known_today
from raidproof.workload.ledger import LedgerSpec
from raidproof.workload.workload import CLIENTS

GIVE_UP_AFTER = 3
"""Number of failed repetitions after which a cell is skipped, unless the run is resumed."""
LEDGER_SECONDS = 2.0
"""Seconds that clients work before a power cut or the fault of a control."""
SOLO_SECONDS = 2.0
"""Seconds of solo operations of a cell."""
SOLO_EXTRA_SECONDS = 2.0
"""Greatest number of further seconds, until each client has enough solo operations of each kind."""
CONTROLS = LYING_DISKS, CLEAN_REBOOT = "control: lying disks", "control: clean reboot"


class PlanRunner:
    """Runs the cells of a plan; skips repetitions that a resumed run has already measured."""

    def __init__(self, matrix: Matrix, current_run: Run) -> None:
        self.matrix = matrix
        self.plan = plan = matrix.plan
        cells = matrix.cells
        self.current_run = current_run
        self.cells = {cell.name: cell for cell in cells}
        known = {record.name: record for record in current_run.record.cells}
        self.records = {cell.name: known.get(cell.name) or new_record(cell) for cell in cells}
        current_run.record.cells = list(self.records.values())
        self.order = [(one.round, one.cell.name) for one in repetitions_of(cells, plan.run.repeats, plan.run.seed)]
        self._deployer: StackDeployer | None = None
        self._failed: Counter[str] = Counter()
        self.part = 1
        """Number of the part of a run's cells whose power this runner cuts, with controls of their own."""
        self.taken: Container[str] = frozenset()
        """Names that crash tests must not have, in addition to those of the files of the run."""
        self.forecast = self._expected(matrix)

    def _expected(self, matrix: Matrix) -> Forecast:
        """Return the forecast of the repetitions, controls, power cuts and explorations that have not ended."""
        forecast = Forecast()
        for (round_, name), overhead in repetition_overheads(matrix).items():
            if not self.is_done(round_, name):
                forecast.add(REPETITION, (round_, name), overhead + timed_s(self.plan, self.cells[name]))
        cycles = self.current_run.record.cycles
        cut = {cycle.name for cycle in cycles}
        left = [cell for cell in matrix.cells if self.records[cell.name].cycle not in cut] if self.plan.run.cut else []
        for cell in left:
            forecast.add(CUT, key_of(cell), cut_s(self.plan, cell))
            forecast.add(EXPLORATION, key_of(cell), exploration_s(self.plan))
        for title in CONTROLS if left else ():
            if title not in {cycle.title for cycle in cycles}:
                forecast.add(CONTROL, title, CUT_S)
        return forecast

    def run(self) -> None:
        """Make every remaining repetition, then every power cut.

        Raises:
            RequirementMissing: a machine lacks the program of a workload; no repetition has been made.
            RigError: the lab does not boot.
        """
        for round_, name in self.begin():
            self.turn(round_, name, left=left_in_words(self.forecast))
        self.finish()

    def begin(self) -> list[tuple[int, str]]:
        """Boot the lab if repetitions remain; return the remaining repetitions in order, as (round, cell name).

        Raises:
            RequirementMissing: a machine lacks the program of a workload; no repetition has been made.
            RigError: the lab does not boot.
        """
        left = self.left()
        self._require_programs([self.cells[name] for name in dict.fromkeys(name for _, name in left)])
        return left

    def left(self) -> list[tuple[int, str]]:
        """Save the order of the run, and return the remaining repetitions in order, as (round, cell name)."""
        self.record.order = self.order
        # Save the record, so that the run can be resumed after an interruption from here on.
        self._save()
        return [(round_, name) for round_, name in self.order if not self.is_done(round_, name)]

    @property
    def record(self) -> PlanRecord:
        """The record of the plan."""
        record = self.current_run.record.plan
        assert record is not None  # noqa: S101  every run of a plan has this record
        return record

    def turn(self, round_: int, name: str, *, who: str = "", left: str = "") -> None:
        """Make one repetition, unless its cell is skipped; the progress message has prefix ``who``, suffix ``left``.

        Raises:
            RigError: the lab does not boot.
        """
        if self.is_done(round_, name):
            self.forecast.dropped(REPETITION, (round_, name))
            return
        number = self.order.index((round_, name)) + 1
        step(f"{who}repetition {number} of {len(self.order)}: {name}{left}")
        report_progress(
            self.current_run.store.path,
            name,
            done=number - 1,
            total=len(self.order),
            unit="repetitions",
            left_s=self.forecast.left_s if self.forecast.learned else None,
        )
        begun = now_ns()
        self.run_repetition(round_, self.cells[name])
        self.forecast.ended(REPETITION, (round_, name), (now_ns() - begun) / 1e9)

    def add(self, round_: int, name: str) -> None:
        """Add a repetition of a cell to the order of the run."""
        self.order.append((round_, name))
        self.forecast.add(REPETITION, (round_, name), repetition_s(self.plan) + timed_s(self.plan, self.cells[name]))

    def finish(self) -> None:
        """Make every power cut, if the plan requests power cuts."""
        if self.plan.run.cut is not None:
            self.cut(self.cells.values())

    def _require_programs(self, cells: list[Cell]) -> None:
        """Verify before the first repetition that all machines have the programs of their workloads."""
        for cell in cells:
            deployer = self.deployer()
            machines = deployer.lab.clients[: cell.clients] if cell.on == CLIENTS else (deployer.lab.server,)
            for machine in machines:
                for program in cell.workload.workload().programs:
                    deployer.require(machine, program)

    def is_done(self, round_: int, name: str) -> bool:
        """Return whether a cell needs no repetition in a round: it is measured, not effective, or failed too often."""
        record = self.records[name]
        return (
            any(repeat.round == round_ and repeat.rig_error is None for repeat in record.repeats)
            or record.not_effective is not None
            or self._failed[name] >= GIVE_UP_AFTER
        )

    def run_repetition(self, round_: int, cell: Cell) -> None:
        """Make one repetition of a cell and save the record, even after a failure.

        Raises:
            RigError: the lab does not boot. An error in the running lab is recorded and ends the lab; the next
                repetition gets a new lab.
        """
        mine, repeat = self.records[cell.name], Repetition(round=round_)
        # Boot before the repetition begins, so that neither the time nor a failure of the boot counts for it.
        deployer = self.deployer()
        begun = now_ns()
        try:
            directory = self.current_run.store.directory(f"cells/{cell.index:03}-{round_}")
            run_repetition(deployer, self.plan, cell, mine, repeat, directory)
        except Exception as error:
            causes = list(_causes(error))
            if not all(isinstance(one, ProductError | RigError | RequestError) for one in causes):
                raise
            message = "; ".join(map(str, causes))
            if all(isinstance(one, ProductError) for one in causes):
                mine.not_effective = message
            else:
                logger.exception("repetition of %s failed", cell.name)
                repeat.rig_error = message
                self._failed[cell.name] += 1
            # A value that was measured before the failure does not count.
            repeat.value = None
            self._discard()
        repeat.visit_s = (now_ns() - begun) / 1e9
        least = self.plan.run.min_seconds
        if repeat.value is not None and least is not None and repeat.timed_s < least:
            repeat.caveat = f"timed part {repeat.timed_s:.2g} s, less than min_seconds, {least:g} s"
        mine.repeats.append(repeat)
        record = self.current_run.record.plan
        if record is not None:
            record.visits_s += repeat.visit_s
            record.timed_s += repeat.timed_s
        self._save()

    def take(self, made: CellRecord, worker: str) -> int:
        """Add the repetitions of a cell that a worker made, unless the run has them already; return their number."""
        mine = self.records[made.name]
        have = {repeat.round for repeat in mine.repeats if repeat.rig_error is None}
        new = [repeat for repeat in made.repeats if repeat.round not in have]
        for repeat in new:
            repeat.worker = worker
            self._failed[made.name] += repeat.rig_error is not None
            self.record.visits_s += repeat.visit_s
            self.record.timed_s += repeat.timed_s
            self.forecast.ended(REPETITION, (repeat.round, made.name), repeat.visit_s)
        mine.repeats = sorted([*mine.repeats, *new], key=lambda one: one.round)
        mine.not_effective = mine.not_effective or made.not_effective
        if new and made.unit:
            mine.unit, mine.effective, mine.expected = made.unit, made.effective, made.expected
        self._save()
        return len(new)

    def measure(self, cell: Cell, repeats: int = 1) -> CellRecord:
        """Make ``repeats`` more repetitions of a cell, outside of the plan's order; return the cell's judged record.

        Raises:
            RequirementMissing: a machine lacks a program of the cell's workload.
            RigError: the lab does not boot.
        """
        self.include(cell)
        self._save()
        self._require_programs([cell])
        mine = self.records[cell.name]
        for round_ in range(len(mine.repeats) + 1, len(mine.repeats) + 1 + repeats):
            step(f"repetition {round_}: {cell.name}")
            self.run_repetition(round_, cell)
        judge_cells(self.current_run.record)
        self._save()
        return mine

    def include(self, cell: Cell) -> None:
        """Add a cell to the cells of the run, if it is not one of them."""
        if cell.name not in self.records:
            self.cells[cell.name] = cell
            self.records[cell.name] = new_record(cell)
            self.current_run.record.cells.append(self.records[cell.name])

    def _save(self) -> None:
        self.current_run.store.save(self.current_run.record)

    def deployer(self) -> StackDeployer:
        """Return the stack deployer of the lab; if no lab is running, boot one."""
        lab = self.current_run.lab
        if self._deployer is None or self._deployer.lab is not lab:
            self._deployer = StackDeployer(lab)
        return self._deployer

    def renew_lab(self) -> None:
        """End the lab; the next repetition or power cut boots a new one."""
        self._discard()

    def _discard(self) -> None:
        self._deployer = None
        self.current_run.discard_lab()

    def cut(self, cells: Iterable[Cell]) -> None:
        """Cut the power of these configurations once, if measured; cells that differ only in the workload share a cut.

        The controls run before the first cut. If one does not show what it has to show, no power is cut.
        """
        wanted = list(cells)
        if self._deployer is not None:
            self._deployer.teardown()
            self._deployer = None
        measured, by_stack = self.begin_cuts(wanted)
        if not {key_of(cell) for cell in measured} <= {*by_stack} and not self._controls_behave(measured):
            say("a control did not show what it had to show: no power cut is made")
            return
        for cell in measured:
            key = key_of(cell)
            if key not in by_stack:
                name = by_stack[key] = self._free_name(f"cut-{cell.index:03}")
                step(f"{'faults' if self.plan.fault else 'power cut'}: {cell.name}{left_in_words(self.forecast)}")
                made = self._timed_cycle(cut_of(self.plan, cell, name), CUT, key)
                if self.plan.run.cut == "power":
                    begun = now_ns()
                    check_directed(self.current_run, made, self.plan.run.states)
                    self.forecast.ended(EXPLORATION, key, (now_ns() - begun) / 1e9)
            self.has_cut(cell, by_stack[key])

    def has_cut(self, cell: Cell, name: str) -> None:
        """Note the power cut of a cell's configuration; explore its crash states, if the plan requests it."""
        mine = self.records[cell.name]
        mine.cycle = name
        if self.plan.run.cut == "explore":
            begun = now_ns()
            mine.explored = self._explored(name)
            hole = WriteHole(self.plan, self.current_run, self._free_name)
            mine.holes = hole.measure(cut_of(self.plan, cell, name)) if mine.explored is not None else []
            self.forecast.ended(EXPLORATION, key_of(cell), (now_ns() - begun) / 1e9)
        self._save()

    def begin_cuts(self, wanted: Sequence[Cell]) -> tuple[list[Cell], dict[str, str]]:
        """Return the cells whose power can be cut, as they are measured; and the names of the cuts made, by `key_of`.

        Crash tests that ended in ERROR (failure of the rig, interruption) prove nothing, and are removed.
        """
        run = self.current_run.record
        run.cycles = [cycle for cycle in run.cycles if cycle.outcome is not Outcome.ERROR]
        made = {cycle.name for cycle in run.cycles}
        by_stack: dict[str, str] = {}
        for cell in self.cells.values():
            if (name := self.records[cell.name].cycle) in made and name is not None:
                by_stack[key_of(cell)] = name
        measured = [cell for cell in wanted if self.records[cell.name].measured]
        keys = {key_of(cell) for cell in measured}
        for key in {key_of(cell) for cell in wanted} - keys:
            self.forecast.dropped(CUT, key)
            self.forecast.dropped(EXPLORATION, key)
        return measured, by_stack

    def _controls_behave(self, cells: list[Cell]) -> bool:
        """Run the remaining controls; return whether no control of the run is INVALID.

        A control that ended in ERROR, or that the disks do not support, does not prevent power cuts; the run's outcome
        reports it.
        """
        made = {cycle.title for cycle in self.current_run.record.cycles if cycle.control is not None}
        for spec in controls_of(self.plan, stack_of_controls(cells)):
            if spec.title not in made:
                step(f"{spec.title}{left_in_words(self.forecast)}")
                stem = spec.name if self.part == 1 else f"{spec.name}-part{self.part}"
                free = spec.model_copy(update={"name": self._free_name(stem)})
                self._timed_cycle(free, CONTROL, spec.title)
        return blind(self.current_run.record) is None

    def _timed_cycle(self, spec: CrashTestSpec, kind: str, part: str) -> CrashTestRecord:
        begun = now_ns()
        made = self.current_run.cycle(spec)
        self.forecast.ended(kind, part, (now_ns() - begun) / 1e9)
        return made

    def _explored(self, name: str) -> Explored | None:
        """Explore the crash states of a power cut; return None if its crash test ended in ERROR.

        If the power cut cannot be explored, the result is INCONCLUSIVE with the reason, so that the run continues.
        """
        if next(one.outcome for one in self.current_run.record.cycles if one.name == name) is Outcome.ERROR:
            return None
        step(f"crash states: {name}{left_in_words(self.forecast)}")
        try:
            run, store = self.plan.run, self.current_run.store
            found = explored(store, name, run.explore_states, run.seed, scrub=Members.WHOLE in run.explore_members)
        except RequestError as error:
            say(f"the exploration is left out: {error}")
            return Explored(file=None, judged=0, broken=0, outcome=Outcome.INCONCLUSIVE, reason=str(error))
        self.current_run.store.read_explorations(self.current_run.record)
        say(f"crash states of {name}: {found.outcome}: {found.reason}")
        return found

    def _free_name(self, stem: str) -> str:
        """Return an unused name for a crash test, so that it does not change files of an earlier attempt."""
        names = chain([stem], (f"{stem}-{attempt}" for attempt in count(2)))
        folder = self.current_run.store.path
        return next(name for name in names if name not in self.taken and not (folder / name).exists())


def record_of(matrix: Matrix, path: Path) -> PlanRecord:
    """Return the initial record of a plan."""
    run = matrix.plan.run
    return PlanRecord(
        path=str(path),
        text=path.read_text(),
        digest=matrix.digest,
        seed=run.seed,
        repeats=run.repeats,
        cut=run.cut,
        faults=[str(one) for one in matrix.plan.faults],
        figures=[FigureRecord.model_validate(figure.model_dump()) for figure in matrix.plan.figure],
        impossible=[(one.name, one.reason) for one in matrix.impossible],
    )


def cut_of(plan: Plan, cell: Cell, name: str) -> CrashTestSpec:
    """Return the crash test of a cell's configuration, while the cell's application works.

    Its faults are those of the plan, by default a power cut.
    """
    application = cell.workload.application(cell.on)
    ledger = ledger_of(plan) if application is None else LedgerSpec.of(application, plan.run.seed)
    return CrashTestSpec(
        name=name,
        title=cell.name,
        stack=cell.stack,
        cache_mode=riskiest_mode(plan.hardware.topology()),
        faults=plan.faults,
        seed=plan.run.seed,
        ledger=ledger,
        ledger_seconds=LEDGER_SECONDS,
        solo_seconds=SOLO_SECONDS,
        solo_extra_s=SOLO_EXTRA_SECONDS,
    )


def ledger_of(plan: Plan) -> LedgerSpec:
    """Return the work of the clients during power cuts and controls, with the plan's kinds of worker."""
    return LedgerSpec(seed=plan.run.seed, **({"kinds": plan.run.workers} if plan.run.workers else {}))


def key_of(cell: Cell) -> str:
    """Return the key of a cell's power cut; cells with equal keys share one power cut."""
    application = cell.workload.application(cell.on)
    return cell.stack.model_dump_json() + ("" if application is None else application.model_dump_json())


def stack_of_controls(cells: Iterable[Cell]) -> StackSpec:
    """Return the stack for the controls: that of a cell, changed to a `sync` export without delegations.

    A cell with NFSv4.0 is chosen last, as NFSv4.0 clients wait for the grace period. Under a delegation, `close`
    promises nothing, but the known result of a control depends on every promise.
    """
    stack = min((cell.stack for cell in cells), key=lambda one: (not one.export.sync, one.mount.vers == "4.0"))
    return stack.model_copy(update={"export": stack.export.model_copy(update={"sync": True, "delegations": False})})


def controls_of(plan: Plan, stack: StackSpec) -> tuple[CrashTestSpec, CrashTestSpec]:
    """Return the controls: a crash test that must show a loss, and one that must show none."""
    ledger = ledger_of(plan)
    lying = CrashTestSpec(
        name="control-lying-disks",
        title=LYING_DISKS,
        stack=stack,
        cache_mode=CacheMode.LYING,
        seed=plan.run.seed,
        ledger=ledger,
        ledger_seconds=LEDGER_SECONDS,
        control=ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS),
    )
    clean = CrashTestSpec(
        name="control-clean-reboot",
        title=CLEAN_REBOOT,
        stack=stack,
        cache_mode=riskiest_mode(plan.hardware.topology()),
        fault=CleanReboot.name,
        seed=plan.run.seed,
        ledger=ledger,
        ledger_seconds=LEDGER_SECONDS,
        control=ControlSpec(expects_loss=False),
    )
    return lying, clean


def _causes(error: Exception) -> Iterator[Exception]:
    """Yield an error, or the single errors of an exception group and its inner groups."""
    if isinstance(error, ExceptionGroup):
        for one in error.exceptions:
            yield from _causes(one)
    else:
        yield error


def run_plan(
    matrix: Matrix,
    path: Path,
    results: Path,
    *,
    platform: Platform | None = None,
    resumed: RunStore | None = None,
    keep: bool = False,
    known: Sequence[KnownDifference] = (),
    carry_out: Callable[[PlanRunner], None] = PlanRunner.run,
) -> tuple[RunRecord, Path | None]:
    """Run a plan, or resume a run of it; return the run's record and the path of its report.

    ``platform`` overrides the plan's platform. ``known``: the failures that are expected today. ``carry_out`` makes
    the repetitions and power cuts that remain.

    Raises:
        RequestError: the run to resume has another plan, other machines or other software.
        RequirementMissing: this host cannot run a lab.
    """
    require_host()
    plan = matrix.plan
    platform = platform or plan.run.platform
    if resumed is not None:
        matrix = with_recorded_factor(matrix, resumed)
        require_same(resumed, matrix, matrix.plan.hardware.topology(platform))
    with progress("preparing kernel and image"):
        prepare(plan.hardware.topology(platform))
        matrix = with_probed_factor(matrix, [platform])
        topology = matrix.plan.hardware.topology(platform)
        with Run(plan.name, results, topology, keep=keep, resumed=resumed) as current_run:
            if current_run.record.plan is None:
                current_run.record.plan = record_of(matrix, path)
            current_run.record.known = known_today(known)
            try:
                carry_out(PlanRunner(matrix, current_run))
            except KeyboardInterrupt:
                say(
                    f"interrupted; the repetitions made until now are stored in {current_run.store.path}, and the "
                    "same command with --resume continues the run"
                )
                raise
    return current_run.record, current_run.report


def require_same(store: RunStore, matrix: Matrix, topology: Topology) -> None:
    """Verify that a stored run has the same plan, machines and software.

    Raises:
        RequestError: the plan, the machines or their software differ.
    """
    record = store.load()
    if record.plan is None:
        raise RequestError(f"run {record.run} is not the run of a plan")
    if record.plan.digest != matrix.digest:
        raise RequestError(
            f"the plan has changed since run {record.run}: old and new values would not be comparable",
            remedy="start a new run, without --resume",
        )
    if record.topology != topology.model_dump(mode="json"):
        raise RequestError(
            f"run {record.run} has other machines or other software: old and new values would not be comparable",
            remedy="give the options of that run, or start a new run, without --resume",
        )
