"""`raidproof advise` on the command line, with a search that measures nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from raidproof.cli.advise import names_of
from raidproof.cli.main import main
from raidproof.cli.reference.schema import published
from raidproof.core.errors import Status
from raidproof.plan.free_axes import Free
from raidproof.record import RunStore
from raidproof.record.advice import AdviceRecord
from raidproof.record.outcome import Outcome
from raidproof.run.advise import advisor
from tests.report.test_advice import a_record

PLAN = """
hardware = { disks = { count = 4, size = "512MiB", profile = "hdd-7200-sata" } }
axes = { chunk = ["512KiB", "64KiB"], wsize = ["64KiB", "1MiB"], export = ["sync", "async"] }
fixed = { level = 5 }
workload = { tool = "fio", preset = "fsync-heavy", runtime_s = 2 }
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "here.toml"
    path.write_text(PLAN)
    return path


def valid(name: str, document: Any) -> None:
    schema = published(built_in=True)[name].make(name, name)
    Draft202012Validator(schema).validate(document)


def test_a_dry_run_prints_what_would_be_measured(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(plan), "--minutes", "10", "--dry-run"]) == Status.PASS
    said = capsys.readouterr().out
    assert "current configuration: level=5 chunk=512KiB wsize=64KiB export=sync" in said
    assert "first round: " in said
    assert "expected" in said


def test_a_small_gain_names_what_else_can_be_varied(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(plan), "--minutes", "10", "--vary", "threads", "--dry-run"]) == Status.PASS
    said = capsys.readouterr().out
    assert "  0 % more from threads" in said
    assert "other settings to vary, as lists under [axes] in the plan: level, log" in said
    assert "no formula of the model has threads" in said


def test_a_dry_run_as_json_is_valid(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(plan), "--keep", "export,wsize", "--dry-run", "--json"]) == Status.PASS
    found = json.loads(capsys.readouterr().out)
    valid("advice-dry-run", found)
    assert [axis["name"] for axis in found["axes"]] == ["chunk"]
    assert found["first"][0] == {"name": "chunk=512KiB", "by": "current", "expected": found["first"][0]["expected"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--vary", "chnk"], "unknown axis 'chnk'"),
        (["--minutes", "0.5"], "--minutes 0.5 is too short"),
        (["--keep", "chunk,wsize,export"], "no axis is free"),
        (["--workload", "x"], "no workload 'x'"),
        (["--resume"], "has no run of plan here-advise"),
    ],
)
def test_what_cannot_be_searched_is_a_bad_request(
    plan: Path, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").mkdir()
    dry = [] if "--resume" in words else ["--dry-run"]
    assert main(["advise", str(plan), "--results", str(tmp_path / "results"), *dry, *words]) == Status.BAD_REQUEST
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.INVALID])
def test_the_answer_is_printed_and_the_exit_status_is_its_outcome(
    plan: Path, outcome: Outcome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Free, float]] = []

    def run(free: Free, _plan: Path, _results: Path, minutes: float, **_: Any) -> tuple[AdviceRecord, Path]:
        asked.append((free, minutes))
        return a_record().model_copy(update={"outcome": outcome}), Path("advice.html")

    monkeypatch.setattr(advisor, "run_advise", run)
    assert main(["advise", str(plan), "--json", "--vary", "chunk"]) == Status[outcome.name]
    streams = capsys.readouterr()
    valid("advice", json.loads(streams.out))
    assert "advice.html" in streams.err
    assert (asked[0][1], [axis.name for axis in asked[0][0].axes]) == (40.0, ["chunk"])


def test_the_newest_search_of_the_plan_is_resumed(plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    for name in ("20260101-000000-here-advise", "20260102-000000-here", "20260103-000000-other-advise"):
        (results / name).mkdir(parents=True)
        (results / name / "report.json").write_text("{}")
    seen: list[RunStore | None] = []

    def run(*_: Any, resumed: RunStore | None, **__: Any) -> tuple[AdviceRecord, Path]:
        seen.append(resumed)
        return a_record(), Path("advice.html")

    monkeypatch.setattr(advisor, "run_advise", run)
    assert main(["advise", str(plan), "--resume", "--results", str(results)]) == Status.PASS
    assert seen[0] is not None
    assert seen[0].path.name == "20260101-000000-here-advise"


def test_a_default_of_explorations_is_none_of_the_search_and_the_seed_of_the_plan_counts(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan.parent / "raidproof.toml").write_text("minutes = 1\nseed = 7\n")
    monkeypatch.setenv("RAIDPROOF_CONFIG", str(plan.parent / "raidproof.toml"))

    def found(*words: str) -> tuple[float, int]:
        assert main(["advise", str(plan), "--keep", "export", "--dry-run", "--json", *words]) == Status.PASS
        record = json.loads(capsys.readouterr().out)
        return record["budget_s"], record["seed"]

    assert found() == (2400.0, 7)
    plan.write_text(PLAN + "run = { seed = 3 }\n")
    assert found() == (2400.0, 3)
    assert found("--seed", "5", "--minutes", "20") == (1200.0, 5)


def test_names_are_separated_by_commas() -> None:
    assert names_of("chunk, wsize,") == ("chunk", "wsize")
    assert names_of(None) is None
