"""The runs of a directory: all that can be read, in order of time."""

from pathlib import Path

from raidproof.record.stored_runs import stored_runs
from tests.stored_runs import run_with, store


def test_runs_are_read_in_order_of_time(tmp_path: Path) -> None:
    for day in (3, 1, 2):
        store(run_with([1.0], day=day), tmp_path)
    started = [run.started for run in stored_runs(tmp_path)]
    assert len(started) == 3
    assert started == sorted(started)


def test_only_runs_of_one_plan(tmp_path: Path) -> None:
    store(run_with([1.0]), tmp_path)
    store(run_with([1.0], day=1, plan="other"), tmp_path)
    assert [run.run for run in stored_runs(tmp_path, "other")] == [run_with([1.0], day=1, plan="other").run]


def test_a_run_that_cannot_be_read_and_one_without_a_plan_are_left_out(tmp_path: Path) -> None:
    broken, other = store(run_with([1.0]), tmp_path), run_with([1.0], day=1)
    broken.write_text("report.json", '{"schema_version": 1}')
    other.plan = None
    store(other, tmp_path)
    assert list(stored_runs(tmp_path)) == []


def test_a_directory_that_does_not_exist_has_no_runs(tmp_path: Path) -> None:
    assert list(stored_runs(tmp_path / "none")) == []
