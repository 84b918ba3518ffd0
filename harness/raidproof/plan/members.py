"""Which members an array has when its crash states are explored: a choice of a plan."""

from enum import StrEnum


class Members(StrEnum):
    """Which members an array has when its crash states are explored."""

    WHOLE = "whole"
    """All members."""
    LOST = "lost"
    """One member is lost with the power cut: the array starts without it."""
    MISSING = "missing"
    """One member is missing since before the clients began: they write to a degraded array."""
