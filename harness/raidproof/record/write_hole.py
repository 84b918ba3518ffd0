"""The record schema of the write hole of a configuration: its explored crash states, with all members and without one.

A client writes a part of a stripe: the array writes the data and the parity. If the power fails between the two, and
a member is missing, the array computes other data for the missing member, although no client was writing this data.
"""

from pydantic import BaseModel, ConfigDict

from raidproof.plan.members import Members


class HoleRecord(BaseModel):
    """The explored crash states of one configuration, with all members or without one."""

    model_config = ConfigDict(extra="forbid")

    members: Members
    serial: str | None = None
    """The lost or missing member; None: all members are there."""
    cycle: str
    """Name of the crash test whose crash states were explored."""
    file: str | None = None
    """File of the exploration's record, in the run's directory; None: nothing was explored, see ``why_not``."""
    judged: int = 0
    """Number of judged crash states."""
    distinct: int = 0
    """Number of judged crash states with different disk contents."""
    refused: int = 0
    """Number of judged states whose array the kernel refused to start before it was permitted."""
    losing: int = 0
    """Number of judged states that lack acknowledged operations."""
    silent: int = 0
    """Number of these states in which neither array, nor file system, nor kernel reported an error."""
    otherwise: int = 0
    """Number of judged states with another failure only: damage without an acknowledgement, wrong parity, an alarm."""
    scrubbed: int = 0
    """Number of checked states whose array was scrubbed after its resync."""
    differing: int = 0
    """Number of scrubbed states in which copies or parity still differ from the data."""
    sectors: int = 0
    """Greatest number of 512-byte sectors that differ in one of these states."""
    why_not: str | None = None
    """Why nothing, or less than requested, was explored; None if all was."""

    @property
    def reported(self) -> int:
        """Number of states that lack acknowledged operations, with an error of array, file system or kernel."""
        return self.losing - self.silent
