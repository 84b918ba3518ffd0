"""How things can end."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from raidproof.core.blame import Blame


class Outcome(StrEnum):
    """The end of a cycle or a run."""

    PASS = "PASS"  # noqa: S105  no password
    FAIL = "FAIL"
    """A promise was broken."""
    ERROR = "ERROR"
    """The rig failed: this proves nothing."""
    SKIP = "SKIP"
    """A requirement is missing."""
    INVALID = "INVALID"
    """A control did not behave: nothing of this campaign counts."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """What was to be seen did not show, and nothing contradicts it either."""


SEVERITY = (Outcome.PASS, Outcome.SKIP, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.FAIL, Outcome.INVALID)
"""A broken promise that was observed stays broken, whatever the rig did before or after it."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the end that speaks for all; without any there is nothing judged, and that has not passed."""
    return max(outcomes, key=SEVERITY.index, default=Outcome.INCONCLUSIVE)


def and_errors(outcome: Outcome, errors: Iterable[str]) -> str:
    """Return what a reason has to add about the parts in which the rig failed; nothing where the outcome is theirs."""
    said = list(errors)
    if outcome is Outcome.ERROR or not said:
        return ""
    return f"; the rig failed in {len(said):,} other {'part' if len(said) == 1 else 'parts'}: {said[0]}"


class Verdict(BaseModel):
    """What one checker says."""

    model_config = ConfigDict(frozen=True)

    checker: str
    outcome: Outcome
    reason: str
    kind: str | None = None
    """The kind of operation whose promise was judged; None: it is no promise of one kind."""
    of_the_stack: bool = False
    """Whether no disk explains that this did not pass: then no control has behaved."""
    blame: Blame | None = None
    """Which part broke the promise, where that is known."""
