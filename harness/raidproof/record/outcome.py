"""Outcomes of crash tests and runs, and the verdicts of checkers."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from raidproof.core.blame import Blame


class Outcome(StrEnum):
    """The outcome of a crash test or a run."""

    PASS = "PASS"  # noqa: S105  no password
    FAIL = "FAIL"
    """A promise was broken."""
    ERROR = "ERROR"
    """The rig failed, which proves nothing."""
    SKIP = "SKIP"
    """A requirement is missing."""
    INVALID = "INVALID"
    """A control did not behave, so that nothing in the run counts."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """The expected observation was neither made nor contradicted."""


SEVERITY = (Outcome.PASS, Outcome.SKIP, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.FAIL, Outcome.INVALID)
"""Outcomes from best to worst: an observed broken promise outweighs a failure of the rig."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst outcome; INCONCLUSIVE without any."""
    return max(outcomes, key=SEVERITY.index, default=Outcome.INCONCLUSIVE)


def and_errors(outcome: Outcome, errors: Iterable[str]) -> str:
    """Return a suffix for a reason about the parts in which the rig failed; empty if the outcome is ERROR itself."""
    said = list(errors)
    if outcome is Outcome.ERROR or not said:
        return ""
    return f"; the rig failed in {len(said):,} other {'part' if len(said) == 1 else 'parts'}: {said[0]}"


class Verdict(BaseModel):
    """The verdict of one checker."""

    model_config = ConfigDict(frozen=True)

    checker: str
    outcome: Outcome
    reason: str
    kind: str | None = None
    """The kind of operation whose promise was judged; None if the verdict is not about one kind."""
    of_the_stack: bool = False
    """Whether no disk can explain a failure here, so that a control with this failure misbehaved."""
    blame: Blame | None = None
    """The part that broke the promise, where known."""
