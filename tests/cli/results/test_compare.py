"""`raidproof compare`, `baseline`, `history` and `run --against`: exit statuses and what they print."""

import json
from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.core.errors import Status
from raidproof.record.comparison import ComparisonRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.verdict.change.history import CellHistory
from tests.stored_runs import SYNC, run_with, store

FAST, SLOW = (100, 101, 102, 99, 98), (80, 81, 79, 82, 78)
TINY = str(Path(__file__).resolve().parents[3] / "scenarios" / "plans" / "tiny.toml")
KNOWN = """[[known]]
cell = "*"
checker = "throughput"
kind = "slower"
reason = "more flushes are needed"
until = 9999-12-31
"""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results"
    for day, (values, kernel) in enumerate([(FAST, "6.12.101"), (SLOW, "6.19.3")]):
        store(run_with(values, day=day, kernel=kernel), results)
    return results


def names(results: Path) -> list[str]:
    return sorted(path.name for path in results.glob("*-two"))


def test_a_slower_run_fails_and_the_comparison_is_stored(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *names(results)]) == Status.FAIL
    said = capsys.readouterr().out
    assert "warning: The two runs were made one after the other" in said
    assert "comparison: FAIL: 2 cells: 2 slower on new" in said
    [folder] = results.glob("*-compare")
    stored = ComparisonRecord.model_validate_json((folder / "comparison.json").read_text())
    assert stored.matching is not None
    assert "How the cells were matched" in (folder / "comparison.html").read_text()


def test_json_is_the_record(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *names(results), "--json"]) == Status.FAIL
    assert ComparisonRecord.model_validate_json(capsys.readouterr().out).outcome is Outcome.FAIL


def test_known_differences_are_read_from_the_current_directory(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("known.toml").write_text(KNOWN)
    assert main(["compare", *names(results)]) == Status.PASS
    assert "expected: the failure occurred" in capsys.readouterr().out
    Path("other.toml").write_text(KNOWN.replace('"*"', '"level=7"'))
    assert main(["compare", *names(results), "--known", "other.toml"]) == Status.FAIL


def test_a_run_is_not_compared_with_itself(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = names(results)[0]
    assert main(["compare", name, str(results / name)]) == Status.BAD_REQUEST
    assert "both sides are the same run" in capsys.readouterr().err


def test_a_baseline_is_set_listed_used_and_removed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = names(results)
    assert main(["baseline", "set", "v1", base]) == Status.PASS
    assert main(["baseline", "list"]) == Status.PASS
    assert f"v1: {base}, since 20" in capsys.readouterr().out
    assert main(["compare", "v1", new]) == Status.FAIL
    assert main(["baseline", "list", "--json"]) == Status.PASS
    assert [one["run"] for one in json.loads(capsys.readouterr().out.rpartition("[\n")[2].join(["[", ""]))] == [base]
    assert main(["rm", base, "--yes"]) == Status.BAD_REQUEST
    assert "is kept, because it is the run of baseline 'v1'" in capsys.readouterr().err
    assert main(["compare", "v1", "latest:two"]) == Status.FAIL
    assert main(["baseline", "rm", "v1"]) == Status.PASS
    assert main(["rm", base, "--yes"]) == Status.PASS
    capsys.readouterr()
    assert main(["baseline", "list"]) == Status.PASS
    assert "no baselines" in capsys.readouterr().out
    assert main(["baseline", "rm", "v1"]) == Status.BAD_REQUEST


@pytest.mark.parametrize(
    ("outcome", "values", "status"),
    [
        (Outcome.PASS, FAST, Status.PASS),
        (Outcome.PASS, (100, 120, 90), Status.INCONCLUSIVE),
        (Outcome.PASS, SLOW, Status.FAIL),
        (Outcome.PASS, (130, 131, 132, 129, 128), Status.PASS),
        (Outcome.INVALID, (130, 131, 132, 129, 128), Status.INVALID),
    ],
)
def test_a_run_against_a_baseline_ends_with_the_worse_outcome(
    results: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, values: tuple[int, ...], status: Status
) -> None:
    assert main(["baseline", "set", "v1", names(results)[0]]) == Status.PASS

    def run_plan(*_: object, **__: object) -> tuple[RunRecord, Path]:
        record = run_with(values, day=9, kernel="6.20")
        record.outcome = outcome
        return record, store(record, results).path / "report.html"

    monkeypatch.setattr("raidproof.run.plan_runner.run_plan", run_plan)
    assert main(["run", TINY, "--against", "v1"]) == status
    [stored] = results.glob("*/comparison.json")
    assert stored.parent.name == run_with(values, day=9).run


def test_an_unknown_baseline_is_refused_before_the_run(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_plan(*_: object, **__: object) -> None:
        raise AssertionError("a plan is carried out")

    monkeypatch.setattr("raidproof.run.plan_runner.run_plan", run_plan)
    assert main(["run", TINY, "--against", "v9"]) == Status.BAD_REQUEST
    assert "has no run 'v9'" in capsys.readouterr().err


def test_history_prints_writes_a_page_and_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", SYNC, "--output", "h.html"]) == Status.PASS
    assert "2 tested runs" in capsys.readouterr().out
    assert "vega" in Path("h.html").read_text()
    assert main(["history", SYNC, "--json", "--by", "kernel", "--plan", "two"]) == Status.PASS
    [found] = json.loads(capsys.readouterr().out)
    assert len(CellHistory.model_validate(found).points) == 2


def test_history_names_what_is_wrong(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "export=snyc"]) == Status.BAD_REQUEST
    assert "did you mean 'export=sync'" in capsys.readouterr().err
    assert main(["history", SYNC, "--output", "no/h.html"]) == Status.BAD_REQUEST
    assert "the directory does not exist" in capsys.readouterr().err
