"""The loop of a storm on a fake run: repetition, shrinking, the scenario, interruption and continuation."""

import ast
from collections.abc import Callable
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from raidproof.core.blame import Blame, Culprit
from raidproof.core.errors import RequestError
from raidproof.fault import FaultEffects
from raidproof.plan.cell import Matrix, matrix_of
from raidproof.plan.plan import read_plan
from raidproof.record import CrashTestRecord, RunStore
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.storm import STORM, StormRecord
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.storm import storm
from raidproof.run.storm.case import draw
from raidproof.run.storm.reproducer import scenario_of
from raidproof.run.storm.storm import digest_of, drawn, newest_of, run_storm, stacks_of

PLAN = {"fixed": {"level": 10}, "axes": {"chunk": ["64KiB", "128KiB"]}, "workload": {"tool": "dd"}}
DISKS = Blame(culprit=Culprit.DISKS)
Judge = Callable[[CrashTestSpec], Outcome]


class FakeRun:
    """A fake run whose crash tests end as a function says."""

    judge: Judge = staticmethod(lambda _: Outcome.PASS)
    ran: ClassVar[list[str]] = []

    def __init__(self, what: str, results: Path, _topology: object, resumed: RunStore | None = None) -> None:
        self.store = resumed or RunStore.create(results, what)
        self.record = SimpleNamespace(run=self.store.path.name, started="2026-11-28T12:00:00Z", cycles=[])

    def __enter__(self) -> "FakeRun":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cycle(self, spec: CrashTestSpec) -> CrashTestRecord:
        FakeRun.ran.append(spec.name)
        outcome = FakeRun.judge(spec)
        made = CrashTestRecord(
            name=spec.name,
            title=spec.title,
            asked={},
            cache_mode="volatile",
            fault="x",
            effects=FaultEffects(),
            seed=1,
        )
        made.outcome, made.reason = outcome, f"ended {outcome.value}"
        made.verdicts = [Verdict(checker="ledger", outcome=outcome, reason="r", blame=DISKS)]
        log = self.store.directory(spec.name) / "write.log"
        log.write_text("log")
        made.files.write_log = f"{spec.name}/write.log"
        self.record.cycles.append(made)
        return made


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> Matrix:
    monkeypatch.setattr(storm, "Run", FakeRun)
    monkeypatch.setattr(storm, "require_host", lambda: None)
    monkeypatch.setattr(storm, "prepare", lambda _: None)
    monkeypatch.setattr(FakeRun, "ran", [])
    monkeypatch.setattr(FakeRun, "judge", staticmethod(lambda _: Outcome.PASS))
    return matrix_of(read_plan(PLAN, source="plan"))


def judged_by(monkeypatch: pytest.MonkeyPatch, judge: Judge) -> None:
    monkeypatch.setattr(FakeRun, "judge", staticmethod(judge))


def has_cut(spec: CrashTestSpec) -> bool:
    return any(one.fault.name == "power-cut" for one in spec.faults)


def test_a_storm_in_which_all_held_runs_each_seed_once(matrix: Matrix, tmp_path: Path) -> None:
    record, page = run_storm(matrix, tmp_path, range(1, 6))
    assert FakeRun.ran == [f"seed-{seed}" for seed in range(1, 6)]
    assert (record.outcome, record.reason) == (Outcome.PASS, "every promise held in 5 random schedules of faults")
    assert StormRecord.model_validate_json((page.parent / STORM).read_text()) == record
    assert record.ended is not None
    assert list(page.parent.glob("*/write.log")) == []
    assert "seed" in page.read_text()


def test_a_failure_is_repeated_shrunk_and_written_as_a_scenario(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by(monkeypatch, lambda spec: Outcome.FAIL if has_cut(spec) else Outcome.PASS)
    record, page = run_storm(matrix, tmp_path, range(1, 8))
    failed = [row for row in record.rows if row.outcome is Outcome.FAIL]
    assert failed
    assert record.outcome is Outcome.FAIL
    for row in failed:
        assert "power-cut" in row.drawn.names
        assert row.repeated
        assert row.blamed == [DISKS]
        assert row.shrunk is not None
        assert row.shrunk.case.names == ["power-cut"]
        assert len(row.shrunk.case.kinds) == 1
        assert (page.parent / row.shrunk.scenario).read_text() == row.shrunk.text
        assert (page.parent / row.shrunk.cycle / "write.log").is_file()
        assert row.shrunk.text in unescape(page.read_text())


def test_a_failure_that_does_not_occur_again_stays_a_failure(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by(monkeypatch, lambda spec: Outcome.FAIL if spec.name == "seed-2" else Outcome.PASS)
    record, page = run_storm(matrix, tmp_path, range(1, 4))
    (row,) = [row for row in record.rows if row.outcome is Outcome.FAIL]
    assert row.repeated is False
    assert row.shrunk is None
    assert row.cycles == ["seed-2", *(f"seed-2-repeated-{number}" for number in (1, 2, 3))]
    assert record.outcome is Outcome.FAIL
    assert "did not occur again in 3 repetitions" in page.read_text()


def test_an_error_of_the_rig_is_tried_again_once(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by(monkeypatch, lambda spec: Outcome.ERROR if spec.name == "seed-1" else Outcome.PASS)
    record, _ = run_storm(matrix, tmp_path, [1])
    assert record.rows[0].cycles == ["seed-1", "seed-1-again"]
    assert record.outcome is Outcome.PASS
    judged_by(monkeypatch, lambda _: Outcome.ERROR)
    record, _ = run_storm(matrix, tmp_path, [1])
    assert (record.outcome, record.reason) == (Outcome.ERROR, "seed 1: ended ERROR")


def test_an_interruption_keeps_what_was_run_and_a_resumed_storm_runs_the_rest(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(spec: CrashTestSpec) -> Outcome:
        if spec.name == "seed-3":
            (next(tmp_path.glob("*-storm")) / spec.name).mkdir()
            raise KeyboardInterrupt
        return Outcome.PASS

    judged_by(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_storm(matrix, tmp_path, range(1, 6))
    (path,) = tmp_path.glob(f"*/{STORM}")
    stored = StormRecord.model_validate_json(path.read_text())
    assert [row.seed for row in stored.rows] == [1, 2]
    assert stored.ended is None
    FakeRun.ran.clear()
    judged_by(monkeypatch, lambda _: Outcome.PASS)
    record, page = run_storm(matrix, tmp_path, range(1, 8), resume=True)
    assert page.parent == path.parent
    assert FakeRun.ran == ["seed-3-attempt-2", *(f"seed-{seed}" for seed in range(4, 8))]
    assert (record.first, record.last, len(record.rows)) == (1, 7, 7)
    with pytest.raises(RequestError, match="no storm of this request"):
        newest_of(digest_of(matrix, ["power-cut"], beyond=False), tmp_path)


def test_no_seed_begins_after_the_time(matrix: Matrix, tmp_path: Path) -> None:
    record, _ = run_storm(matrix, tmp_path, range(1, 6), minutes=0.0)
    assert (record.rows, record.ended, record.outcome) == ([], None, Outcome.INCONCLUSIVE)


def test_kinds_without_a_legal_schedule_are_refused_before_any_boot(matrix: Matrix, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no schedule of scrubbing is legal for md RAID10"):
        run_storm(matrix, tmp_path, [1], kinds=["scrubbing"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", range(12))
def test_a_scenario_has_the_case_and_its_lab(matrix: Matrix, seed: int) -> None:
    case = draw(seed, stacks_of(matrix))
    text = scenario_of(case, matrix.plan.hardware, seed, 'a "reason" with """ and a \\ in it"')
    ast.parse(text)
    names: dict[str, Any] = {}
    exec(compile(text, "scenario", "exec"), names)  # noqa: S102  the text that a user runs by pytest
    ran: list[Any] = []

    class Result:
        def must_keep_every_promise(self) -> None:
            ran.append("judged")

    def cycle(stack: object, **given: Any) -> Result:
        ran.append((stack, given["faults"], given["cache_mode"], given["ledger"].kinds))
        return Result()

    names[f"test_seed_{seed}"](cycle)
    assert ran == [(case.stack, case.faults, case.cache_mode.value, case.kinds), "judged"]
    assert names["Hardware"].model_validate(names["HARDWARE"]).topology() == matrix.plan.hardware.topology()
    assert drawn(case).faults == [str(one) for one in case.faults]
