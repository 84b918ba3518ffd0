"""The errors of raidproof by their origin (request, host, rig, product), and the exit status of each."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import IntEnum


class RaidproofError(Exception):
    """Base class of all errors that raidproof reports in one line.

    ``remedy``: what the user can do about the error; shown in parentheses after the message.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.remedy})" if self.remedy else message


class RequestError(RaidproofError):
    """The user's request cannot be executed: a value is unknown or malformed, or values exclude each other."""


class RequirementMissing(RaidproofError):
    """This host or a machine lacks a program, kernel feature or permission for the request. A scenario ends SKIP."""


class RigError(RaidproofError):
    """The rig failed, which shows nothing about the system under test. A scenario ends ERROR."""


class DeadlineExceeded(RigError):
    """An event that the harness waited for did not happen before its deadline."""


class ProductError(RaidproofError):
    """The system under test did something that it must not do. A scenario ends FAIL."""


class NotEffective(ProductError):
    """The system accepted a setting, but the effective value differs from the requested one."""


class NotRecovered(ProductError):
    """The array, the file system or the NFS server did not become usable again after a fault."""


class Inconclusive(RaidproofError):
    """The test neither confirmed nor refuted the expected result. A scenario ends INCONCLUSIVE."""


class ControlFailed(RaidproofError):
    """A control did not show what it had to show, so no PASS of the run counts. A scenario ends INVALID."""


FEW = 25
"""Number of words that a message can list so that a reader sees all of them."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return the last part of a message about an unknown word: the nearest valid word, then all valid words.

    If there are more than `FEW` valid words, and one is near, only those that are near follow.
    """
    known = sorted(valid)
    close = get_close_matches(word, known, n=3)
    if close and len(known) > FEW:
        others = f" (also similar: {', '.join(close[1:])})" if close[1:] else ""
        return f"did you mean {close[0]!r}?{others}"
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}valid: {', '.join(known)}" if known else "there are none"


class Status(IntEnum):
    """Exit statuses of raidproof; each `raidproof.record.outcome.Outcome` has the status of the same name."""

    PASS = 0
    FAIL = 1
    BAD_REQUEST = 2
    ERROR = 3
    INVALID = 4
    INCONCLUSIVE = 5
    REQUIREMENT_MISSING = 6
    SKIP = 6
    INTERRUPTED = 130


SEVERITY = (Status.PASS, Status.INCONCLUSIVE, Status.BAD_REQUEST, Status.ERROR, Status.INVALID, Status.FAIL)
"""Statuses of scenarios from best to worst. A missing requirement counts only if every scenario lacks one."""


def worst(statuses: Sequence[Status]) -> Status:
    """Return the worst status of several scenarios; PASS without scenarios."""
    ran = [status for status in statuses if status is not Status.REQUIREMENT_MISSING]
    if statuses and not ran:
        return Status.REQUIREMENT_MISSING
    return max(ran, key=SEVERITY.index, default=Status.PASS)
