"""The verdict on a suite: what failed unexpectedly, what nobody knows, and what did not run."""

import pytest

from raidproof.record.outcome import Outcome
from raidproof.record.suite import CaseResult, SuiteOutcome
from raidproof.verdict.suite import judge_suite

CASE = (CaseResult(name="a", reason="why"),)


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (SuiteOutcome(), Outcome.INCONCLUSIVE),
        (SuiteOutcome(passed=("a",)), Outcome.PASS),
        (SuiteOutcome(failed=CASE), Outcome.FAIL),
        (SuiteOutcome(skipped=CASE), Outcome.SKIP),
        (SuiteOutcome(unknown=CASE), Outcome.INCONCLUSIVE),
    ],
)
def test_verdict(outcome: SuiteOutcome, end: Outcome) -> None:
    assert judge_suite(outcome).outcome is end


def test_verdict_on_what_is_known() -> None:
    outcome = SuiteOutcome(passed=("b",), failed=CASE)
    assert judge_suite(outcome, known=("a",)).outcome is Outcome.PASS
    assert "as expected: a" in judge_suite(outcome, known=("a",)).reason
