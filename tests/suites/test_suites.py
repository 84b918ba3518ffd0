"""What a scenario may claim of a suite that ended."""

from pathlib import Path

import pytest

from raidproof.core.errors import (
    Inconclusive,
    ProductError,
    RaidproofError,
    RequirementMissing,
    RigError,
)
from raidproof.record.outcome import Outcome
from raidproof.record.suite import SuiteOutcome, SuiteRecord
from raidproof.verdict.suite import judge_suite_record
from raidproof_suites.suite import failed, passed, unknown
from raidproof_suites.suites import SuiteEnded


def suite_ended(outcomes: SuiteOutcome, **fields: str) -> SuiteEnded:
    record = SuiteRecord(name="a", title="fsx (a)", suite="fsx", asked={}, client="client1", outcomes=outcomes)
    record = record.model_copy(update=fields)
    judge_suite_record(record)
    return SuiteEnded(record, Path("results/run"))


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (suite_ended(failed("fsx", "bad data")), ProductError),
        (suite_ended(unknown("fsx", "cut off")), Inconclusive),
        (suite_ended(SuiteOutcome(), rig_error="no answer"), RigError),
        (suite_ended(SuiteOutcome(), requirement_missing="no fsx"), RequirementMissing),
    ],
)
def test_a_suite_that_must_pass(ended: SuiteEnded, error: type[RaidproofError]) -> None:
    with pytest.raises(error, match="see results/run"):
        ended.must_pass()


def test_a_suite_that_must_fail_has_passed_then() -> None:
    ended = suite_ended(failed("fsx", "bad data")).must_fail()
    assert (ended.record.outcome, ended.record.known) == (Outcome.PASS, ["fsx"])
    with pytest.raises(Inconclusive, match="no test failed"):
        suite_ended(passed("fsx")).must_fail()
    with pytest.raises(RigError):
        suite_ended(SuiteOutcome(), rig_error="no answer").must_fail()
