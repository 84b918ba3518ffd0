"""Whether a configuration keeps what it acknowledges: another fact than whether the run that tested it is valid.

An export that is ``async`` may pass, because its loss is by design, and yet lose data. A reader needs both.
"""

from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from raidproof.record.evidence import Evidence
from raidproof.record.outcome import Outcome

MEMORY_LOST = ("power-cut", "kernel-panic")
"""Faults that take what the server had in its memory."""
SAYS_NOTHING = {
    Outcome.ERROR: "the rig failed",
    Outcome.SKIP: "a requirement is missing",
    Outcome.INVALID: "a control misbehaved",
}
"""Ends of a cycle from which nothing follows for its configuration."""


class SafetyWord(StrEnum):
    """The answer for one configuration."""

    SAFE = "SAFE"
    """The server lost its memory, and every acknowledged operation was there afterwards."""
    LOSES_DATA = "LOSES DATA"
    """Something acknowledged was not there afterwards, or was damaged; whether by design makes no difference."""
    NOT_SHOWN = "NOT SHOWN"
    """The run cannot say."""


class Safety(BaseModel):
    """The answer for one configuration, with the size of its loss."""

    model_config = ConfigDict(frozen=True)

    word: SafetyWord
    lost: int | None = None
    """Acknowledged operations that are not there; None where they cannot be counted."""
    acknowledged: int | None = None
    seconds: float | None = None
    """From the earliest lost acknowledgement to the fault."""
    why: str = ""
    """What stands in the place of a count."""

    @property
    def loses(self) -> bool:
        """Whether a loss was seen."""
        return self.word is SafetyWord.LOSES_DATA

    @property
    def size(self) -> str:
        """What follows the word, in a sentence."""
        if self.why or self.lost is None or self.acknowledged is None:
            return self.why
        if not self.lost:
            return f"all {self.acknowledged:,} acknowledged operations survived"
        return f"{self.lost:,} of {self.acknowledged:,} acknowledged operations{self._seconds}"

    @property
    def brief(self) -> str:
        """The same for a narrow column: counts in place of a sentence, and no reason."""
        if self.lost is None or self.acknowledged is None:
            return f"{self.word}: {self.why}" if self.loses else self.word.value
        if not self.lost:
            return f"{self.word}: 0 of {self.acknowledged:,} lost"
        return f"{self.word}: {self.lost:,} of {self.acknowledged:,}{self._seconds}"

    @property
    def _seconds(self) -> str:
        return f", {self.seconds:.1f} s" if self.lost and self.seconds is not None else ""

    def __str__(self) -> str:
        return f"{self.word}: {self.size}" if self.size else self.word.value


def not_shown(why: str) -> Safety:
    """Return the answer of a run that cannot say."""
    return Safety(word=SafetyWord.NOT_SHOWN, why=why)


def loses_data(why: str) -> Safety:
    """Return the answer where the loss cannot be counted in operations."""
    return Safety(word=SafetyWord.LOSES_DATA, why=why)


def judge_safety(
    outcome: Outcome,
    reason: str,
    seen: Sequence[Evidence],
    *,
    memory_lost: bool,
    export_sync: bool,
    seconds: float | None = None,
    not_recovered: str | None = None,
) -> Safety:
    """Return whether a configuration is safe, from how its cycle ended and what was seen of it afterwards.

    ``seen`` is the evidence of each place of observation, the server's first; ``memory_lost`` whether the fault took
    what the server had in its memory: without that, what survived proves nothing.
    """
    if (nothing := SAYS_NOTHING.get(outcome)) is not None:
        return not_shown(nothing)
    if not_recovered is not None:
        return loses_data("everything, the storage did not come back")
    if (loss := next((one for one in seen if one.lost_total), None)) is not None:
        if set(loss.lost) <= {"close"} and outcome is Outcome.INCONCLUSIVE:
            return not_shown(reason)  # under a delegation close promises nothing
        counted = {"lost": loss.lost_total, "acknowledged": loss.acknowledged_total, "seconds": seconds}
        return Safety.model_validate({"word": SafetyWord.LOSES_DATA, **counted})
    if damaged := max((one.broken_blocks for one in seen), default=0):
        return loses_data(f"{damaged:,} blocks damaged")
    if outcome is not Outcome.PASS:
        return not_shown(reason)
    told = max((one.acknowledged_total for one in seen[:1]), default=0)
    if not told:
        return not_shown("nothing was acknowledged")
    if not memory_lost:
        return not_shown("the server's power was not cut")
    if not export_sync:
        return not_shown("an async export lost nothing this time")
    return Safety(word=SafetyWord.SAFE, lost=0, acknowledged=told)
