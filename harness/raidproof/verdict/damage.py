"""Damage that a crash state can show: failures of an exploration are grouped by it."""

from typing import NamedTuple

from raidproof.record.exploration import End


class Damage(NamedTuple):
    """A kind of damage that a crash state can show; failures with equal damage count as the same failure."""

    promise: str
    """The name of the broken promise, or of the check that failed."""
    what: str
    """What is wrong, as text without numbers of single states."""
    end: str
    """The last stage that the check of the state reached, a value of `End`."""

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


class Wrong(NamedTuple):
    """Damage of a crash state other than a missing operation: a corrupted block or a degraded array, for example."""

    damage: Damage
    line: str
    """Description of the damage for the report, with names and numbers."""


def wrong(promise: str, what: str, line: str, end: str = End.READ) -> Wrong:
    """Return damage of a crash state; ``line``: its description, the other arguments: as in `Damage`."""
    return Wrong(Damage(promise, what, end), line)
