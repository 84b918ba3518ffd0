"""Running a plan: repetitions, left-out cells, and errors that end a run. The repetitions are faked."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from raidproof.core.errors import NotEffective, RequestError, RequirementMissing, RigError
from raidproof.core.waiting import wall_clock
from raidproof.fault import FaultEffects
from raidproof.plan.cell import Cell, Matrix, matrix_of
from raidproof.plan.forecast import CUT_S
from raidproof.plan.plan import read_plan
from raidproof.record import CrashTestRecord, RunRecord, RunStore
from raidproof.record.cell import CellRecord, Explored, PlanRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.plan_runner import GIVE_UP_AFTER, PlanRunner, controls_of, cut_of, record_of, stack_of_controls
from raidproof.run.run import Run
from raidproof.verdict.run import conclude_run
from raidproof.workload.ledger import LedgerSpec

CONTROLS = ["control-lying-disks", "control-clean-reboot"]
Happens = Callable[[Cell, Repetition], None]


class FakeLab:
    server = "server"
    clients = ("client1",)


class FakeDeployer:
    missing: ClassVar[set[str]] = set()

    def __init__(self, lab: FakeLab) -> None:
        self.lab = lab

    def teardown(self) -> None:
        pass

    def require(self, machine: str, program: str) -> None:
        if program in self.missing:
            raise RequirementMissing(f"{machine} has no {program}")


class FakeCampaign:
    """A fake that boots nothing and records its requests."""

    def __init__(self, path: Path, record: RunRecord) -> None:
        self.store, self.record = RunStore(path), record
        self.cut: list[str] = []
        self.boots = 0
        self.cycle_ends = self.control_ends = Outcome.PASS
        self._lab: FakeLab | None = None

    @property
    def lab(self) -> FakeLab:
        if self._lab is None:
            self._lab = FakeLab()
            self.boots += 1
        return self._lab

    def discard_lab(self) -> None:
        self._lab = None

    def cycle(self, spec: CrashTestSpec) -> CrashTestRecord:
        self.cut.append(spec.name)
        (self.store.path / spec.name).mkdir()
        failed = "the lab burned down" if self.cycle_ends is Outcome.ERROR else None
        one = CrashTestRecord(
            name=spec.name, title=spec.title, asked={}, cache_mode="volatile", fault="power-cut", seed=1,
            effects=FaultEffects(),
            outcome=self.control_ends if spec.control else self.cycle_ends, rig_error=failed, control=spec.control,
            reason="so",
        )  # fmt: skip
        self.record.cycles.append(one)
        return one


def tiny(workloads: int = 1, **run: Any) -> Matrix:
    sizes = [{"tool": "dd", "count": 64 * number} for number in range(1, workloads + 1)]
    document = {
        "hardware": {"disks": {"count": 4, "size": "512MiB"}},
        "axes": {"level": [5, 10]},
        "workload": sizes,
        "run": run,
    }
    return matrix_of(read_plan(document, source="here.toml", name="here"))


class House:
    """Runs of one plan in one directory, one after the other."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = directory / "run"
        self.path.mkdir()
        self.plan = directory / "here.toml"
        self.plan.write_text("the plan's own words")
        self.happens: Happens = lambda _cell, _repeat: None
        self.measured: list[str] = []
        self.saved: list[int] = []
        monkeypatch.setattr("raidproof.run.plan_runner.run_repetition", self._repeat)
        monkeypatch.setattr("raidproof.run.plan_runner.StackDeployer", FakeDeployer)
        monkeypatch.setattr("raidproof.run.plan_runner.step", lambda _said: None)

    def _repeat(
        self, _deployer: object, _plan: object, cell: Cell, record: CellRecord, repeat: Repetition, directory: Path
    ) -> None:
        assert directory.is_dir()
        # What is on disk now is what a killed run would leave.
        self.saved.append(sum(len(one.repeats) for one in RunStore(self.path).load().cells))
        self.measured.append(cell.name)
        repeat.value, repeat.timed_s, record.unit = 100.0, 2.0, "write_mb_s"
        self.happens(cell, repeat)

    def execution(self, matrix: Matrix) -> tuple[PlanRunner, FakeCampaign]:
        store = RunStore(self.path)
        if (self.path / "report.json").is_file():
            record = store.load()
        else:
            record = RunRecord(run="run", started=wall_clock(), command=[], plan=record_of(matrix, self.plan))
        current_run = FakeCampaign(self.path, record)
        return PlanRunner(matrix, cast("Run", current_run)), current_run

    def run(self, matrix: Matrix) -> FakeCampaign:
        execution, current_run = self.execution(matrix)
        execution.run()
        return current_run


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    return House(tmp_path, monkeypatch)


def plan_of(current_run: FakeCampaign) -> PlanRecord:
    assert current_run.record.plan is not None
    return current_run.record.plan


def test_every_cell_is_measured_once_in_each_round(house: House) -> None:
    current_run = house.run(tiny(workloads=2, repeats=3))
    assert house.measured == [name for _, name in plan_of(current_run).order]
    for begin in (0, 4, 8):
        assert len(set(house.measured[begin : begin + 4])) == 4
    assert current_run.boots == 1
    assert plan_of(current_run).timed_s == 12 * 2.0


def test_each_repetition_is_saved_before_the_next(house: House) -> None:
    current_run = house.run(tiny(repeats=3))
    assert house.saved == [0, 1, 2, 3, 4, 5]
    assert house.execution(tiny(repeats=3))[1].record.model_dump() == current_run.record.model_dump()


def test_a_resumed_run_does_not_repeat_repetitions(house: House) -> None:
    house.run(tiny(repeats=2))
    again = house.run(tiny(repeats=2))
    assert len(house.measured) == 4
    assert again.boots == 0


def test_an_interrupted_run_continues(house: House) -> None:
    def interrupt(_cell: Cell, _repeat: Repetition) -> None:
        if len(house.measured) == 3:
            raise KeyboardInterrupt

    house.happens = interrupt
    with pytest.raises(KeyboardInterrupt):
        house.run(tiny(repeats=2))
    assert house.saved == [0, 1, 2]
    house.happens = lambda _cell, _repeat: None
    current_run = house.run(tiny(repeats=2))
    # The third repetition was made twice, nothing else.
    assert house.measured == [name for _, name in plan_of(current_run).order[:3] + plan_of(current_run).order[2:]]
    assert [len(cell.measured) for cell in current_run.record.cells] == [2, 2]


@pytest.mark.parametrize(
    "error",
    [RigError("no answer"), RequestError("cannot be"), ExceptionGroup("two", [RigError("no answer"), RigError("x")])],
    ids=["rig", "request", "several"],
)
def test_what_fails_ends_the_lab_not_the_run(house: House, error: Exception) -> None:
    def fail(cell: Cell, _repeat: Repetition) -> None:
        if "level=5" in cell.name:
            raise error

    house.happens = fail
    current_run = house.run(tiny(repeats=2))
    assert len(house.measured) == 4
    # The last lab ends with the run, if the last repetition was of the cell that works.
    assert current_run.boots >= 2
    failed, good = current_run.record.cells
    assert [one.rig_error is not None for one in failed.repeats] == [True, True]
    assert failed.measured == []
    assert good.measured == [100.0, 100.0]
    conclude_run(current_run.record)
    assert (failed.outcome, good.outcome) == (Outcome.ERROR, Outcome.PASS)


def test_a_cell_that_always_fails_is_given_up_until_the_run_is_resumed(house: House) -> None:
    def fail(_cell: Cell, _repeat: Repetition) -> None:
        raise RigError("no answer")

    house.happens = fail
    matrix = tiny(repeats=GIVE_UP_AFTER + 2)
    house.run(matrix)
    assert len(house.measured) == 2 * GIVE_UP_AFTER
    house.happens = lambda _cell, _repeat: None
    current_run = house.run(matrix)
    assert [len(cell.measured) for cell in current_run.record.cells] == [GIVE_UP_AFTER + 2] * 2


@pytest.mark.parametrize(
    "error",
    [NotEffective("wsize: found 64 KiB"), ExceptionGroup("two", [NotEffective("wsize: found 64 KiB")])],
    ids=["one client", "several"],
)
def test_a_configuration_that_is_not_what_was_asked_is_not_tried_again(house: House, error: Exception) -> None:
    def refuse(cell: Cell, _repeat: Repetition) -> None:
        if "level=5" in cell.name:
            raise error

    house.happens = refuse
    current_run = house.run(tiny(repeats=3))
    refused, good = current_run.record.cells
    assert refused.not_effective == "wsize: found 64 KiB"
    assert (len(refused.repeats), len(good.repeats)) == (1, 3)
    house.run(tiny(repeats=3))
    assert len(house.measured) == 4


def test_an_error_of_the_harness_ends_the_run(house: House) -> None:
    def fail(_cell: Cell, _repeat: Repetition) -> None:
        raise ZeroDivisionError

    house.happens = fail
    with pytest.raises(ZeroDivisionError):
        house.run(tiny())


def test_a_lab_that_does_not_boot_ends_the_run_and_spoils_no_cell(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lab(_self: FakeCampaign) -> FakeLab:
        raise RigError("server did not boot")

    monkeypatch.setattr(FakeCampaign, "lab", property(no_lab))
    execution, current_run = house.execution(tiny())
    with pytest.raises(RigError, match="did not boot"):
        execution.run()
    assert [cell.repeats for cell in current_run.record.cells] == [[], []]
    assert RunStore(house.path).load().plan is not None


def test_missing_programs_are_found_before_the_first_repetition(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDeployer, "missing", {"dd"})
    with pytest.raises(RequirementMissing, match="client1 has no dd"):
        house.run(tiny())
    assert house.measured == []


def test_a_repetition_that_was_too_short_is_flagged(house: House) -> None:
    current_run = house.run(tiny(repeats=1, min_seconds=3))
    conclude_run(current_run.record)
    assert {cell.flag for cell in current_run.record.cells} == {"timed part 2 s, less than min_seconds, 3 s"}
    assert house.execution(tiny())[1].record.cells[0].repeats[0].caveat is not None


def test_each_configuration_is_cut_once_whatever_its_workloads(house: House) -> None:
    current_run = house.run(tiny(workloads=2, repeats=1, cut="power"))
    assert current_run.cut == [*CONTROLS, "cut-000", "cut-001"]
    names = sorted(cell.cycle or "" for cell in current_run.record.cells)
    assert names == ["cut-000", "cut-000", "cut-001", "cut-001"]
    assert house.run(tiny(workloads=2, repeats=1, cut="power")).cut == []


@pytest.mark.parametrize("states", [{}, {"states": 0}, {"states": 7}])
def test_the_crash_states_of_each_power_cut_are_checked_once(
    house: House, monkeypatch: pytest.MonkeyPatch, states: dict[str, int]
) -> None:
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "raidproof.run.plan_runner.check_directed", lambda _run, made, states: asked.append((made.name, states))
    )
    house.run(tiny(workloads=2, repeats=1, cut="power", **states))
    number = states.get("states", 60)
    assert asked == [("cut-000", number), ("cut-001", number)]


def test_each_cut_is_explored_where_that_is_asked(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int]] = []
    said: list[str] = []
    monkeypatch.setattr("raidproof.run.plan_runner.say", said.append)

    def explored(_store: RunStore, name: str, states: int, seed: int, *, scrub: bool) -> Explored:
        assert not scrub
        asked.append((name, states, seed))
        outcome = Outcome.FAIL if name == "cut-000" else Outcome.PASS
        return Explored(file=f"explore-{name}.json", judged=states, broken=3, outcome=outcome, reason="3 are broken")

    monkeypatch.setattr("raidproof.run.plan_runner.explored", explored)
    current_run = house.run(tiny(repeats=1, cut="explore", explore_states=50))
    conclude_run(current_run.record)
    assert asked == [("cut-000", 50, 1), ("cut-001", 50, 1)]
    assert said == ["crash states of cut-000: FAIL: 3 are broken", "crash states of cut-001: PASS: 3 are broken"]
    assert current_run.record.outcome is Outcome.FAIL
    first, second = current_run.record.cells
    assert (first.rank, first.why_not) == (None, "FAIL: exploration of crash states: 3 are broken")
    assert second.outcome is Outcome.PASS


def test_a_cut_that_cannot_be_explored_does_not_end_the_plan(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def explored(_store: RunStore, name: str, states: int, _seed: int, *, scrub: bool) -> Explored:
        if name == "cut-000":
            raise RequestError("crash test cut-000 cannot be explored: it did not take place: wsize", remedy="another")
        return Explored(
            file="explore.json", judged=states, broken=0, outcome=Outcome.PASS, reason="every promise held"
        )

    monkeypatch.setattr("raidproof.run.plan_runner.explored", explored)
    current_run = house.run(tiny(repeats=1, cut="explore"))
    conclude_run(current_run.record)
    first, second = RunStore(house.path).load().cells
    assert first.explored is not None
    assert (first.explored.file, first.explored.judged, first.explored.outcome) == (None, 0, Outcome.INCONCLUSIVE)
    assert "did not take place: wsize" in first.explored.reason
    assert second.explored is not None
    assert second.explored.outcome is Outcome.PASS
    assert [cell.rankable for cell in current_run.record.cells] == [False, True]


def test_controls_run_once_and_before_any_cut(house: House) -> None:
    matrix = tiny(repeats=1, cut="power")
    current_run = house.run(matrix)
    assert current_run.cut[:2] == CONTROLS
    lying, clean = current_run.record.cycles[:2]
    assert lying.control is not None
    assert clean.control is not None
    assert (lying.control.expects_loss, lying.control.expects_blame, clean.control.expects_loss) == (
        True,
        "the disks",
        False,
    )
    conclude_run(current_run.record)
    assert current_run.record.outcome is Outcome.PASS
    assert current_run.record.reason.endswith("the controls behaved")
    # Cells that a resumed run has still to cut are cut under the controls of the same run.
    current_run.record.cells[1].cycle = None
    current_run.record.cycles.pop()
    current_run.store.save(current_run.record)
    assert house.run(matrix).cut == ["cut-001-2"]


def test_a_control_that_misbehaves_makes_the_run_invalid(house: House) -> None:
    execution, current_run = house.execution(tiny(repeats=1, cut="power"))
    current_run.control_ends = Outcome.INVALID
    execution.run()
    assert current_run.cut == CONTROLS
    conclude_run(current_run.record)
    assert (current_run.record.outcome, current_run.record.reason.endswith("control: lying disks: so")) == (
        Outcome.INVALID,
        True,
    )
    assert {(cell.outcome, cell.rank) for cell in current_run.record.cells} == {(Outcome.INVALID, None)}


def test_a_control_that_the_disks_cannot_execute_is_reported(house: House) -> None:
    execution, current_run = house.execution(tiny(repeats=1, cut="power"))
    current_run.control_ends = Outcome.SKIP
    execution.run()
    assert current_run.cut == [*CONTROLS, "cut-000", "cut-001"]
    conclude_run(current_run.record)
    assert current_run.record.outcome is Outcome.PASS
    assert "control: lying disks was skipped: so" in current_run.record.reason


def test_a_control_that_the_rig_broke_off_leaves_the_cuts_unproved(house: House) -> None:
    execution, current_run = house.execution(tiny(repeats=1, cut="power"))
    current_run.control_ends = Outcome.ERROR
    execution.run()
    conclude_run(current_run.record)
    assert (current_run.record.outcome, current_run.record.reason) == (Outcome.ERROR, "control: lying disks: so")


def test_controls_are_run_on_a_sync_export_that_waits_for_no_grace_period() -> None:
    axes = {"export": ["async", "sync"], "vers": ["4.0", "4.2"]}
    plan = read_plan({"axes": axes, "workload": {"tool": "dd"}}, source="here.toml", name="here")
    cells = matrix_of(plan).cells
    stack = stack_of_controls(cells)
    assert (stack.export.sync, stack.export.delegations, stack.mount.vers) == (True, False, "4.2")
    alone = stack_of_controls([cell for cell in cells if not cell.stack.export.sync])
    assert (alone.export.sync, alone.mount.vers) == (True, "4.2")


def test_cuts_and_controls_have_the_workers_of_the_plan() -> None:
    def kinds(**run: Any) -> set[tuple[str, ...]]:
        plan = read_plan({"workload": {"tool": "dd"}, "run": {"cut": "power", **run}}, source="here.toml", name="here")
        (cell,) = matrix_of(plan).cells
        specs = (cut_of(plan, cell, "cut-000"), *controls_of(plan, cell.stack))
        return {spec.ledger.kinds for spec in specs}

    assert kinds() == {LedgerSpec().kinds}
    assert kinds(workers=["fsync", "shared"]) == {("fsync", "shared")}
    with pytest.raises(RequestError, match="unknown kind of worker 'fsnyc'"):
        kinds(workers=["fsnyc"])


def test_what_is_left_is_known_for_cuts_and_controls_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("raidproof.run.plan_runner.step", said.append)
    execution, _ = house.execution(tiny(repeats=1, cut="power"))
    assert execution.forecast.left_s > 4 * CUT_S
    execution.run()
    assert execution.forecast.left_s == 0
    assert "left)" not in said[0]
    assert [line.partition(" (")[0] for line in said[1:] if line.endswith(" left)")] == [
        "repetition 2 of 2: level=10" if "level=5" in said[0] else "repetition 2 of 2: level=5",
        *("control: lying disks", "control: clean reboot", "power cut: level=5", "power cut: level=10"),
    ]
    assert house.execution(tiny(repeats=1, cut="power"))[0].forecast.left_s == 0


def test_power_is_cut_only_on_request(house: House) -> None:
    assert house.run(tiny(repeats=1)).cut == []


def test_what_was_never_measured_is_not_cut(house: House) -> None:
    def refuse(cell: Cell, _repeat: Repetition) -> None:
        if "level=5" in cell.name:
            raise NotEffective("no")

    house.happens = refuse
    current_run = house.run(tiny(repeats=1, cut="power"))
    assert [cell.cycle for cell in current_run.record.cells] == [None, "cut-001"]


def test_a_cut_that_the_rig_broke_off_is_made_again(house: House) -> None:
    matrix = tiny(repeats=1, cut="power")
    execution, current_run = house.execution(matrix)
    current_run.cycle_ends = current_run.control_ends = Outcome.ERROR
    execution.run()
    again = house.run(matrix)
    assert again.cut == [f"{name}-2" for name in (*CONTROLS, "cut-000", "cut-001")]
    assert [cell.cycle for cell in again.record.cells] == again.cut[2:]
    assert [one.outcome for one in again.record.cycles] == [Outcome.PASS] * 4


def test_a_broken_promise_is_not_cut_away(house: House) -> None:
    matrix = tiny(repeats=1, cut="power")
    execution, current_run = house.execution(matrix)
    current_run.cycle_ends = Outcome.FAIL
    execution.run()
    assert house.run(matrix).cut == []


def test_a_cut_shared_with_a_cell_that_an_interruption_left_out_is_not_made_twice(house: House) -> None:
    matrix = tiny(workloads=2, repeats=1, cut="power")
    current_run = house.run(matrix)
    current_run.record.cells[-1].cycle = None
    current_run.store.save(current_run.record)
    again = house.run(matrix)
    assert again.cut == []
    assert again.record.cells[-1].cycle is not None


def test_cells_are_also_measured_one_by_one(house: House) -> None:
    matrix = tiny()
    execution, current_run = house.execution(replace(matrix, cells=()))
    cell = matrix.cells[1]
    assert execution.measure(cell).measured == [100.0]
    again = execution.measure(cell, repeats=2)
    assert [one.round for one in again.repeats] == [1, 2, 3]
    assert (again.outcome, current_run.record.cells) == (Outcome.PASS, [again])
    assert len(RunStore(house.path).load().cells[0].repeats) == 3
