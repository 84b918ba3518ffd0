"""The record of a peer's suite that was run on a stack."""

from typing import Any

from pydantic import Field

from harness.record.cell import Strict
from harness.verdict.outcome import Outcome, Verdict
from harness.verdict.suite import judge_suite
from harness.workload.suite.outcome import SuiteOutcome


class SuiteRecord(Strict):
    """One suite on one stack, and what its end is judged to mean."""

    name: str
    title: str
    suite: str
    asked: dict[str, Any]
    """Specification of the suite, and of every layer of the stack, by layer."""
    effective: dict[str, Any] = Field(default_factory=dict)
    """What was found on the machines, by layer."""
    client: str
    path: str | None = None
    """Of the suite in the client; the folder above carries the digest of what was copied."""
    commands: list[list[str]] = Field(default_factory=list)
    seconds: float | None = None
    outcomes: SuiteOutcome = SuiteOutcome()
    """Every test, by how it ended."""
    known: list[str] = Field(default_factory=list)
    """Tests whose failure was expected."""
    files: dict[str, str] = Field(default_factory=dict)
    """What each step printed, relative to the run's directory."""
    rig_error: str | None = None
    not_effective: str | None = None
    requirement_missing: str | None = None
    # Judged from the above.
    verdicts: list[Verdict] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"


def judge_suite_record(record: SuiteRecord) -> None:
    """Judge a record, also one that is read again."""
    if record.rig_error is not None:
        record.outcome, record.reason = Outcome.ERROR, record.rig_error
    elif record.not_effective is not None:
        record.outcome, record.reason = Outcome.FAIL, record.not_effective
    elif record.requirement_missing is not None:
        record.outcome, record.reason = Outcome.SKIP, record.requirement_missing
    else:
        verdict = judge_suite(record.outcomes, record.known)
        record.verdicts = [verdict]
        record.outcome, record.reason = verdict.outcome, verdict.reason
