import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from raidproof.record.run import RunRecord
from raidproof.report.terminal import show

ENDS = ("\n1 level=10 chunk=64KiB export=sync: ", "\npostmark: ")


def shown(record: RunRecord, width: int) -> str:
    file = io.StringIO()
    show(record, Console(file=file, width=width, highlight=False))
    return file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 120, 160])
def test_nothing_is_cut_off(plan_run: RunRecord, width: int) -> None:
    text = shown(plan_run, width)
    table = text.split("fio: write")[1].split(ENDS[0])[0]
    assert max(map(len, table.splitlines())) <= width
    assert "…" not in text
    for fact in ("112", "111-113", "96", "71.3", "65", "48.8-70.4", "902", "20,047", "20,183", "1,518"):
        assert fact in table, fact
    for word in ("median", "[MB/s]", "spread", "expected", "[%]", "lost", "limit", "network", "level=10", "remark"):
        assert word in table, word


@pytest.mark.parametrize("width", [80, 120, 160])
def test_ranked_cells_come_first_and_the_others_have_a_reason(plan_run: RunRecord, width: int) -> None:
    text = shown(plan_run, width)
    ranked, rest = text.split("Without a rank", 1)
    assert "level=0" not in ranked
    for name in ("level=1 ", "level=0 ", "level=6 "):
        assert name in rest
    reasons = {word for cell in plan_run.cells for word in (cell.why_not or "").split()}
    assert reasons <= set(rest.split())


@pytest.mark.parametrize("width", [80, 160])
def test_each_cause_and_each_flag_is_said(plan_run: RunRecord, width: int) -> None:
    text = words(shown(plan_run, width))
    for cell in plan_run.cells:
        assert f"{cell.name}: {cell.cause}" in text or not cell.cause
        assert set((cell.flag or "").split()) <= set(text.replace(";", "; ").split()) | {"state"}


def test_what_the_run_cost_and_what_could_not_be(plan_run: RunRecord) -> None:
    text = shown(plan_run, 80)
    assert (
        "\nbuilding, preparing and checking took 36% of the repetitions' wall time (130 s of 205 s were timed)\n"
        in text
    )
    assert "2 impossible cells: RAID6 needs at least 4 members: 3 are there (level=6 chunk=16KiB export=sync;" in text
    assert "a power cut tested the promises of 2 of 11 cells" in text


def test_power_cuts_are_short(plan_run: RunRecord, uncut_run: RunRecord) -> None:
    text = shown(plan_run, 120)
    cuts = text.split("Power cuts")[1]
    assert "recovery" not in cuts
    assert "3 level=5 chunk=16KiB export=async (power-cut): ERROR: gave up" in cuts
    assert "(power-cut, caches: drop): PASS" not in cuts
    text = shown(uncut_run, 120)
    assert "Power cuts" not in text
    assert "no promise was tested" in text
    assert "lost" not in text.split("fio: write")[1].split(ENDS[0])[0]


def test_a_plan_without_a_rank_or_a_cell_is_shown(plan_run: RunRecord) -> None:
    for cell in plan_run.cells:
        cell.rank = None
    assert "No cell has a rank." in shown(plan_run, 80)
    plan_run.cells, plan_run.cycles = [], []
    assert "0 cells, 0 repetitions of 33" in shown(plan_run, 80)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(st.text(), st.sampled_from([80, 120]))
def test_no_name_obeys_or_commands(plan_run: RunRecord, text: str, width: int) -> None:
    plan_run.cells[0].name = plan_run.cells[0].cause = f"[red]{text}\x1b[2J"
    said = shown(plan_run, width)
    assert "\x1b" not in said
    assert "[red]" in said
