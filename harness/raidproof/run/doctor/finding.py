"""What a check of this machine found."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Whether a run is possible in spite of a finding."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One property of this machine: what was found, and what can be done about it."""

    name: str
    outcome: Outcome
    reason: str
    remedy: str = ""
