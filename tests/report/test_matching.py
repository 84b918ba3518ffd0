"""How cells of two stored runs were matched: on a terminal and on the page of the comparison."""

import io
import re

import pytest
from rich.console import Console

from raidproof.record.comparison import ComparisonRecord, Matching
from raidproof.report.charts.drawing import script
from raidproof.report.comparison import show_comparison
from raidproof.report.html import render_comparison
from raidproof.report.matching import apart
from raidproof.verdict.change.matching import compare_stored
from tests.stored_runs import run_with


@pytest.fixture
def comparison() -> ComparisonRecord:
    """Return a comparison of plans that share one cell, on different drives."""
    base, new = run_with([100, 101, 99]), run_with([100, 101, 99], day=3, kernel="6.19.3")
    for disk in new.topology["disks"]:
        disk["profile"] = "ssd-sata"
    base.cells[0].settings["level"] = base.cells[1].settings["level"] = "5"
    new.cells[1].settings["export"] = "a<b"
    new.cells[1].name = "export=a<b"
    new.cells[0].name = "export=sync x"
    return compare_stored(base, new, name="x")


def test_the_terminal_warns_and_names_what_does_not_match(comparison: ComparisonRecord) -> None:
    out = io.StringIO()
    show_comparison(comparison, Console(file=out, width=100, force_terminal=False))
    said = out.getvalue().splitlines()
    assert said[0].startswith("warning: The two runs were made one after the other, not in turn")
    assert said[0].endswith("New began 3.00 days after base.")
    why = "the other run has no cell with the same workload and the same values of the shared axes"
    assert said[1:6] == [
        "axes that only the plan of base has: level (5)",
        "cells with other names on new: export=sync = export=sync x",
        f"1 cell of base not compared, because {why}: export=async",
        f"1 cell of new not compared, because {why}: export=a<b",
        "requested value of disks.*.profile differs: base hdd-7200-sata, new ssd-sata (all cells)",
    ]


def test_the_page_has_the_same(comparison: ComparisonRecord) -> None:
    page = render_comparison(comparison)
    assert "How the cells were matched" in page
    assert "export=a&lt;b" in page
    assert "disks.*.profile" in page
    assert "measured in turn, one repetition each" not in page
    assert "The two labs run side by side" not in page
    assert not re.search(r"https?://|<script[^>]+src|<link|@import", page.replace(script(), ""))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (30, "New began 30.0 s after base."),
        (600, "New began 10.0 minutes after base."),
        (-36000, "New began 10.0 hours before base."),
        (400000, "New began 4.63 days after base."),
    ],
)
def test_the_time_between_runs(seconds: float, said: str) -> None:
    assert apart(Matching(axes=[], axes_of_base=[], axes_of_new=[], apart_s=seconds)) == said
