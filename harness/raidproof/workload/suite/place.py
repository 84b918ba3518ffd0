"""The place where a suite runs, one command of it, and the outcomes of its tests."""

from collections.abc import Iterable

from pydantic import Field

from raidproof.core.layer import State


class CaseResult(State):
    """One test that did not pass."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class SuiteOutcome(State):
    """Every test that was asked for, in one of four lists."""

    passed: tuple[str, ...] = ()
    failed: tuple[CaseResult, ...] = ()
    skipped: tuple[CaseResult, ...] = ()
    """The suite itself said that the test does not apply here."""
    unknown: tuple[CaseResult, ...] = ()
    """Cut off, or said what cannot be read: it may have passed or failed."""

    @property
    def total(self) -> int:
        """Tests of any end."""
        return sum(map(len, (self.passed, self.failed, self.skipped, self.unknown)))


def passed(name: str) -> SuiteOutcome:
    """Return the outcome of one test that passed."""
    return SuiteOutcome(passed=(name,))


def failed(name: str, reason: str) -> SuiteOutcome:
    """Return the outcome of one test that failed."""
    return SuiteOutcome(failed=(CaseResult(name=name, reason=reason),))


def skipped(name: str, reason: str) -> SuiteOutcome:
    """Return the outcome of one test that does not apply."""
    return SuiteOutcome(skipped=(CaseResult(name=name, reason=reason),))


def unknown(name: str, reason: str) -> SuiteOutcome:
    """Return the outcome of one test of which nobody knows how it ended."""
    return SuiteOutcome(unknown=(CaseResult(name=name, reason=reason),))


def joined(outcomes: Iterable[SuiteOutcome]) -> SuiteOutcome:
    """Return all tests of several outcomes."""
    every = list(outcomes)
    return SuiteOutcome(
        passed=tuple(name for one in every for name in one.passed),
        failed=tuple(case for one in every for case in one.failed),
        skipped=tuple(case for one in every for case in one.skipped),
        unknown=tuple(case for one in every for case in one.unknown),
    )


def tail(text: str, length: int = 300) -> str:
    """Return the end of what a tool said, on one line."""
    words = " ".join(text.split())
    return words[-length:] or "it said nothing"


class SuitePlace(State):
    """What a suite is told of the stack."""

    path: str
    """The suite's program or folder in the machine."""
    directory: str
    """An empty directory of its own on the mount."""
    mount: str
    """The mount point."""
    server: str
    """The server's address."""
    export: str
    """The path that the server exports."""
    vers: str
    """The mount's NFS version, as 3 or 4.2."""


class SuiteStep(State):
    """One command of a suite, whose end is judged by itself."""

    name: str
    argv: tuple[str, ...]
    directory: str
    """Where it runs."""
    environment: dict[str, str] = Field(default_factory=dict)


def step_command(step: SuiteStep) -> list[str]:
    """Return the command in its directory and environment."""
    settings = [f"{name}={value}" for name, value in step.environment.items()]
    return ["env", f"--chdir={step.directory}", *settings, *step.argv]
