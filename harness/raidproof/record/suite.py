"""The record of a peer's suite that was run on a stack."""

from typing import Any

from pydantic import Field

from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome, Verdict
from raidproof.workload.suite.outcome import SuiteOutcome


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
