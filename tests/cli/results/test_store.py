import csv
import io
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tarfile import open as open_tar

import pytest
from rich.console import Console

from raidproof.cli.main import main
from raidproof.cli.results.store import begin_of
from raidproof.core.errors import RequestError, Status
from raidproof.core.waiting import wall_clock
from raidproof.record import RunRecord, RunStore
from raidproof.record.results import run_lock
from raidproof.record.results.index import Index
from raidproof.record.results.run_lock import locked
from raidproof.report.results.run_list import show_list

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs: a crash test of 2026-10-01, and a plan of 2026-11-22."""
    with open_tar(DATA / "older" / "plan.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    results = tmp_path / "results"
    shutil.copytree(DATA / "run", results / "20261001-000000-demo")
    (tmp_path / "plan").rename(results / "20261122-193712-plan")
    return results


def said(capsys: pytest.CaptureFixture[str], status: Status, *words: str) -> str:
    assert main(words) == status
    printed = capsys.readouterr()
    return printed.out if status == Status.PASS else printed.err


def test_ls_lists_the_newest_run_first(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, first, second = said(capsys, Status.PASS, "ls", "--results", str(results)).splitlines()
    assert head.split()[:4] == ["run", "outcome", "provider", "kernel"]
    assert first.split()[:6] == ["20261122-193712-plan", "PASS", "uml", "6.12.101", "2", "4"]
    assert second.startswith("20261001-000000-demo")


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--plan", "plan"], 1),
        (["--kernel", "6.12"], 2),
        (["--provider", "qemu"], 0),
        (["--cell", "level=5"], 1),
        (["--outcome", "fail"], 0),
        (["--since", "2099-01-01"], 0),
        (["--limit", "1"], 1),
        (["--rebuild"], 2),
    ],
)
def test_ls_selects(results: Path, capsys: pytest.CaptureFixture[str], options: list[str], count: int) -> None:
    printed = said(capsys, Status.PASS, "ls", "--json", "--results", str(results), *options)
    assert len(json.loads(printed)) == count


def test_ls_says_how_many_it_leaves_out_and_when_there_are_none(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = said(capsys, Status.PASS, "ls", "--limit", "1", "--results", str(results))
    assert printed.endswith("the newest 1 of 2 runs; --limit 0 lists all\n")
    assert "has no such run" in said(capsys, Status.PASS, "ls", "--plan", "x", "--results", str(results))


def test_ls_escapes_what_a_terminal_interprets(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RunStore.find("latest", results)
    record = store.load()
    record.reason = "\x1b[2Jone\ntwo"
    store.save(record)
    printed = said(capsys, Status.PASS, "ls", "--results", str(results))
    assert "\x1b" not in printed
    assert printed.count("\n") == 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--outcome", "PAS"], "did you mean 'PASS'"), (["--since", "yesterday"], "write for example 2026-11-22 or 7d")],
)
def test_ls_refuses(results: Path, capsys: pytest.CaptureFixture[str], options: list[str], reason: str) -> None:
    assert reason in said(capsys, Status.BAD_REQUEST, "ls", "--results", str(results), *options)


def test_an_age_or_a_date_is_an_instant() -> None:
    assert abs(begin_of("7d") - (wall_clock() - timedelta(days=7))) < timedelta(minutes=1)
    assert begin_of("2026-11-22T10:00:00+00:00") == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert begin_of("2026-11-22").tzinfo is not None
    with pytest.raises(RequestError, match="not a date or an age"):
        begin_of("7 days")


def test_show_prints_the_report_of_the_run(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = said(capsys, Status.PASS, "show", "latest:plan", "--results", str(results))
    assert "run: PASS: fastest: level=1" in printed
    printed = said(capsys, Status.PASS, "show", "latest", "--json", "--results", str(results))
    assert RunRecord.model_validate_json(printed) == RunStore.find("latest", results).load()


def test_rm_removes_only_after_a_confirmation(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["rm", "latest", "20261001-000000-demo", "--results", str(results)]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert "is not confirmed (add --yes)" in said(capsys, Status.BAD_REQUEST, *words)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert "removed nothing" in said(capsys, Status.PASS, *words)
    assert len(list(results.glob("*/report.json"))) == 2
    monkeypatch.setattr("builtins.input", lambda _: "y")
    said(capsys, Status.PASS, *words)
    assert not any(path.is_dir() for path in results.iterdir())
    assert "has no runs yet" in said(capsys, Status.PASS, "ls", "--results", str(results))
    assert "has no runs yet (give another directory" in said(
        capsys, Status.BAD_REQUEST, "show", "latest", "--results", str(results)
    )


def test_rm_refuses_a_run_in_progress_and_removes_no_other(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "PROBED_S", 0.0)
    with locked(results / "20261001-000000-demo"):
        words = ["rm", "--yes", "latest", "20261001-000000-demo", "--results", str(results)]
        assert "20261001-000000-demo is in progress" in said(capsys, Status.BAD_REQUEST, *words)
    assert len(list(results.glob("*/report.json"))) == 2


def test_rm_removes_what_has_no_readable_record_and_nothing_else(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (results / "20261001-000000-demo" / "report.json").write_text("{")
    (results / "20261002-000000-killed").mkdir()
    (results / "20261003-000000-x-ab").mkdir()
    (results / "20261003-000000-x-ab" / "comparison.json").write_text("{}")
    names = ["20261001-000000-demo", "20261002-000000-killed", "20261003-000000-x-ab"]
    said(capsys, Status.PASS, "rm", "--yes", *names, "--results", str(results))
    (results / "notes").mkdir()
    (results / "20261004-000000-link").symlink_to(results / "notes")
    assert "has no run 'notes'" in said(capsys, Status.BAD_REQUEST, "rm", "--yes", "notes", "--results", str(results))
    linked = said(capsys, Status.BAD_REQUEST, "rm", "--yes", "20261004-000000-link", "--results", str(results))
    assert "is a symbolic link" in linked
    assert {path.name for path in results.iterdir() if path.is_dir()} == {
        "20261122-193712-plan",
        "20261004-000000-link",
        "notes",
    }


def test_export_writes_to_a_file_or_to_standard_output(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "latest", "--results", str(results)]
    printed = said(capsys, Status.PASS, *words)
    assert len(list(csv.DictReader(io.StringIO(printed)))) == 4
    file = tmp_path / "x.csv"
    assert str(file) in said(capsys, Status.PASS, *words, "--output", str(file))
    assert file.read_bytes().decode() == printed
    assert said(capsys, Status.PASS, *words, "--format", "openmetrics").endswith("# EOF\n")


def test_export_says_where_a_run_has_rows(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "20261001-000000-demo", "--results", str(results)]
    assert "try --table crash-tests" in said(capsys, Status.BAD_REQUEST, *words)
    assert "sync-export" in said(capsys, Status.PASS, *words, "--table", "crash-tests")


def test_export_names_the_package_that_is_missing(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["export", "latest", "--results", str(results), "--format"]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for form, package in (("parquet", "pyarrow"), ("openmetrics", "prometheus-client")):
        refused = said(capsys, Status.REQUIREMENT_MISSING, *words, form)
        assert re.search(rf"pip install {package}\)", refused)


def test_the_list_of_runs_imports_no_schema(results: Path) -> None:
    program = (
        "import sys; from raidproof.cli.main import main; main(sys.argv[1:]); main(sys.argv[1:]); "
        "print([name for name in ('raidproof.record.run', 'raidproof.fault') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, "ls", "--results", str(results)]
    subprocess.run([sys.executable, "-m", "raidproof", "ls", "--results", str(results)], check=True)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.endswith("[]\n")


def test_on_a_terminal_a_line_fits_its_width(results: Path) -> None:
    screen = io.StringIO()
    with Index.open(results) as index:
        show_list(index.runs(), Console(file=screen, width=70, force_terminal=True, color_system=None))
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in screen.getvalue().splitlines()]
    assert len(lines) == 3
    assert all(len(line) <= 70 for line in lines)
