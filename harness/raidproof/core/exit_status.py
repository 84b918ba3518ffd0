"""What the process ends with."""

from enum import IntEnum


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
