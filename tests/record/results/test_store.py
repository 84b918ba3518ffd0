import fcntl
import json
import os
import shutil
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.waiting import wall_clock
from raidproof.record import RunRecord, RunStore
from raidproof.record.outcome import Outcome
from raidproof.record.results import run_lock
from raidproof.record.results.index import Index
from raidproof.record.results.run_lock import locked
from raidproof.record.run import SCHEMA

RECORDED = Path(__file__).resolve().parents[2] / "data" / "run"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(Path(shutil.copytree(RECORDED, tmp_path / "run")))


def test_a_record_survives_writing_and_reading(store: RunStore) -> None:
    record = store.load()
    store.save(record)
    assert store.load() == record


def test_runs_of_the_same_second_have_different_names(tmp_path: Path) -> None:
    paths = {RunStore.create(tmp_path, "demo").path for _ in range(5)}
    assert len(paths) == 5


def test_a_file_is_there_whole_or_not_at_all(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (store.path / "report.json").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.save(RunRecord(run="other", started=wall_clock(), command=[]))
    assert (store.path / "report.json").read_bytes() == before


def rewrite(store: RunStore, **changes: object) -> None:
    path = store.path / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_another_schema_is_refused(store: RunStore) -> None:
    rewrite(store, schema_version=SCHEMA + 1)
    with pytest.raises(RequestError, match=f"schema version {SCHEMA + 1}; this version of raidproof reads {SCHEMA}"):
        store.load()


def test_another_schema_is_named_even_where_fields_are_unknown(store: RunStore) -> None:
    rewrite(store, schema_version=SCHEMA + 1, something_new=True)
    with pytest.raises(RequestError, match=f"schema version {SCHEMA + 1}"):
        store.load()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": 1}'])
def test_a_damaged_record_is_refused_in_one_line(store: RunStore, content: str) -> None:
    (store.path / "report.json").write_text(content)
    with pytest.raises(RequestError, match="not the record of a run") as refused:
        store.load()
    assert "\n" not in str(refused.value)


def test_a_run_is_found_by_name_or_path(store: RunStore) -> None:
    results = store.path.parent
    assert RunStore.find("run", results).load() == RunStore.find(store.path, Path("elsewhere")).load()


def test_a_misspelt_run_names_the_nearest(store: RunStore) -> None:
    with pytest.raises(RequestError, match="did you mean 'run'"):
        RunStore.find("runn", store.path.parent)


def runs_in(results: Path, *names: str) -> None:
    for name in names:
        RunStore(results / name).path.mkdir()
        (results / name / "report.json").write_text("{}")


def test_the_newest_run_has_a_name(tmp_path: Path) -> None:
    runs_in(tmp_path, "20260101-000000-a", "20260103-000000-b", "20260102-000000-a", "20260102-000000-a-2", "zzz")
    (tmp_path / "20260109-000000-a").mkdir()
    assert RunStore.find("latest", tmp_path).path.name == "20260103-000000-b"
    assert RunStore.find("latest:a", tmp_path).path.name == "20260102-000000-a-2"
    with pytest.raises(RequestError, match="no run of plan c"):
        RunStore.find("latest:c", tmp_path)
    with pytest.raises(RequestError, match=r"has no runs yet .*demo"):
        RunStore.find("latest", tmp_path / "no-such")


def test_a_comparison_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "x-ab").mkdir()
    (tmp_path / "x-ab" / "comparison.json").write_text("{}")
    with pytest.raises(RequestError, match="is a comparison of two runs, and not a run"):
        RunStore.find("x-ab", tmp_path)


def test_a_removed_run_is_gone_with_the_remains_of_earlier_removals(store: RunStore) -> None:
    results = store.path.parent
    (results / ".removed-run").mkdir()
    (results / ".removed-other").mkdir()
    (results / ".removed-other" / "file").touch()
    store.remove()
    assert list(results.iterdir()) == []


def test_a_removal_that_is_killed_leaves_no_half_run(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.rmtree

    def killed(path: Path, *, ignore_errors: bool = False) -> None:
        if path.exists():
            raise KeyboardInterrupt
        real(path, ignore_errors=ignore_errors)

    monkeypatch.setattr("shutil.rmtree", killed)
    results = store.path.parent
    with pytest.raises(KeyboardInterrupt):
        store.remove()
    # The directory is hidden and whole.
    assert [path.name for path in results.iterdir()] == [".removed-run"]
    with Index.open(results) as index:
        assert index.runs() == []


def test_a_run_that_is_explored_is_not_removed(store: RunStore) -> None:
    journal = store.directory("explore-x") / "states.jsonl"
    with journal.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RequestError, match="an exploration of run run is in progress"):
            store.remove()
    store.remove()
    assert not store.path.exists()


def test_a_run_in_progress_is_not_removed(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "PROBED_S", 0.0)
    with locked(store.path):
        for refused in (store.remove, store.refuse_in_use):
            with pytest.raises(RequestError, match="run run is in progress"):
                refused()
    assert store.load()


def test_every_file_of_a_run_is_written_durably(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    created = RunStore.create(store.path.parent / "new", "demo")
    assert synced == [store.path.parent, store.path.parent / "new"]
    synced.clear()
    created.write_text("report.html", "x")
    assert synced[-1] == created.path
    assert len(synced) == 2


def exploration(store: RunStore, number: int, **changes: object) -> None:
    fields = {"cycle": store.load().cycles[0].name, "judged": 9, "broken": 2, "outcome": "FAIL", "marks": [1]}
    (store.path / f"explore-{number}.json").write_text(json.dumps(fields | changes))


def test_the_explorations_in_the_directory_outweigh_an_older_record(store: RunStore) -> None:
    (cycle,) = store.load().cycles
    assert cycle.explored == []
    exploration(store, 1)
    exploration(store, 2, outcome="PASS", broken=0, loss={"operations": 7, "seconds": 1})
    exploration(store, 3, cycle="of-no-crash-test")
    (store.path / "explore-4.json").write_text("{")
    record = store.load()
    first, second = record.cycles[0].explored
    assert (first.file, first.outcome, first.broken, first.lost) == ("explore-1.json", Outcome.FAIL, 2, 0)
    assert (second.outcome, second.lost) == (Outcome.PASS, 7)
    # A resumed exploration replaces its earlier result; a result without its file stays.
    store.save(record)
    exploration(store, 1, broken=3)
    (store.path / "explore-2.json").unlink()
    assert [(one.file, one.broken) for one in store.load().cycles[0].explored] == [
        ("explore-2.json", 0),
        ("explore-1.json", 3),
    ]
