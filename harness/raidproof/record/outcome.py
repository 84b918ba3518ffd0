"""Outcomes of crash tests and runs, and the verdicts of checkers."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from raidproof.core.blame import Blame

OUTCOME_OF_CALL, REASON_OF_CALL = "raidproof-call", "raidproof-reason"
"""Names of the properties of a test case in JUnit XML with the outcome of a scenario, and with the reason for it."""


class Outcome(StrEnum):
    """The outcome of a crash test or a run."""

    PASS = "PASS"  # noqa: S105  no password
    FAIL = "FAIL"
    """The system under test broke a promise."""
    ERROR = "ERROR"
    """The rig failed, which proves nothing about the system under test."""
    SKIP = "SKIP"
    """This host or lab lacks a requirement of the test."""
    INVALID = "INVALID"
    """A control did not show what it had to show: no PASS of the run counts."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """The observations neither confirm nor contradict the promise."""


SEVERITY = (Outcome.PASS, Outcome.SKIP, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.INVALID, Outcome.FAIL)
"""Outcomes from best to worst: an observed broken promise outweighs all failures of the rig and of controls."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst of several outcomes; INCONCLUSIVE if there are none."""
    return max(outcomes, key=SEVERITY.index, default=Outcome.INCONCLUSIVE)


def and_errors(outcome: Outcome, errors: Iterable[str]) -> str:
    """Return a suffix for the reason of a run's outcome, about the parts of the run in which the rig failed.

    ``errors``: the rig's error in each of these parts. The suffix is empty if the outcome is ERROR itself.
    """
    messages = list(errors)
    if outcome is Outcome.ERROR or not messages:
        return ""
    parts = "part" if len(messages) == 1 else "parts"
    return f"; the rig failed in {len(messages):,} other {parts} of the run: {messages[0]}"


class Verdict(BaseModel):
    """The verdict of one check of a crash test: of one promise, of the file system, of the kernel logs, and so on."""

    model_config = ConfigDict(frozen=True)

    checker: str
    """Name of the check."""
    outcome: Outcome
    reason: str
    kind: str | None = None
    """The kind of operation whose promise was judged; None if the verdict is not about one kind."""
    of_the_stack: bool = False
    """Whether no defect of a disk can explain this failure: then a control with lying disks fails, too."""
    blame: Blame | None = None
    """The part of the system that broke the promise; None if it is not known, or if no promise was broken."""
