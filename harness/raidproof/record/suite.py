"""The record schema of an external test suite: what it ran on, its tests one by one, and its verdict."""

from typing import Any

from pydantic import Field

from raidproof.core.layer import State
from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome, Verdict


class CaseResult(State):
    """One test that did not pass."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class SuiteOutcome(State):
    """Every requested test, in one of four lists."""

    passed: tuple[str, ...] = ()
    failed: tuple[CaseResult, ...] = ()
    skipped: tuple[CaseResult, ...] = ()
    """Tests that do not apply here, according to the suite."""
    unknown: tuple[CaseResult, ...] = ()
    """Tests that were cut off, or whose output cannot be parsed: they may have passed or failed."""

    @property
    def total(self) -> int:
        """Number of all tests."""
        return sum(map(len, (self.passed, self.failed, self.skipped, self.unknown)))


class SuiteRecord(Strict):
    """One test suite on one stack, with its verdict."""

    name: str
    title: str
    suite: str
    asked: dict[str, Any]
    """Specification of the suite, and of every layer of the stack, by layer."""
    effective: dict[str, Any] = Field(default_factory=dict)
    """The effective configuration of the machines, by layer."""
    client: str
    path: str | None = None
    """Path of the suite on the client; the parent folder's name has the digest of the copied files."""
    commands: list[list[str]] = Field(default_factory=list)
    seconds: float | None = None
    outcomes: SuiteOutcome = SuiteOutcome()
    """Every test, by outcome."""
    known: list[str] = Field(default_factory=list)
    """Names of tests whose failure was expected."""
    files: dict[str, str] = Field(default_factory=dict)
    """Output files of the steps, relative to the run's directory."""
    rig_error: str | None = None
    not_effective: str | None = None
    requirement_missing: str | None = None
    # Judged from the above.
    verdicts: list[Verdict] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"
