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
    """Return the outcome of one test whose result is unknown."""
    return SuiteOutcome(unknown=(CaseResult(name=name, reason=reason),))


def joined(outcomes: Iterable[SuiteOutcome]) -> SuiteOutcome:
    """Return the tests of several outcomes as one outcome."""
    every = list(outcomes)
    return SuiteOutcome(
        passed=tuple(name for one in every for name in one.passed),
        failed=tuple(case for one in every for case in one.failed),
        skipped=tuple(case for one in every for case in one.skipped),
        unknown=tuple(case for one in every for case in one.unknown),
    )


def tail(text: str, length: int = 300) -> str:
    """Return the last ``length`` characters of a tool's output, on one line."""
    words = " ".join(text.split())
    return words[-length:] or "no output"


class SuitePlace(State):
    """The parts of the stack that a suite needs to know."""

    path: str
    """The suite's program or folder in the machine."""
    directory: str
    """An empty directory on the mount, for this suite only."""
    mount: str
    """The mount point."""
    server: str
    """The server's address."""
    export: str
    """The path that the server exports."""
    vers: str
    """The mount's NFS version, as 3 or 4.2."""


class SuiteStep(State):
    """One command of a suite; its result is judged separately."""

    name: str
    argv: tuple[str, ...]
    directory: str
    """Working directory of the command."""
    environment: dict[str, str] = Field(default_factory=dict)


def step_command(step: SuiteStep) -> list[str]:
    """Return the command in its directory and environment."""
    settings = [f"{name}={value}" for name, value in step.environment.items()]
    return ["env", f"--chdir={step.directory}", *settings, *step.argv]
