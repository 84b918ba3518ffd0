import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from raidproof.record.cell import Explored
from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.record.sensitivity import Defect, Sensitivity
from raidproof.report.columns import columns
from raidproof.report.terminal import show

REPORT = Path("results/20260504-123000-demo/report.html")


def shown(record: RunRecord, width: int, *, terminal: bool = False) -> str:
    file = io.StringIO()
    show(record, Console(file=file, width=width, force_terminal=terminal, highlight=False), REPORT)
    return file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


def row(text: str, place: int) -> list[str]:
    return next(line for line in text.splitlines() if line.split()[:1] == [str(place)]).split()


@pytest.mark.parametrize("width", [80, 160, 220])
def test_every_column_is_there_and_nothing_is_cut_off(run: RunRecord, width: int) -> None:
    text = shown(run, width)
    for column in columns():
        for word in column.title.split():
            assert word in text, column.title
        if column.unit:
            assert f"[{column.unit}]" in text
    assert "…" not in text
    for value in ("128 (n=1)", "5,870", "20,183", "136", "20,047", "2.95", "2.31", "0.412", "0.187", "1.26"):
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


FLUSHES = Sensitivity(defect=Defect.FLUSH_OF_A_MEMBER, instances=963, in_some_state=16, in_this_cut=0)


def test_a_pass_says_what_it_would_have_noticed(run: RunRecord) -> None:
    for one in run.cycles[:2]:
        one.sensitivity = [FLUSHES, FLUSHES.model_copy(update={"defect": Defect.FUA, "instances": 0})]
    text = words(shown(run, 160))
    said = "1 sensitivity: a missing flush of one member would have lost acknowledged data in 16 of 963 cases"
    assert f"{said} in some crash state, in 0 in this power cut" in text
    assert "2 sensitivity" not in text, "the second crash test loses data"
    assert "FUA" not in text
    run.cycles[0].sensitivity = [FLUSHES.model_copy(update={"in_this_cut": None})]
    assert "in this power cut" not in shown(run, 160)


def test_crash_states_that_could_not_be_checked_are_named(run: RunRecord) -> None:
    assert "not checked" not in shown(run, 160)
    run.cycles[0].no_states = "provider hosts: crash states need the disk engine"
    text = words(shown(run, 160))
    assert f"1 {run.cycles[0].title}, crash states: not checked: provider hosts: crash states need" in text


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_loss_stands_beside_the_verdict_in_one_table(run: RunRecord, width: int) -> None:
    table = shown(run, width).split("\n\n")[0]
    beside = [" ".join(line.split()) for line in table.splitlines() if "PASS" in line]
    assert [line.split("PASS ")[1].split(":")[0] for line in beside] == ["SAFE", *["LOSES DATA"] * 2, "NOT SHOWN"]
    assert (
        "LOSES DATA: 20,047 of 20,183 acknowledged operations lost, the earliest 2.9 s before the fault"
        in words(table)
        or width == 80
    )
    for word in ("20,047", "20,183", "2.9 s", "loses no unwritten data"):
        assert word in words(table), word


def test_the_end_names_what_is_safe_and_what_is_not(run: RunRecord) -> None:
    text = shown(run, 80)
    assert "\nsafety: SAFE: sync export, honest disks; LOSES DATA: async export, honest disks\nrun: PASS: " in text


def test_what_makes_one_row_different_is_said_of_it(run: RunRecord) -> None:
    run.cycles[1].effective["caveats"] = [*run.cycles[1].effective["caveats"], "dirty_expire is 1 s, not 30 s"]
    text = shown(run, 80)
    assert "\nonly in row 2: dirty_expire is 1 s, not 30 s\n" in text
    assert "grace and lease" not in text


GREEN_PASS, PLAIN_PASS = "\x1b[1;32mPASS", "\x1b[1mPASS"


def test_green_is_never_the_pass_of_what_loses_data(run: RunRecord) -> None:
    table, *_, end = shown(run, 160, terminal=True).split("\n\n")
    rows = [line for line in table.splitlines() if "PASS" in line]
    assert [GREEN_PASS in line for line in rows] == [True, False, False, True]
    assert all(PLAIN_PASS in line for line in rows[1:3])
    assert f"run: {PLAIN_PASS}" in end
    run.cycles.pop(1)
    assert f"run: {GREEN_PASS}" in shown(run, 160, terminal=True)


def test_nothing_of_an_invalid_run_is_called_safe(invalid_run: RunRecord) -> None:
    text = shown(invalid_run, 160)
    assert "SAFE" not in text
    # A loss that was found remains found.
    assert "LOSES DATA: async export" in text
    assert "NOT SHOWN: sync export, lying disks did not show what it had to show" in text


def test_what_was_measured_more_than_once_has_a_range(run: RunRecord) -> None:
    each = [128.0, 61.9, 215.5]
    run.cycles[0].throughput = run.cycles[0].throughput.model_copy(update={"sequential_write_each": each})
    assert "128 (61.9-216, n=3)" in shown(run, 80)


def test_unknown_is_a_dash_and_no_zero(broken_run: RunRecord) -> None:
    figures = row(shown(broken_run, 240).split("\n\n")[1], 1)
    assert figures == ["1", *["-"] * 14]


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


def test_an_exploration_has_a_line_of_its_own_and_costs_safe(run: RunRecord) -> None:
    found = Explored(file="explore-a.json", judged=300, broken=0, outcome=Outcome.PASS, reason="every promise held")
    run.cycles[0].explored = [found]
    text = words(shown(run, 160))
    assert "1 sync export, honest disks, crash states: PASS: every promise held" in text
    assert "300 crash states, none broken" in text
    run.cycles[0].explored = [found.model_copy(update={"outcome": Outcome.FAIL, "broken": 5, "reason": "5 of 300"})]
    text = words(shown(run, 160))
    assert "1 sync export, honest disks, crash states: FAIL: 5 of 300" in text
    assert "FAIL: exploration of crash states: 5 of 300" in text
    assert "safety: LOSES DATA: sync export, honest disks, async export, honest disks" in text
