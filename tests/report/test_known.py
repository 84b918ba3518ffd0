"""Known differences in every report of a run: the terminal, the page and JUnit."""

import io
from datetime import date

from junitparser import JUnitXml, TestCase
from rich.console import Console

from raidproof.record.known import KnownDifference, KnownKind, KnownRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.report.html import render
from raidproof.report.junit import render as junit
from raidproof.report.terminal import show
from raidproof.verdict.run import conclude_run
from tests.stored_runs import SYNC, run_with


def judged() -> RunRecord:
    run = run_with([10, 11])
    run.cells[0].not_effective = "wsize: requested 1048576, effective 524288"
    entries = [
        KnownDifference(cell=cell, checker=checker, kind=kind, reason="bug <7>", until=date(2030, 1, 1))
        for cell, checker, kind in (
            ("export=sync", "configuration", KnownKind.BROKEN),
            ("export=async", "configuration", KnownKind.BROKEN),
            ("level=7", "*", KnownKind.BROKEN),
            ("*", "throughput", KnownKind.SLOWER),
        )
    ]
    run.known = KnownRecord(date=date(2026, 11, 23), entries=entries)
    conclude_run(run)
    return run


def test_the_terminal_says_what_came_of_each_entry() -> None:
    out = io.StringIO()
    show(judged(), Console(file=out, width=400, force_terminal=False))
    said = [line for line in out.getvalue().splitlines() if line.startswith("known difference")]
    assert said == [
        "known difference 'export=sync', configuration, broken, until 2030-01-01: expected: the failure occurred, and "
        "the entry excuses it (failed: export=sync); reason: bug <7>",
        "known difference 'export=async', configuration, broken, until 2030-01-01: unexpected pass: the check found "
        "no failure: remove the entry (passed: export=async); reason: bug <7>",
        "known difference 'level=7', *, broken, until 2030-01-01: no such cell: the name of no cell matches; reason: "
        "bug <7>",
    ]


def test_the_page_has_a_section() -> None:
    page = render(judged())
    assert 'id="known"' in page
    assert "bug &lt;7&gt;" in page
    assert "not judged: no check that matches gave a result" in page
    assert 'id="known"' not in render(run_with([10, 11]))


def test_an_expected_failure_is_skipped_in_junit() -> None:
    run = judged()
    assert run.outcome is Outcome.PASS
    [suite] = JUnitXml.fromstring(junit(run).encode())
    case = next(one for one in suite if isinstance(one, TestCase) and one.name == SYNC)
    assert case.is_skipped
    assert case.result[0].message.startswith("expected failure: wsize: requested")
    assert suite.failures == 0
