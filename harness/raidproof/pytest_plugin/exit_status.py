"""The exit status of `raidproof scenarios`: raidproof's own, from the outcomes of all scenarios."""

import pytest

from raidproof.core.errors import RaidproofError, RequestError, Status, worst
from raidproof.record.outcome import Outcome

PROPERTY = "raidproof-status"
"""Key of a property of a failed report: the name of the `Status` of the error that ended the phase of the test."""


def status_of(error: BaseException, outcome: Outcome | None) -> Status:
    """Return the status of a scenario that an error ended; ``outcome``: the outcome of the error's class, if any.

    A failed assertion is a FAIL. An exception of any other class is an ERROR, because it shows a defect of the test.
    """
    if outcome is not None:
        return Status[outcome.name]
    if isinstance(error, RequestError):
        return Status.BAD_REQUEST
    if isinstance(error, AssertionError | pytest.fail.Exception) and not isinstance(error, RaidproofError):
        return Status.FAIL
    return Status.ERROR


class ExitStatus:
    """A plugin of pytest that collects the statuses of all scenarios, also those that workers of pytest-xdist run."""

    def __init__(self) -> None:
        self._ends: list[Status] = []
        self._interrupted = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the status of one phase of a scenario; a set-up or a clean-up that passes has none."""
        if report.failed:
            named = dict(report.user_properties).get(PROPERTY)
            # Only an unexpected pass of a call has no error. A worker that ended early reports another phase.
            unnamed = Status.FAIL if report.when == "call" else Status.ERROR
            self._ends.append(unnamed if named is None else Status[str(named)])
        elif report.skipped:
            expected = hasattr(report, "wasxfail")
            self._ends.append(Status.PASS if expected else Status.REQUIREMENT_MISSING)
        elif report.when == "call":
            self._ends.append(Status.PASS)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file of scenarios that cannot be imported."""
        if report.failed:
            self._ends.append(Status.ERROR)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note an interruption by a signal. Classes derived from KeyboardInterrupt are pytest's own."""
        self._interrupted = excinfo.type is KeyboardInterrupt

    def of(self, code: int) -> Status:
        """Return the status of the session that pytest ended with the exit status ``code``."""
        if self._interrupted:
            return Status.INTERRUPTED
        if code in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return Status.BAD_REQUEST
        if code == pytest.ExitCode.INTERNAL_ERROR:
            return Status.ERROR
        ended = worst(self._ends)
        return Status.ERROR if ended is Status.PASS and code != pytest.ExitCode.OK else ended
