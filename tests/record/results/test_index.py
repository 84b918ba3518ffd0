import json
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from tarfile import open as open_tar
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.store import compared, round_of_writers
from raidproof.core.waiting import pause
from raidproof.record import RunRecord, RunStore
from raidproof.record.outcome import Outcome
from raidproof.record.results.entry import Kind, RunFilter, State
from raidproof.record.results.index import GRANULARITY_S, INDEX, Index, update
from raidproof.record.results.names import begun_at
from raidproof.record.results.run_lock import locked
from raidproof.record.run import SCHEMA

DATA = Path(__file__).resolve().parents[2] / "data"
BEGUN = datetime(2026, 5, 1, 12, tzinfo=UTC)


def unpack(name: str, results: Path) -> None:
    with open_tar(DATA / "older" / f"{name}.tar.xz") as tar:
        tar.extractall(results, filter="data")


@pytest.fixture(scope="session")
def _recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that were recorded: a demo, a plan with power cuts, a comparison, an exploration."""
    results = tmp_path_factory.mktemp("recorded")
    shutil.copytree(DATA / "run", results / "20261001-000000-demo")
    for name in ("plan", "ab", "explore"):
        unpack(name, results)
    for folder in [*(results / "ab").iterdir()]:
        folder.rename(results / folder.name)
    (results / "ab").rmdir()
    return results


@pytest.fixture
def results(_recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(_recorded, tmp_path / "results"))


def made(results: Path, name: str, outcome: Outcome | None = Outcome.PASS) -> RunStore:
    store = RunStore(results / name)
    store.path.mkdir(parents=True)
    record = RunRecord(run=name, started=begun_at(name) or BEGUN, command=[])
    if outcome is not None:
        record.ended, record.outcome, record.reason = record.started, outcome, "as said"
    store.save(record)
    return store


def folders(index: Index, **wanted: object) -> set[str]:
    return {one.folder for one in index.runs(RunFilter.model_validate(wanted))}


def test_the_index_has_what_the_records_have(results: Path) -> None:
    with Index.open(results) as index:
        listed = {run.folder: run for run in index.runs()}
        plan, demo, explored = listed["plan"], listed["20261001-000000-demo"], listed["explore"]
        record = RunStore(results / "plan").load()
        assert (plan.kind, plan.state, plan.plan, plan.provider) == (Kind.RUN, State.ENDED, "plan", "uml")
        assert (plan.outcome, plan.reason) == (record.outcome, record.reason)
        assert (plan.started, plan.ended) == (record.started, record.ended)
        assert (plan.kernel_requested, plan.kernel_effective) == (None, "6.12.101")
        assert plan.path == str(results / "plan")
        assert [(one.name, one.values, one.unit, one.compared_with) for one in index.cells("plan")] == [
            (cell.name, cell.measured, cell.unit, cell.compared_with) for cell in record.cells
        ]
        assert [(one.name, one.outcome, one.lost) for one in index.crash_tests("plan")] == [
            (one.name, one.outcome, one.on_server.lost_total if one.on_server else None) for one in record.cycles
        ]
        assert demo.plan is None
        assert (plan.cells, plan.crash_tests, demo.crash_tests) == (2, 4, 1)
        (exploration,) = index.explorations("explore")
        stored = json.loads((results / "explore" / exploration.file).read_text())
        assert (exploration.judged, exploration.broken) == (stored["judged"], stored["broken"])
        assert exploration.outcome == stored["outcome"]
        assert explored.state is State.ENDED
        comparison = next(run for run in listed.values() if run.kind is Kind.COMPARISON)
        assert comparison.folder.endswith("-ab")
        assert comparison.outcome is not None


def test_conditions_select_runs(results: Path) -> None:
    with Index.open(results) as index:
        assert "plan" in folders(index, plan="plan")
        assert folders(index, cell="level=5") >= {"plan"}
        assert "20261001-000000-demo" not in folders(index, cell="level=5")
        assert folders(index, cell="level=7") == set()
        assert folders(index, kernel="6.12.101", plan="plan") == {"plan"}
        assert folders(index, kernel="7.99") == set()
        assert folders(index, provider="qemu") == set()
        failed = {run.folder for run in index.runs() if run.outcome is Outcome.FAIL}
        assert folders(index, outcome=Outcome.FAIL) == failed
        newest = max(run.started for run in index.runs() if run.started is not None)
        assert len(folders(index, since=newest)) == 1
        assert index.count(RunFilter(since=newest)) == 1
        assert index.count() == len(folders(index))
        assert [run.started for run in index.runs(limit=1)] == [newest]


def test_a_changed_record_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    stores = [made(tmp_path, f"20260101-00000{number}-x") for number in range(3)]
    pause(2 * GRANULARITY_S)
    Index.open(tmp_path).close()
    with Index.open(tmp_path) as index:
        assert index.reconcile() == 0
        record = stores[1].load()
        record.outcome = Outcome.FAIL
        stores[1].save(record)
        assert index.reconcile() == 1
        assert folders(index, outcome=Outcome.FAIL) == {stores[1].path.name}
        stores[2].remove()
        index.reconcile()
        assert folders(index) == {one.path.name for one in stores[:2]}


def test_a_record_that_is_edited_in_place_is_read_again(tmp_path: Path) -> None:
    store = made(tmp_path, "20260101-000000-x")
    Index.open(tmp_path).close()
    path = store.path / "report.json"
    with path.open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write(text.replace('"as said"', '"changed"'))
    with Index.open(tmp_path) as index:
        assert index.runs()[0].reason == "changed"


def test_an_exploration_that_is_added_is_found(results: Path) -> None:
    text = (results / "explore" / "explore-lying.json").read_text()
    Index.open(results).close()
    RunStore(results / "plan").write_text("explore-cut-000.json", text)
    RunStore(results / "plan").write_text("explore-cut-001.json", "{")
    with Index.open(results) as index:
        good, bad = index.explorations("plan")
        assert good.judged > 0
        assert (bad.file, bad.outcome) == ("explore-cut-001.json", None)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not the record of a run"),
        (f'{{"schema_version": {SCHEMA + 1}}}', f"schema version {SCHEMA + 1}"),
        ("\xff", ""),
    ],
)
def test_a_record_that_cannot_be_read_is_listed_and_hides_no_other(results: Path, content: str, reason: str) -> None:
    (results / "bad").mkdir()
    (results / "bad" / "report.json").write_bytes(content.encode("latin-1"))
    with Index.open(results) as index:
        bad = next(run for run in index.runs() if run.folder == "bad")
        assert bad.state is State.UNREADABLE
        assert bad.outcome is None
        assert reason in bad.reason
        assert "plan" in folders(index)


def test_a_run_without_an_end_is_running_while_its_process_runs(tmp_path: Path) -> None:
    store = made(tmp_path, "20260101-000000-x", None)
    (tmp_path / "20260102-000000-y").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / ".removed-20260102-000000-z").mkdir()
    with Index.open(tmp_path) as index:
        with locked(store.path):
            assert [run.state for run in index.runs()] == [State.UNFINISHED, State.RUNNING]
        assert [run.state for run in index.runs()] == [State.UNFINISHED, State.UNFINISHED]
        assert index.runs()[0].started == datetime(2026, 1, 2, tzinfo=UTC)
        assert all(run.outcome is None for run in index.runs())


def test_the_end_of_a_run_updates_an_index_and_creates_none(tmp_path: Path) -> None:
    store = made(tmp_path, "20260101-000000-x")
    update(store.path)
    assert not (tmp_path / INDEX).exists()
    Index.open(tmp_path).close()
    update(made(tmp_path, "20260102-000000-x").path)
    with sqlite3.connect(tmp_path / INDEX) as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (2,)


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_index_is_created_anew(results: Path, damage: bytes) -> None:
    with Index.open(results) as index:
        before = index.runs()
    (results / INDEX).write_bytes(damage)
    update(results / "plan")
    with Index.open(results) as index:
        assert index.runs() == before


def test_damage_inside_the_index_is_found(results: Path) -> None:
    with Index.open(results) as index:
        before = index.runs()
    size = (results / INDEX).stat().st_size
    with (results / INDEX).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with Index.open(results) as index:
        assert index.runs() == before


def test_an_index_of_another_version_is_created_anew(tmp_path: Path) -> None:
    made(tmp_path, "20260101-000000-x")
    Index.open(tmp_path).close()
    with sqlite3.connect(tmp_path / INDEX) as database:
        database.execute("ALTER TABLE runs ADD COLUMN other")
        database.execute("PRAGMA user_version = 99")
    with Index.open(tmp_path) as index:
        assert len(index.runs()) == 1


def test_a_rebuild_reads_all_records(tmp_path: Path) -> None:
    made(tmp_path, "20260101-000000-x")
    Index.open(tmp_path).close()
    with sqlite3.connect(tmp_path / INDEX) as database:
        database.execute("UPDATE runs SET reason = 'stale'")
    with Index.open(tmp_path) as index:
        assert index.runs()[0].reason == "stale"
    with Index.open(tmp_path, rebuild=True) as index:
        assert index.runs()[0].reason == "as said"


def test_a_directory_that_does_not_exist_has_no_runs(tmp_path: Path) -> None:
    with Index.open(tmp_path / "no-such") as index:
        assert index.runs() == []
    assert not (tmp_path / "no-such").exists()


def test_on_a_read_only_file_system_the_index_is_in_memory(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("raidproof.record.results.index.os.open", refuse)
    with Index.open(results) as index:
        assert "plan" in folders(index)
    assert not (results / INDEX).exists()


@given(steps=st.lists(st.tuples(st.sampled_from("saufr"), st.integers(0, 3)), max_size=12))
@settings(max_examples=25)
def test_after_any_changes_the_index_agrees_with_the_directories(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    results = tmp_path_factory.mktemp("results")
    names = [f"2026010{number + 1}-000000-x" for number in range(4)]
    Index.open(results).close()
    for place, (what, number) in enumerate(steps):
        store = RunStore(results / names[number])
        if what == "s" and not store.path.exists():
            made(results, store.path.name, None)
        if what == "a" and (store.path / "report.json").exists():
            store.save(RunRecord(run=f"changed {place}", started=BEGUN, ended=BEGUN, command=[], reason=str(place)))
        if what == "u" and store.path.exists():
            update(store.path)
        if what == "f":
            shutil.rmtree(store.path, ignore_errors=True)
        if what == "r":
            Index.open(results).close()
    assert compared(results, set()).problems == []


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_writer_loses_nothing_and_the_index_agrees(tmp_path: Path, seed: int) -> None:
    found = round_of_writers(tmp_path, seed, runs=8)
    assert found.problems == []
    assert found.found >= found.announced >= 16


def test_a_run_that_is_lost_is_found(tmp_path: Path) -> None:
    store = made(tmp_path, "20260101-000000-x")
    made(tmp_path, "20260102-000000-y", None)
    Index.open(tmp_path).close()
    with sqlite3.connect(tmp_path / INDEX) as database:
        database.execute("UPDATE runs SET reason = 'other' WHERE folder = ?", [store.path.name])
    problems = compared(tmp_path, {"20260102-000000-y", "20260103-000000-z"}).problems
    assert any("stored, and now missing" in one for one in problems)
    assert any("the index differs from the directory" in one for one in problems)
    assert any("20260102-000000-y: unfinished" in one for one in problems)


def test_on_a_full_disk_the_index_is_in_memory(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def full(path: Path | str, **options: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(path, **options)
        if path != ":memory:":
            database.execute("PRAGMA max_page_count = 9")
        return database

    monkeypatch.setattr("sqlite3.connect", full)
    with Index.open(results) as index:
        assert "plan" in folders(index)
    made(results, "20270101-000000-x")
    update(results / "20270101-000000-x")
    with Index.open(results) as index:
        assert "20270101-000000-x" in folders(index)
