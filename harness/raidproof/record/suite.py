"""The record schema of an external test suite: its stack, the result of each test, and the verdict."""

from typing import Any

from pydantic import Field

from raidproof.core.layer import State
from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome, Verdict


class CaseResult(State):
    """One test of a suite that did not pass."""

    name: str
    reason: str
    """Why the test did not pass, in the suite's words."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class SuiteOutcome(State):
    """The requested tests of a suite by result; each test is in one of four lists."""

    passed: tuple[str, ...] = ()
    failed: tuple[CaseResult, ...] = ()
    skipped: tuple[CaseResult, ...] = ()
    """Tests that the suite itself skipped, because they do not apply to this stack."""
    unknown: tuple[CaseResult, ...] = ()
    """Tests that were cut off, or whose output cannot be parsed: they may have passed or failed."""

    @property
    def total(self) -> int:
        """Number of all requested tests."""
        return sum(map(len, (self.passed, self.failed, self.skipped, self.unknown)))


class SuiteRecord(Strict):
    """One run of a test suite on one stack, with its verdict."""

    name: str
    """Name of this run of the suite."""
    title: str
    suite: str
    """Name of the suite."""
    asked: dict[str, Any]
    """The requested suite, and the requested configuration of the stack by layer."""
    effective: dict[str, Any] = Field(default_factory=dict)
    """The configuration as read back from the machines, by layer."""
    client: str
    """Name of the client that ran the suite."""
    path: str | None = None
    """Path of the suite on the client; the name of the parent folder contains the digest of the copied files."""
    commands: list[list[str]] = Field(default_factory=list)
    """The command lines that the client executed."""
    seconds: float | None = None
    """Duration of the commands."""
    outcomes: SuiteOutcome = SuiteOutcome()
    """The tests by result."""
    known: list[str] = Field(default_factory=list)
    """Names of tests whose failure was expected."""
    files: dict[str, str] = Field(default_factory=dict)
    """Paths of the commands' output files, relative to the run's directory, by name of the step."""
    rig_error: str | None = None
    """The message of the rig's error that ended the suite; None without an error."""
    not_effective: str | None = None
    """How the effective configuration differs from the requested one; None if it does not differ."""
    requirement_missing: str | None = None
    """The requirement of the suite that this host or lab lacks; None if it lacks none."""
    # `raidproof judge` computes the following fields again from those above.
    verdicts: list[Verdict] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "not judged"
