"""The errors of raidproof by their origin (request, host, rig, product), and the exit status of each."""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum


class RaidproofError(Exception):
    """Anything that raidproof reports in one line.

    ``remedy`` says what the reader can do about it.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.remedy})" if self.remedy else message


class RequestError(RaidproofError):
    """What was asked for cannot be: a typo, or a combination that no machine could carry out."""


class RequirementMissing(RaidproofError):
    """This machine or guest lacks something that the request needs. A scenario ends SKIP."""


class RigError(RaidproofError):
    """The rig failed: it proves nothing about the product. A scenario ends ERROR."""


class DeadlineExceeded(RigError):
    """Something did not happen in its time."""


class ProductError(RaidproofError):
    """The system under test did something that it must not do. A scenario ends FAIL."""


class NotEffective(ProductError):
    """The system accepted a request and did something else."""


class NotRecovered(ProductError):
    """What was there before a fault does not come back after it."""


class Inconclusive(RaidproofError):
    """What was to be seen did not show, and nothing contradicts it either. A scenario ends INCONCLUSIVE."""


class ControlFailed(RaidproofError):
    """A control did not behave as it must: nothing of its campaign counts. A scenario ends INVALID."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """Say which valid words there are, the nearest first: the tail of a message about a typo."""
    known = sorted(valid)
    close = get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}valid: {', '.join(known)}"


class Status(IntEnum):
    """A command's exit status; each `raidproof.record.outcome.Outcome` has the one of its name."""

    PASS = 0
    FAIL = 1
    BAD_REQUEST = 2
    ERROR = 3
    INVALID = 4
    INCONCLUSIVE = 5
    REQUIREMENT_MISSING = 6
    SKIP = 6
    INTERRUPTED = 130
