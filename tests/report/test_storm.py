"""The report of a storm on the terminal and as a page."""

from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from raidproof.record.outcome import Outcome
from raidproof.record.storm import ShrunkCase, StormRecord
from raidproof.report.storm import charts_of, render_storm, show_storm
from tests.verdict.test_storm import row


def record() -> StormRecord:
    failed = row(3, Outcome.FAIL, "power-cut", "network-cut")
    small = row(3, Outcome.FAIL, "power-cut").drawn
    failed.repeated = True
    failed.shrunk = ShrunkCase(
        case=small, cycle="seed-3-smaller-2", tried=5, scenario="test_seed_3.py", text="def test_seed_3(): ...\n"
    )
    again = row(5, Outcome.FAIL, "power-cut").model_copy(update={"repeated": False, "cycles": ["a", "b", "c", "d"]})
    return StormRecord(
        run="run",
        plan="tiny",
        started=datetime(2026, 11, 28, tzinfo=UTC),
        command=["./raidproof", "storm"],
        digest="x",
        first=1,
        last=9,
        kinds=[],
        rows=[row(1, Outcome.PASS, "member-fails", "power-cut"), failed, row(4, Outcome.INCONCLUSIVE, "x"), again],
        outcome=Outcome.FAIL,
        reason="seeds 3, 5: it is FAIL",
    )


def test_the_terminal_shows_what_did_not_pass_and_the_scenarios() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        show_storm(record(), Path("storm.html"), console)
    said = captured.get()
    assert "def test_seed_3(): ..." in said
    assert "smallest failing schedule of 5 smaller cases: power-cut" in said
    assert "seed 5: The failure did not occur again in 3 repetitions" in said
    assert "4 seeds of 1 to 9: 2 FAIL, 1 INCONCLUSIVE, 1 PASS" in said
    assert "covered: 2 pairs of faults in sequence" in said
    assert "member-fails" not in said


def test_the_page_has_failures_coverage_and_all_seeds() -> None:
    page = render_storm(record())
    for text in ("test_seed_3.py", "def test_seed_3(): ...", "The storm is not complete", "member-fails", "Coverage"):
        assert text in page
    charts, figures = charts_of(record())
    assert [one.id for one in charts] == ["pairs", "phases"]
    counted = {(one["down"], one["across"]): one["count"] for one in figures.data["pairs"]}
    assert counted["member-fails", "power-cut"] == 1
    assert counted["power-cut", "member-fails"] == 0
