"""The record schema of the sensitivity of a crash test: which defects of the stack its write log could have shown."""

from collections.abc import Iterable
from enum import StrEnum

from raidproof.record.cell import Strict


class Defect(StrEnum):
    """A defect of a stack, of which one instance after the other is applied to a write log."""

    FLUSH_OF_A_MEMBER = "a missing flush of one member"
    """A layer above the members sends a flush to all members but one, or a member ignores a flush."""
    FLUSH = "a missing flush of all members"
    """A layer above the members drops a flush: those that different members execute at the same time."""
    FUA = "a FUA write that is executed without FUA"


class Sensitivity(Strict):
    """How many instances of a defect would have lost acknowledged data.

    An instance is a flush or a FUA write that made data of an acknowledged operation durable. If no crash state shows
    its absence, another flush made the data durable before the reply.
    """

    defect: Defect
    instances: int
    """Number of flushes, or FUA writes, that made data of acknowledged operations durable."""
    in_some_state: int
    """Number of instances without which a power cut at some time would have lost acknowledged data."""
    in_this_cut: int | None = None
    """Number of instances without which the injected power cut would have lost acknowledged data, if the disks lost
    everything volatile; None without a power cut."""
    in_checked_states: int | None = None
    """Number of instances without which a checked crash state would have lost acknowledged data; None for the
    sensitivity of a crash test without its crash states."""


class Noticed(Strict):
    """How many missing flushes of one member a crash test would have shown, by its power cut or its crash states."""

    noticed: int
    of: int
    """Number of flushes that made data of acknowledged operations durable; at least 1."""


def noticed_in(sensitivity: Iterable[Sensitivity]) -> int | None:
    """Return the number of missing flushes of one member that checked crash states would have shown; None: unknown."""
    found = (one.in_checked_states for one in sensitivity if one.defect is Defect.FLUSH_OF_A_MEMBER)
    return next(found, None)


def noticed_in_states(sensitivity: Iterable[Sensitivity]) -> Noticed | None:
    """Return how many missing flushes of a member the checked states of an exploration would have shown."""
    for one in sensitivity:
        if one.defect is Defect.FLUSH_OF_A_MEMBER and one.instances and one.in_checked_states is not None:
            return Noticed(noticed=one.in_checked_states, of=one.instances)
    return None
