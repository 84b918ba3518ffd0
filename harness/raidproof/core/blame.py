"""The blame for a broken promise: the part of the system that broke it, and how."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Culprit(StrEnum):
    """A part of the system that can break a promise."""

    DISKS = "the disks"
    STACK = "the stack"
    """The server's software between disks and network, if nothing more specific is known."""
    ASYNC_EXPORT = "the async export"
    SERVER = "the server"
    NFSD = "nfsd"
    KERNEL = "kernel"
    WRITE_HOLE = "the write hole"
    """Data and parity that did not reach the disks together, in an array without protection against this (md(4))."""
    CLIENT = "a client"
    CLIENT_CACHE = "the client's cache"


class Cause(StrEnum):
    """What a part of the system did, known because the harness injected or counted it."""

    LOST_FLUSHES = "acknowledged flushes and kept nothing"
    MISPLACED_WRITES = "writes were not put where they belong"
    SECOND_MEMBER_FAILED = "a member failed before the one that had failed first was rebuilt"
    UNREADABLE_SECTORS = "sectors were unreadable that a rebuild needed"
    CHANGED_CONTENT = "what they gave back was not what had been written"
    NO_FLUSHES_SENT = "no flushes were sent to the disks"


class Blame(BaseModel):
    """The part of the system that broke a promise, the cause, and the disks or machines concerned."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    culprit: Culprit
    cause: Cause | None = None
    members: tuple[str, ...] = ()
    """Serial numbers of the disks or names of the machines to blame; empty: all of this part."""
    detail: str = ""
    """A sentence for users, which no program reads; if empty, the cause is shown."""

    @model_validator(mode="before")
    @classmethod
    def _of_an_older_record(cls, value: Any) -> Any:
        """Convert the form in older records: the culprit's name, a colon, and a sentence."""
        if not isinstance(value, str):
            return value
        culprit, _, detail = value.partition(": ")
        known = next((one for one in Culprit if one.value == culprit), None)
        return {"culprit": Culprit.STACK, "detail": value} if known is None else {"culprit": known, "detail": detail}

    def __str__(self) -> str:
        said = self.detail or self.cause
        return f"{self.culprit}: {said}" if said else self.culprit.value


def blamed_as(blame: Blame | None, expected: Culprit | Cause | None) -> bool:
    """Return whether a blame has the expected culprit or cause; if ``expected`` is None, any blame matches."""
    return expected is None or (blame is not None and expected in (blame.culprit, blame.cause))


def expected_blame(value: Any) -> Any:
    """Return the culprit or cause that a control expects; convert the sentence of an older record."""
    if isinstance(value, str) and value not in {*Culprit, *Cause}:
        return Blame.model_validate(value).culprit
    return value
