"""The table of the write hole on the terminal, on the page, and in the summary."""

import io

import pytest
from rich.console import Console

from raidproof.plan.members import Members
from raidproof.record.run import RunRecord
from raidproof.record.write_hole import HoleRecord
from raidproof.report.html import render
from raidproof.report.results.summary import summary_of_run
from raidproof.report.write_hole import NOTE, hole_rows, hole_table, ratio_of, show_holes

WHOLE = HoleRecord(members=Members.WHOLE, cycle="cut", judged=200, distinct=190, scrubbed=20, differing=3, sectors=8)
LOST = HoleRecord(
    members=Members.LOST,
    serial="disk1",
    cycle="cut",
    judged=200,
    distinct=180,
    refused=150,
    losing=40,
    silent=31,
    otherwise=2,
)
CANNOT = HoleRecord(members=Members.MISSING, serial="disk1", cycle="cut", why_not="no commands replace a member")


@pytest.fixture
def run(plan_run: RunRecord) -> RunRecord:
    plan_run.cells[1].holes = [WHOLE, LOST, CANNOT]
    return plan_run


def test_each_exploration_is_a_row(run: RunRecord) -> None:
    whole, lost, cannot = ([field.cell(row).text for field in hole_table([row]).fields[1:]] for row in hole_rows(run))
    ratio = whole[-2]
    assert whole == ["whole", "200", "190", "0", "0", "0", "0", "0", "3 of 20", ratio, ""]
    assert lost == ["lost disk1", "200", "180", "150", "40", "9", "31", "2", "-", ratio, ""]
    assert cannot == ["missing disk1", *["-"] * 8, ratio, "no commands replace a member"]


def test_losses_are_emphasized_and_only_they(run: RunRecord) -> None:
    marked = [[field.title for field in hole_table([row]).fields if field.cell(row).loss] for row in hole_rows(run)]
    assert marked == [[], ["broken", "silent"], []]


def test_throughput_is_relative_to_the_first_measured_cell_of_the_workload(plan_run: RunRecord) -> None:
    cells = plan_run.cells
    first = next(one for one in cells if one.median)
    assert ratio_of(first, cells) == 1
    other = next(one for one in cells if one.compared_with != first.compared_with)
    assert ratio_of(other, cells) == 1
    unmeasured = next(one for one in cells if one.median is None)
    assert ratio_of(unmeasured, cells) is None


def test_terminal_page_and_summary_have_the_table(run: RunRecord) -> None:
    drawn = io.StringIO()
    show_holes(run, Console(file=drawn, width=160))
    page, summary = render(run), summary_of_run(run)
    assert 'href="#write-hole"' in page
    for text in (drawn.getvalue(), page, summary):
        assert "lost disk1" in text
        assert "3 of 20" in text
    assert "Write hole" in summary
    assert NOTE[:40] in page


def test_a_run_without_such_explorations_has_no_table(plan_run: RunRecord) -> None:
    drawn = io.StringIO()
    show_holes(plan_run, Console(file=drawn))
    assert drawn.getvalue() == ""
    assert 'id="write-hole"' not in render(plan_run)
    assert "Write hole" not in summary_of_run(plan_run)
