"""What a disk is asked to do."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Op(Enum):
    """What a request does."""

    READ = "read"
    WRITE = "write"
    FLUSH = "flush"
    TRIM = "trim"


@dataclass(slots=True, eq=False)
class Request:
    """One request to a member disk; ``offset`` and ``length`` in bytes."""

    op: Op
    offset: int = 0
    length: int = 0
    fua: bool = False
    member: int = 0
    tag: object = None
    """The caller's own."""
    submitted_ns: int = 0
    done_ns: int | None = None
    """When it was answered; None while it is under way."""
    passed: bool = False
    """For a disk: what it is to write came through a controller, byte by byte, so its own interface has had it too."""
    data_ns: int = 0
    """For a disk: since when the request waits for its heads."""
    then: "Callable[[Request, int], None] | None" = None
    """For a disk: who is told of its answer, and when that was."""
