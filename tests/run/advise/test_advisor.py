"""A run of advice whose repetitions and power cuts are faked: budget, resumption, what is cut and recommended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.fault import FaultEffects
from raidproof.plan.cell import Cell
from raidproof.plan.free_axes import Free, free_of
from raidproof.plan.plan import load_plan
from raidproof.record import CrashTestRecord, RunRecord, RunStore
from raidproof.record.advice import AdviceRecord, Drop, PickedBy
from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.record.results.names import ADVICE
from raidproof.record.run import ScanResult
from raidproof.run.advise.advisor import WHAT, budget_of, candidates_of, load, run_advise
from raidproof.run.advise.dry_run import dry_run, lines
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.plan_runner import CLEAN_REBOOT
from raidproof.run.run import Run

PLAN = """
hardware = { disks = { count = 4, size = "512MiB" } }
axes = { chunk = ["512KiB", "64KiB", "256KiB"], wsize = ["64KiB", "1MiB"], threads = [8, 16, 32] }
fixed = { level = 5 }
workload = { tool = "dd", count = 64 }
run = { allow_cache = true }
"""
CURRENT = "chunk=512KiB wsize=64KiB threads=8"
BEST = "chunk=64KiB wsize=1MiB threads=8"
SECONDS = {"repetition": 5.0, "cut": 20.0}


def speed(cell: Cell) -> float:
    """Return a speed that chunk and wsize determine; the number of threads has no effect."""
    settings = cell.settings
    return (
        100.0 * (1.5 if settings["chunk"] == 64 * 1024 else 1.0) * (2.0 if settings["wsize"] == 1024 * 1024 else 1.0)
    )


class FakeLab:
    server = "server"
    clients = ("client1",)


class FakeDeployer:
    def __init__(self, lab: FakeLab) -> None:
        self.lab = lab

    def teardown(self) -> None:
        pass

    def require(self, machine: str, program: str) -> None:
        pass


class Rig:
    """Runs of one plan whose clock advances with each repetition and power cut only."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan, self.results = directory / "here.toml", directory / "results"
        self.results.mkdir()
        self.write(PLAN)
        self.now_ns = 0
        self.measured: list[str] = []
        self.cut: list[str] = []
        self.losing: set[str] = set()
        self.happens: Callable[[Cell, Repetition], None] = lambda _cell, _repeat: None
        self.controls = Outcome.PASS
        lab = FakeLab()
        patched: dict[str, Any] = {
            "raidproof.run.plan_runner.run_repetition": self._repeat,
            "raidproof.run.plan_runner.StackDeployer": FakeDeployer,
            "raidproof.run.plan_runner.now_ns": lambda: self.now_ns,
            "raidproof.run.advise.advisor.now_ns": lambda: self.now_ns,
            "raidproof.run.advise.advisor.require_host": lambda: None,
            "raidproof.run.advise.advisor.prepare": lambda _: None,
        }
        for name, value in patched.items():
            monkeypatch.setattr(name, value)
        monkeypatch.setattr(Run, "lab", property(lambda _: lab))
        monkeypatch.setattr(Run, "discard_lab", lambda _, **__: None)
        cycle = self._cycle

        def cut(run: Run, spec: CrashTestSpec) -> CrashTestRecord:
            return cycle(run, spec)

        monkeypatch.setattr(Run, "cycle", cut)

    def write(self, text: str) -> None:
        self.plan.write_text(text)

    def _repeat(
        self, _deployer: object, _plan: object, cell: Cell, record: CellRecord, repeat: Repetition, directory: Path
    ) -> None:
        self.now_ns += int(SECONDS["repetition"] * 1e9)
        self.measured.append(cell.name)
        record.unit, repeat.limit = "write_mb_s", "disks"
        noise = 1 + 0.01 * ((7 * len(self.measured)) % 5 - 2)
        repeat.value, repeat.timed_s = speed(cell) * noise * (2 if not cell.stack.export.sync else 1), 2.0
        repeat.values = {"write_mb_s": repeat.value}
        self.happens(cell, repeat)

    def _cycle(self, run: Run, spec: CrashTestSpec) -> CrashTestRecord:
        self.now_ns += int(SECONDS["cut"] * 1e9)
        if spec.control is None:
            self.cut.append(spec.title)
        run.store.directory(spec.name)
        loses = spec.title in self.losing or not spec.stack.export.sync
        outcome = self.controls if spec.control else Outcome.FAIL if spec.title in self.losing else Outcome.PASS
        made = CrashTestRecord(
            name=spec.name, title=spec.title, asked=spec.stack.model_dump(mode="json"), cache_mode="volatile",
            fault="power-cut", effects=FaultEffects(server_memory_lost=True), seed=1, control=spec.control,
            outcome=outcome, reason="so",
            on_server=ScanResult(acknowledged={"fsync": 9}, judged={"fsync": 9}, lost={"fsync": 3} if loses else {}),
        )  # fmt: skip
        run.record.cycles.append(made)
        run.store.save(run.record)
        return made

    @property
    def free(self) -> Free:
        return free_of(load_plan(self.plan))

    def advise(self, minutes: float = 20.0, **other: Any) -> tuple[AdviceRecord, RunRecord]:
        record, page = run_advise(self.free, self.plan, self.results, minutes, **other)
        assert page.is_file()
        assert load(page.parent / ADVICE).model_dump() == record.model_dump()
        return record, RunStore(page.parent).load()

    @property
    def newest(self) -> RunStore:
        return RunStore.newest(self.results, f"here-{WHAT}")


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_the_best_safe_configuration_with_the_fewest_changes_is_recommended(rig: Rig) -> None:
    record, run = rig.advise()
    assert (record.recommended, record.outcome) == (BEST, Outcome.PASS)
    assert record.ended is not None
    assert {one.axis for one in record.left_out} == {"chunk", "wsize"}
    remaining = {one.axis: one.ratio.ratio for one in record.left_out if one.ratio is not None}
    assert remaining == {"chunk": pytest.approx(1 / 1.5, rel=0.05), "wsize": pytest.approx(0.5, rel=0.05)}
    assert any(rung.final for rung in record.rungs)
    assert sum(one.control is not None for one in run.cycles) == 2
    assert run.outcome is Outcome.PASS
    assert CURRENT in rig.cut


def test_each_repetition_is_of_a_round_of_the_record(rig: Rig) -> None:
    record, run = rig.advise()
    named = {(rung.round, name) for rung in record.rungs for name in rung.names}
    assert {(one.round, cell.name) for cell in run.cells for one in cell.repeats} == named
    assert run.plan is not None
    assert set(run.plan.order) == named


@pytest.mark.parametrize("minutes", [3.5, 5, 10])
def test_the_budget_is_kept(rig: Rig, minutes: float) -> None:
    record, _ = rig.advise(minutes)
    # At most one power cut begins before the end of the time.
    assert record.spent_s <= 60 * minutes + SECONDS["cut"]
    assert record.recommended is not None


def test_a_finalist_that_loses_data_is_out(rig: Rig) -> None:
    rig.losing = {BEST}
    record, _ = rig.advise()
    assert BEST in rig.cut
    assert record.recommended is not None
    assert record.recommended != BEST
    assert record.chosen is not None
    assert record.chosen.safety == "SAFE"
    lost = next(one for one in record.configurations if one.name == BEST)
    assert (lost.safety, lost.lost) == ("LOSES DATA", 3)


def test_if_everything_loses_data_nothing_is_recommended(rig: Rig) -> None:
    rig.losing = {cell.name for cell in rig.free.matrix.cells}
    record, _ = rig.advise()
    assert (record.recommended, record.outcome) == (None, Outcome.FAIL)
    assert len(rig.cut) > 5
    assert record.lines == []


def test_a_control_that_misbehaves_ends_the_run(rig: Rig) -> None:
    rig.controls = Outcome.INVALID
    record, run = rig.advise()
    assert (record.outcome, run.outcome) == (Outcome.INVALID, Outcome.INVALID)
    assert (rig.cut, record.recommended) == ([], None)


def test_an_async_export_is_measured_beside_the_recommended_one_and_never_recommended(rig: Rig) -> None:
    rig.write(PLAN.replace("threads = [8, 16, 32]", 'export = ["sync", "async"]'))
    record, _ = rig.advise()
    assert record.recommended == "chunk=64KiB wsize=1MiB export=sync"
    unsafe = "chunk=64KiB wsize=1MiB export=async"
    assert [name for name in rig.cut if "async" in name] == [unsafe]
    assert {one.by for rung in record.rungs for one in rung.picked if one.name == unsafe} == {PickedBy.UNSAFE}
    found = next(one for one in record.configurations if one.name == unsafe)
    assert (found.safety, found.lost) == ("LOSES DATA", 3)


def test_a_server_that_is_async_now_gets_a_safe_recommendation(rig: Rig) -> None:
    rig.write(PLAN.replace("level = 5", 'level = 5, export = "async"').replace(", threads = [8, 16, 32]", ""))
    record, _ = rig.advise()
    assert record.current == "chunk=512KiB wsize=64KiB export=async"
    assert record.recommended == "chunk=64KiB wsize=1MiB export=sync"


def test_what_is_not_effective_is_dropped(rig: Rig) -> None:
    def refuse(cell: Cell, _repeat: Repetition) -> None:
        if "wsize=1MiB" in cell.name:
            raise NotEffective("wsize: found 64 KiB")

    rig.happens = refuse
    record, _ = rig.advise()
    assert record.recommended == "chunk=64KiB wsize=64KiB threads=8"
    assert Drop.FAILED in {one.why for rung in record.rungs for one in rung.dropped}


def test_an_error_of_the_rig_is_tried_once_more(rig: Rig) -> None:
    failed: set[str] = set()

    def fail(cell: Cell, _repeat: Repetition) -> None:
        if cell.name not in failed:
            failed.add(cell.name)
            raise RigError("no answer")

    rig.happens = fail
    record, run = rig.advise()
    assert record.recommended == BEST
    assert not any(one.why is Drop.FAILED for rung in record.rungs for one in rung.dropped)
    assert all(cell.measured for cell in run.cells)


@pytest.mark.parametrize("after", [3, 25, 60])
def test_an_interrupted_search_keeps_what_was_measured_and_continues(rig: Rig, after: int) -> None:
    whole, _ = rig.advise()
    number = len(rig.measured)
    rig.measured.clear()
    rig.cut.clear()

    def interrupt(_cell: Cell, _repeat: Repetition) -> None:
        if len(rig.measured) == min(after, number - 1):
            raise KeyboardInterrupt

    rig.happens = interrupt
    with pytest.raises(KeyboardInterrupt):
        rig.advise()
    stored = load(rig.newest.path / ADVICE)
    assert stored.ended is None
    assert (rig.newest.path / "advice.html").is_file()
    assert sum(len(cell.measured) for cell in rig.newest.load().cells) == min(after, number - 1) - 1
    rig.happens = lambda _cell, _repeat: None
    record, run = rig.advise(resumed=rig.newest)
    assert record.recommended == whole.recommended
    assert record.ended is not None
    assert sum(one.control is not None for one in run.cycles) == 2
    assert record.run == stored.run
    assert record.spent_s > stored.spent_s
    # The interrupted repetition was made twice, and no power was cut twice.
    assert len(rig.cut) == len(set(rig.cut))
    for cell in run.cells:
        rounds = [one.round for one in cell.repeats if one.value is not None]
        assert len(rounds) == len(set(rounds))


def test_a_search_of_another_plan_is_not_continued(rig: Rig) -> None:
    rig.advise(5)
    rig.write(PLAN.replace("count = 64", "count = 65"))
    with pytest.raises(RequestError, match="the plan has changed"):
        rig.advise(5, resumed=rig.newest)


def test_a_budget_that_is_too_short_is_refused(rig: Rig) -> None:
    with pytest.raises(RequestError, match=r"--minutes 1 is too short.*give --minutes \d+"):
        budget_of(rig.free, 1)


@pytest.mark.parametrize("text", ["{}", "no json", '{"schema_version": 99}'])
def test_what_is_no_record_of_advice_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / ADVICE
    with pytest.raises(RequestError, match="cannot be read"):
        load(path)
    path.write_text(text)
    with pytest.raises(RequestError, match=r"advice\.json: "):
        load(path)


def test_the_description_before_the_run(rig: Rig) -> None:
    plan = load_plan(rig.plan)
    found = dry_run(rig.free, 20, plan.run.platform)
    assert found.candidates == 18
    assert found.first[0].name == CURRENT
    assert found.repetitions > 50
    assert found.cuts_s + found.final_s < found.budget_s
    said = list(lines(found))
    assert f"  {CURRENT} (current)" in said
    assert said[0].startswith("budget: 20 min: about ")


def test_the_model_is_asked_once_for_equal_inputs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.write(PLAN.replace("count = 4,", 'count = 4, profile = "hdd-7200-sata",'))
    asked: list[str] = []

    def expectation(_topology: object, cell: Cell, _unit: str) -> dict[str, float]:
        asked.append(cell.name)
        return {"value": speed(cell)}

    monkeypatch.setattr("raidproof.run.advise.advisor.expectation", expectation)
    free = rig.free
    found = candidates_of(free, free.matrix.plan.hardware.topology())
    assert len(found) == 18
    assert len(asked) == 6  # the model does not depend on the number of threads
    assert {one.expected for one in found} == {100.0, 150.0, 200.0, 300.0}


def test_the_clock_of_a_resumed_run_continues(rig: Rig) -> None:
    record, _ = rig.advise(5)
    spent = record.spent_s
    rig.now_ns += 10**15
    again, _ = rig.advise(5, resumed=rig.newest)
    assert again.spent_s - spent < 300
    assert CLEAN_REBOOT in {one.title for one in rig.newest.load().cycles}
