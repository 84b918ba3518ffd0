import json
import shutil
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.waiting import wall_clock
from raidproof.record import RunRecord, RunStore
from raidproof.record.run import SCHEMA

RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"


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
    with pytest.raises(
        RequestError, match=f"schema version {SCHEMA + 1}, but this version of raidproof reads {SCHEMA}"
    ):
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
