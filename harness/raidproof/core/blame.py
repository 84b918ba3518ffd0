"""The blame for a broken promise: the part of the system that broke it, and how."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Culprit(StrEnum):
    """A part of the system that can break a promise."""

    DISKS = "the disks"
    STACK = "the stack"
    """The server's software between its disks and the network, if the evidence names no single part."""
    ASYNC_EXPORT = "the async export"
    FILESYSTEM_SETTINGS = "the file system's settings"
    """A requested property or mount option with which the file system does not make fsynced data durable."""
    SERVER = "the server"
    NFSD = "nfsd"
    KERNEL = "kernel"
    WRITE_HOLE = "the write hole"
    """Data and parity of a stripe disagree after the cut, on an array without a journal or PPL (md(4))."""
    CLIENT = "a client"
    CLIENT_CACHE = "the client's cache"
    APPLICATION = "the stack or the application"
    """The acknowledgements are those of the user's own application, which may have given one too early."""


class Cause(StrEnum):
    """What the blamed part did wrong: a defect that the harness injected, or an event that it counted.

    Records contain the values, users see `text`. The values in older records are sentences.
    """

    LOST_FLUSHES = "lost-flushes"
    MISPLACED_WRITES = "misplaced-writes"
    SECOND_MEMBER_FAILED = "second-member-failed"
    UNREADABLE_SECTORS = "unreadable-sectors"
    CHANGED_CONTENT = "changed-content"
    NO_FLUSHES_SENT = "no-flushes-sent"

    @property
    def text(self) -> str:
        """The cause in plain words, as text for users."""
        return _TEXTS[self]

    @classmethod
    def _missing_(cls, value: object) -> "Cause | None":
        return _OLDER.get(value)


_TEXTS: Mapping[Cause, str] = {
    Cause.LOST_FLUSHES: "the disks acknowledged flushes and did not make the data durable",
    Cause.MISPLACED_WRITES: "the disks wrote data to another place, or not at all",
    Cause.SECOND_MEMBER_FAILED: "a second member failed before the rebuild of the first one ended",
    Cause.UNREADABLE_SECTORS: "sectors that the rebuild needed were unreadable",
    Cause.CHANGED_CONTENT: "the disks returned data that differs from the written data",
    Cause.NO_FLUSHES_SENT: "the server sent no flushes to the disks",
}

_OLDER: Mapping[object, Cause] = {
    "acknowledged flushes and kept nothing": Cause.LOST_FLUSHES,
    "writes were not put where they belong": Cause.MISPLACED_WRITES,
    "a member failed before the one that had failed first was rebuilt": Cause.SECOND_MEMBER_FAILED,
    "sectors were unreadable that a rebuild needed": Cause.UNREADABLE_SECTORS,
    "what they gave back was not what had been written": Cause.CHANGED_CONTENT,
    "no flushes were sent to the disks": Cause.NO_FLUSHES_SENT,
}
"""The causes by their values in older records."""


class Blame(BaseModel):
    """The part of the system that broke a promise, the cause, and the disks or machines concerned."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    culprit: Culprit
    cause: Cause | None = None
    members: tuple[str, ...] = ()
    """Serial numbers of the blamed disks, or names of the blamed machines; empty: none is known in particular."""
    detail: str = ""
    """What the part did, as text for users, which no program reads; if empty, users see the text of ``cause``."""

    @model_validator(mode="before")
    @classmethod
    def _of_an_older_record(cls, value: Any) -> Any:
        """Convert a blame from an older record, where it is one text: culprit, colon, sentence."""
        if not isinstance(value, str):
            return value
        culprit, _, detail = value.partition(": ")
        known = next((one for one in Culprit if one.value == culprit), None)
        return {"culprit": Culprit.STACK, "detail": value} if known is None else {"culprit": known, "detail": detail}

    def __str__(self) -> str:
        what = self.detail or (self.cause and self.cause.text)
        return f"{self.culprit}: {what}" if what else self.culprit.value


def blamed_as(blame: Blame | None, expected: Culprit | Cause | None) -> bool:
    """Return whether a blame has the expected culprit or cause; if ``expected`` is None, any blame matches."""
    return expected is None or (blame is not None and expected in (blame.culprit, blame.cause))


def expected_blame(value: Any) -> Any:
    """Return the culprit or cause that a control expects; an older record has a sentence with the culprit first."""
    if not isinstance(value, str) or value in {*Culprit, *Cause}:
        return value
    return _OLDER.get(value) or Blame.model_validate(value).culprit


def text_of(expected: Culprit | Cause) -> str:
    """Return an expected culprit or cause as text for users."""
    return expected.text if isinstance(expected, Cause) else expected.value
