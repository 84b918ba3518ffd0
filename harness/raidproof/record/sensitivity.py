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
    EARLY_FLUSH = "a flush of one member that is acknowledged 1.5 ms before its effect"
    NO_PREFLUSH = "a commit record without its PREFLUSH"
    """A layer above the members drops the flush that the write of a commit record (with FUA) requests."""
    COMMIT_FIRST = "a commit record that is written before the flush that must precede it"


class Subject(StrEnum):
    """What an instance of a defect would have lost."""

    DATA = "data"
    """Blocks of the ledger, which the write log shows."""
    NAMES = "names"
    """Changes of names: all requests between the begin of a solo operation and its reply count as the operation's."""


class Sensitivity(Strict):
    """How many instances of a defect would have lost acknowledged data.

    An instance is a flush or a FUA write that made data of an acknowledged operation durable. If no crash state shows
    its absence, another flush made the data durable before the reply.
    """

    defect: Defect
    subject: Subject = Subject.DATA
    instances: int
    """Number of flushes, or FUA writes, that made data of acknowledged operations durable.

    Of `Defect.COMMIT_FIRST`: number of flushes right before a FUA write.
    """
    in_some_state: int
    """Number of instances without which a power cut at some time would have lost acknowledged data.

    Of `Defect.COMMIT_FIRST`: number of those with which a cut could keep the commit record and lose older requests.
    """
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
    states: int = 0
    """Number of checked crash states; 0 in an older record."""


def missing_flushes(sensitivity: Iterable[Sensitivity], subject: Subject = Subject.DATA) -> Sensitivity | None:
    """Return the sensitivity to a missing flush of one member that made data, or names, durable; None if not known."""
    both = (Defect.FLUSH_OF_A_MEMBER, subject)
    return next((one for one in sensitivity if (one.defect, one.subject) == both), None)


def noticed_in(sensitivity: Iterable[Sensitivity]) -> int | None:
    """Return the number of missing flushes of one member that checked crash states would have shown; None: unknown."""
    found = missing_flushes(sensitivity)
    return None if found is None else found.in_checked_states


def noticed_in_states(sensitivity: Iterable[Sensitivity], states: int) -> Noticed | None:
    """Return how many missing flushes of a member the checked states of an exploration would have shown.

    ``states``: number of these states.
    """
    one = missing_flushes(sensitivity)
    if one is None or not one.instances or one.in_checked_states is None:
        return None
    return Noticed(noticed=one.in_checked_states, of=one.instances, states=states)
