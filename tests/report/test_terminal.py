import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from harness.record.run import RunRecord
from harness.report import show
from harness.report.columns import COLUMNS

REPORT = Path("results/20260504-123000-demo/report.html")


def shown(record: RunRecord, width: int, *, terminal: bool = False) -> str:
    file = io.StringIO()
    show(record, Console(file=file, width=width, force_terminal=terminal, highlight=False), REPORT)
    return file.getvalue()


def row(text: str, place: int) -> list[str]:
    return next(line for line in text.splitlines() if line.split()[:1] == [str(place)]).split()


@pytest.mark.parametrize("width", [80, 160, 220])
def test_every_column_is_there_and_nothing_is_cut_off(run: RunRecord, width: int) -> None:
    text = shown(run, width)
    for column in COLUMNS:
        for word in column.title.split():
            assert word in text, column.title
        if column.unit:
            assert f"[{column.unit}]" in text
    assert "…" not in text
    for value in ("128", "5,870", "20,183", "136", "20,047", "2.95", "2.31", "0.412", "0.187", "1.26"):
        assert value in text
    assert "control behaved" in text
    tables = text.split("\n1 sync export, honest disks (")[0]
    assert max(map(len, tables.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 160])
def test_reason_blame_files_bytes_end_and_place(run: RunRecord, width: int) -> None:
    text = shown(run, width)
    assert "the async export: the server answers before its disks have the data" in text
    assert "17 whole files and 77.8 MiB lost" in text
    assert "blamed on the disks: disk0, disk1" in text
    assert f"run: PASS: {run.reason}\nreport: {REPORT}\n" in text


def test_blame_is_said_where_the_reason_does_not(run: RunRecord) -> None:
    run.cycles[1].reason = "work was lost"
    assert "work was lost; blame: the async export" in shown(run, 160)


def test_unknown_is_a_dash_and_no_zero(broken_run: RunRecord) -> None:
    first = row(shown(broken_run, 240), 1)
    assert first.count("-") == 10
    assert "0" not in first


def test_an_error_and_an_invalid_run_are_shown_as_such(broken_run: RunRecord, invalid_run: RunRecord) -> None:
    assert "a server that does not boot (power-cut): ERROR: gave up waiting" in shown(broken_run, 80)
    text = shown(invalid_run, 80)
    assert "control misbehaved" in " ".join(text.split())
    assert "run: INVALID: sync export, lying disks: control: had to lose" in text
    assert "honest disks (power-cut, caches: drop): PASS (does not count)" in text


def test_colour_only_on_a_terminal(run: RunRecord) -> None:
    assert "\x1b[" not in shown(run, 80)
    assert "\x1b[" in shown(run, 80, terminal=True)


def test_a_run_without_a_cycle_is_shown(run: RunRecord) -> None:
    assert "run: INCONCLUSIVE: not judged" in shown(RunRecord(run="x", started=run.started, command=[]), 80)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_no_title_obeys_or_commands(run: RunRecord, title: str) -> None:
    run.cycles[0].title = f"[red]{title}\x1b[2J"
    text = shown(run, 160)
    assert "\x1b" not in text
    assert "[red]" in text
