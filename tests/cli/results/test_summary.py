from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.core.errors import Status
from raidproof.record import RunRecord, RunStore
from raidproof.report.html import write_comparison
from raidproof.verdict.change.comparison import compare

DATA = Path(__file__).resolve().parents[2] / "data" / "run"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore.create(tmp_path / "results", "made-up")
    store.save(RunRecord.model_validate_json((DATA / "ab-base.json").read_text()))
    return store


def test_of_a_run_by_name_and_by_file(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", store.path.name, "--results", str(store.path.parent)]) == Status.PASS
    by_name = capsys.readouterr().out
    assert "raidproof: two-base: INCONCLUSIVE" in by_name
    main(["summary", str(store.path / "report.json")])
    assert capsys.readouterr().out == by_name


def test_of_a_comparison(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = (RunRecord.model_validate_json((DATA / f"ab-{side}.json").read_text()) for side in ("base", "new"))
    (store.path / "report.json").unlink()
    write_comparison(compare(base, new, name="two-ab"), store)
    assert main(["summary", str(store.path)]) == Status.PASS
    assert "raidproof: two-ab: " in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pairs": 1}', '{"schema_version": 2}'])
def test_a_file_without_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    assert main(["summary", str(tmp_path / "x.json")]) == Status.BAD_REQUEST
    assert "has no record of a run or a comparison" in capsys.readouterr().err


def test_no_such_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", "no-such", "--results", str(tmp_path)]) == Status.BAD_REQUEST
    assert "has no run 'no-such'" in capsys.readouterr().err
