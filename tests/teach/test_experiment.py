import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.core.errors import NotEffective, RequirementMissing, RigError
from raidproof.disk.cache import CacheMode
from raidproof.fault import Degraded
from raidproof.record.cell import Repetition
from raidproof.record.exploration import ExplorationRecord, Possible, Rows, StateMark
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, ScanResult
from raidproof.teach import experiment as module
from raidproof.teach.action import Cut, Measure, WriteBack
from raidproof.teach.experiment import (
    Experiment,
    crash_tests,
    outcome_of,
    run_word,
    sentences_about_states,
    single_errors,
    values_of_cut,
    values_of_exploration,
    values_of_repetition,
    write_back_lines,
)
from raidproof.teach.lesson import Lesson
from raidproof.teach.reader import read_lesson
from tests.teach.measured import TEXT

LESSON = read_lesson(TEXT, source="my.md", name="my lesson!")
HARDWARE = LESSON.head.hardware


def cut_of(**changes: Any) -> Cut:
    return Cut.model_validate({"name": "c", "settings": {"export": "async"}, **changes})


def record_of(**changes: Any) -> CrashTestRecord:
    usual: dict[str, Any] = {
        "name": "c",
        "title": "c",
        "asked": {},
        "cache_mode": "volatile",
        "fault": "power-cut",
        "effects": {},
        "seed": 1,
    }
    return CrashTestRecord.model_validate({**usual, **changes})


def specs(action: Cut, seed: int) -> list[Any]:
    return crash_tests(action, action.stack(HARDWARE), seed)


def test_the_same_seed_gives_the_same_plan_of_the_history() -> None:
    action = cut_of(seconds=[4, 7], repeats=3)
    first, again, other = specs(action, 1), specs(action, 1), specs(action, 2)
    assert first == again
    assert [one.ledger_seconds for one in first] != [one.ledger_seconds for one in other]
    assert len({one.ledger_seconds for one in first}) == 3
    assert all(4 <= one.ledger_seconds <= 7 for one in first)
    assert [one.name for one in first] == ["c", "c-2", "c-3"]


def test_a_cut_of_lying_disks_is_a_control_so_that_the_run_does_not_fail() -> None:
    (spec,) = specs(cut_of(disks="lying", disks_of=["disk2"]), 1)
    assert (spec.cache_mode, spec.cache_mode_of) == (CacheMode.LYING, ("disk2",))
    assert spec.control is not None
    assert spec.control.expects_loss
    assert specs(cut_of(), 1)[0].control is None


def test_a_recording_has_no_fault_and_may_lack_a_member() -> None:
    (spec,) = specs(cut_of(power="stays", missing="disk1"), 1)
    assert spec.fault == "none"
    assert spec.during == (Degraded("disk1"),)


def test_write_back_is_changed_only_if_the_lesson_says_so() -> None:
    assert write_back_lines(cut_of().stack(HARDWARE)) == {}
    stack = cut_of(write_back={"expire_s": 2, "xfs_sync_s": 1}).stack(HARDWARE)
    assert write_back_lines(stack) == {
        "/proc/sys/vm/dirty_expire_centisecs": "200",
        "/proc/sys/fs/xfs/xfssyncd_centisecs": "100",
    }
    assert WriteBack().expire_s is None


def test_values_of_a_cut() -> None:
    evidence = ScanResult(acknowledged={"fsync": 200}, lost={"fsync": 50}, lost_files=2)
    counters = {"serial": "disk0", "flushes": 30, "fua": 4, "lied": 0, "pending": 7}
    cycle = record_of(
        on_server=evidence,
        loss_window_s=1.5,
        ledger_seconds=3.0,
        disks={"disk0": counters},
        observed={
            "disks": {"disk0": {"serial": "disk0", "flushes": 10, "fua": 1}},
            "write_back": {"expire_s": 30.0, "wake_s": 5.0, "commit_s": 30.0},
        },
    )
    values = values_of_cut(cycle)
    assert values["acknowledged"] == 200
    assert values["lost_share"] == 25
    assert (values["lost_seconds"], values["lost_files"], values["worked_seconds"]) == (1.5, 2, 3.0)
    assert (values["flushes"], values["forced"], values["at_risk"]) == (20, 3, 7)
    assert (values["expire_seconds"], values["wake_seconds"], values["commit_seconds"]) == (30, 5, 30)
    assert "outage_seconds" not in values


def test_a_cut_that_measured_nothing_has_no_values() -> None:
    assert values_of_cut(record_of(not_recovered="mount: Structure needs cleaning")) == {"recovered": 0.0}
    with pytest.raises(RigError, match="no lab"):
        values_of_cut(record_of(rig_error="no lab"))
    with pytest.raises(RigError, match="not judged"):
        values_of_cut(record_of())
    with pytest.raises(Exception, match="wsize"):
        values_of_cut(record_of(not_effective="wsize is 4096"))


def test_values_of_a_measurement() -> None:
    derived = {
        "mean_write_bytes": 4096.0,
        "writes": {"calls": 12},
        "commits": None,
        "member_reads_per_written": 0.5,
        "write_amplification": None,
    }
    repeat = Repetition(round=1, values={"write_mb_s": 2.0, "odd": 1.0}, timed_s=4.0, derived=derived)
    found = {"write_mb_s": 2.0, "timed_seconds": 4.0, "call_kib": 4.0, "calls": 12.0, "member_reads": 0.5}
    assert values_of_repetition(repeat) == found


def exploration_of(redundancy: dict[str, Any]) -> ExplorationRecord:
    """Return the record of an exploration of three states, one of them broken."""
    marks = [StateMark(name=name, policy="drop", at_s=at, checked=True, broken=name == "bad") for name, at in STATES]
    return ExplorationRecord.model_validate(
        {
            "run": "r",
            "cycle": "c",
            "title": "c",
            "started": "2026-11-22T12:00:00Z",
            "log": "write.log",
            "log_digest": "0",
            "seed": 1,
            "tear": 512,
            "possible": Possible(log10=1.0),
            "judged": 3,
            "broken": 1,
            "marks": marks,
            "redundancy": redundancy,
        }
    )


def test_values_and_sentences_of_an_exploration() -> None:
    found = exploration_of({"checked": 2, "differing": 1})
    rows = {"good": Rows(), "odd": Rows(differ=2), "bad": Rows(unchecked="a member is missing")}
    values = values_of_exploration(found, rows)
    assert (values["judged"], values["broken"], values["differing"], values["differing_rows"]) == ([3], [1], [1], [2])
    said = sentences_about_states(found, rows)
    assert [line.split(",")[0] for line in said] == ["state bad", "state odd"]
    assert "rows cannot be compared; acknowledged data is lost or damaged" in said[0]
    assert "2 rows whose parity does not match; all acknowledged data is there" in said[1]


def test_on_a_degraded_array_the_number_of_differing_rows_is_unknown() -> None:
    found = exploration_of({"checked": 0, "unchecked": {"a member is missing": 3}})
    assert "differing" not in values_of_exploration(found, {})


STATES = (("good", 1.0), ("odd", 2.0), ("bad", 3.0))


def test_an_error_that_is_no_result_of_the_action_is_raised() -> None:
    assert outcome_of(RequirementMissing("no bridge")) is Outcome.SKIP
    assert outcome_of(NotEffective("wsize")) is Outcome.FAIL
    assert outcome_of(ExceptionGroup("both", [RigError("a"), RigError("b")])) is Outcome.ERROR
    with pytest.raises(KeyError):
        outcome_of(KeyError("x"))
    inner = ExceptionGroup("inner", [RigError("b")])
    assert [str(one) for one in single_errors(ExceptionGroup("both", [RigError("a"), inner]))] == ["a", "b"]


def test_a_run_has_a_plain_name() -> None:
    assert run_word("my lesson!") == "my-lesson"
    assert run_word("…") == "lesson"


class FakeRun:
    """Stands for a run: its lab does not boot, or boots at once."""

    def __init__(self, store: Path, error: Exception | None) -> None:
        self.record = SimpleNamespace(environment=None, cells=[], cycles=[])
        self.store = SimpleNamespace(path=store)
        self.error = error
        self.discarded = 0

    @property
    def lab(self) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace()

    def discard_lab(self) -> None:
        self.discarded += 1


@contextmanager
def experiment_with(run: FakeRun, lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> Iterator[Experiment]:
    @contextmanager
    def fake_run(*_: Any) -> Iterator[FakeRun]:
        try:
            yield run
        finally:
            run.discard_lab()

    monkeypatch.setattr(module, "require_host", lambda: None)
    monkeypatch.setattr(module, "prepare", lambda _: None)
    monkeypatch.setattr(module, "Run", fake_run)
    with Experiment(lesson, run.store.path) as experiment:
        yield experiment


def test_a_lab_that_does_not_boot_is_the_result_of_every_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun(tmp_path, RigError("no lab"))
    with experiment_with(run, LESSON, monkeypatch) as experiment:
        for action in LESSON.actions.values():
            done = experiment.perform(action)
            assert (done.outcome, done.error, done.values) == (Outcome.ERROR, "no lab", [])
    assert run.discarded == 3  # after each action, and at the end of the run


def test_an_interrupted_lesson_waits_for_the_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    interrupted = threading.Event()

    class SlowRun(FakeRun):
        @property
        def lab(self) -> Any:
            interrupted.wait(30)
            events.append("booted")

        def discard_lab(self) -> None:
            events.append("discarded")

    def interrupt(_: str) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "step", interrupt)
    with pytest.raises(KeyboardInterrupt), experiment_with(SlowRun(tmp_path, None), LESSON, monkeypatch) as experiment:
        experiment.perform(LESSON.actions["early"])
    assert events == ["booted", "discarded"]


def test_a_measurement_needs_a_workload() -> None:
    measure = Measure.model_validate({"name": "m", "workload": {"tool": "fio", "preset": "fsync-heavy"}})
    assert measure.cell(HARDWARE).workload_name
