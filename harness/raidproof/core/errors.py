"""The errors of raidproof by their origin (request, host, rig, product), and the exit status of each."""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum


class RaidproofError(Exception):
    """Base of all errors that raidproof reports in one line.

    ``remedy``: what the reader can do about the error.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.remedy})" if self.remedy else message


class RequestError(RaidproofError):
    """The request is impossible: a typo, or a combination that no machine can execute."""


class RequirementMissing(RaidproofError):
    """This machine or guest lacks something that the request needs. A scenario ends SKIP."""


class RigError(RaidproofError):
    """The rig failed, which proves nothing about the product. A scenario ends ERROR."""


class DeadlineExceeded(RigError):
    """An event did not happen before its deadline."""


class ProductError(RaidproofError):
    """The system under test did something that it must not do. A scenario ends FAIL."""


class NotEffective(ProductError):
    """The system accepted a request, but the effective result differs."""


class NotRecovered(ProductError):
    """The storage does not recover after a fault."""


class Inconclusive(RaidproofError):
    """The test neither showed the expected result nor disproved it. A scenario ends INCONCLUSIVE."""


class ControlFailed(RaidproofError):
    """A control misbehaved, so that nothing in its run counts. A scenario ends INVALID."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return the last part of a message about an unknown word: the nearest valid word, then all valid words."""
    known = sorted(valid)
    close = get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}valid: {', '.join(known)}"


class Status(IntEnum):
    """Exit statuses of commands; each `raidproof.record.outcome.Outcome` has the status of the same name."""

    PASS = 0
    FAIL = 1
    BAD_REQUEST = 2
    ERROR = 3
    INVALID = 4
    INCONCLUSIVE = 5
    REQUIREMENT_MISSING = 6
    SKIP = 6
    INTERRUPTED = 130
