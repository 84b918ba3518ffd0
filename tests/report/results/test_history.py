"""The history of a cell on a terminal and as a page."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from raidproof.report.charts.drawing import script
from raidproof.report.results import history as report
from raidproof.report.results.history import render_history
from raidproof.verdict.change.history import CellHistory, Order, histories
from tests.report.charts.unpacking import unpacked
from tests.stored_runs import SYNC, run_with


def stepped(order: Order = Order.DATE, number: int = 12) -> list[CellHistory]:
    runs = [
        run_with(
            [100 + day % 3 - (20 if day >= number // 2 else 0), 101], day=day, kernel=f"6.{12 + 2 * day // number}"
        )
        for day in range(number)
    ]
    return histories(runs, SYNC, order)


def shown(found: list[CellHistory], width: int = 100) -> str:
    out = io.StringIO()
    report.show_histories(found, Console(file=out, width=width, force_terminal=False), Path("h.html"))
    return out.getvalue()


def test_the_terminal_draws_each_run_and_names_the_change() -> None:
    said = shown(stepped())
    assert said.count(report.TESTED) == 12
    assert len(re.findall(r"^2026-\d\d-\d\d \d\d:\d\d ", said, re.MULTILINE)) == 12
    assert re.search(r"change of level from 101 to 91\.0 1/s \(-9\.\d %, slower\) with run 2026112", said)
    assert "kernel 6.13, before 6.12; p " in said
    assert "report: h.html" in said


def test_lines_fit_a_terminal_of_80_characters() -> None:
    table = shown(stepped(), width=80).partition("\u2500\n")[2].partition("change of level from")[0]
    assert max(map(len, table.splitlines())) <= 80


def test_too_few_runs_say_how_many_are_needed() -> None:
    assert "3 tested runs: a change can be shown with at least 10" in shown(stepped(number=3))


def test_by_kernel_a_single_kernel_says_so() -> None:
    runs = [run_with([100.0 + day % 2], day=day) for day in range(12)]
    assert "all runs have the same kernel" in shown(histories(runs, SYNC, Order.KERNEL))
    assert "no change of level shown in 12 runs" in shown(histories(runs, SYNC))


def test_long_histories_show_the_last_runs_on_the_terminal() -> None:
    said = shown(histories([run_with([100.0 + day % 2], day=day) for day in range(60)], SYNC))
    assert said.count(report.TESTED) == report.MOST_ROWS
    assert "the last 40 of 60 runs" in said


def test_runs_that_are_not_tested_are_hollow() -> None:
    found = histories([run_with([100.0], day=1), run_with([90.0], day=2, limit="engine")], SYNC)
    said = shown(found)
    assert (said.count(report.TESTED), said.count(report.UNTESTED)) == (1, 1)
    assert "not tested: 1 run, whose speed this host limited (engine)" in said
    rows = unpacked(render_history(found, SYNC, Path("results")))["data"]["runs"]
    assert [row["tested"] for row in rows] == ["tested", "not tested"]


@pytest.mark.parametrize("order", list(Order))
def test_the_page_needs_nothing_else_and_its_charts_are_well_formed(order: Order) -> None:
    page = render_history(stepped(order), SYNC, Path("results"))
    assert not re.search(r"https?://|<script[^>]+src|<link|@import", page.replace(script(), ""))
    drawn = unpacked(page)["data"]
    assert len(drawn["runs"]) == 12
    assert [row["change"] == "" for row in drawn["levels"]] == [True, False]
    assert "change of level from" in page


def test_a_name_cannot_steer_the_terminal_or_the_page() -> None:
    [history] = stepped()
    odd = history.model_copy(update={"cell": "level=5\x1b[2J<script>"})
    page = render_history([odd], odd.cell, Path("results"))
    assert "\x1b" not in shown([odd]) + page
    assert "<script>" not in page.partition('<script type="application/gzip"')[0]


def test_runs_without_a_value_are_listed() -> None:
    found = histories([run_with([100.0], day=1), run_with([90.0], day=2)], SYNC)
    for point in found[0].points:
        point.median, point.values = None, []
    assert unpacked(render_history(found, SYNC, Path("results")))["data"]["runs"] == []
    assert "no tested runs" in shown(found)
    assert "not tested: 2 runs, without a value" in shown(found)
