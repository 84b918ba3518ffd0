from io import StringIO

from rich.console import Console

from raidproof.record import RunRecord
from raidproof.record.suite import CaseResult, SuiteOutcome, SuiteRecord
from raidproof.report.html import render
from raidproof.report.terminal import Case, cases, counts, show
from raidproof.verdict.suite import judge_suite_record


def suite(**changes: object) -> SuiteRecord:
    outcomes = SuiteOutcome(
        passed=("basic/test1", "basic/test2"),
        failed=(CaseResult(name="lock/tlock", reason="lock was <not> released"),),
        skipped=(CaseResult(name="special/freesp", reason="does not apply"),),
    )
    made = SuiteRecord.model_validate(
        {
            "name": "cthon",
            "title": "cthon (a)",
            "suite": "cthon",
            "asked": {},
            "client": "client1",
            "seconds": 32.0,
            "outcomes": outcomes,
            **changes,
        }
    )
    judge_suite_record(made)
    return made


def test_what_did_not_pass_is_told() -> None:
    assert counts(suite()) == "2 passed, 1 failed, 1 skipped"
    assert next(cases(suite())) == Case("failed", "lock/tlock", "lock was <not> released")
    assert next(cases(suite(known=["lock/tlock"]))).end == "failed, as expected"
    assert counts(suite(outcomes=SuiteOutcome())) == "no test ran"


def test_the_page_and_the_terminal_have_it(run: RunRecord) -> None:
    run.suites = [suite()]
    page = render(run)
    assert "lock was &lt;not&gt; released" in page
    assert 'href="#suites"' in page
    said = StringIO()
    show(run, Console(file=said, width=200))
    shown = " ".join(said.getvalue().split())
    assert (
        "cthon (a) FAIL 2 passed, 1 failed, 1 skipped 32.0 2 of 4 tests passed; failed: lock/tlock: lock was <not>"
        in shown
    )
