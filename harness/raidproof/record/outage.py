"""The record schema of outages of a server: how long clients were not served, and what acknowledged work was lost."""

from enum import StrEnum

from raidproof.record.cell import Strict


class Work(StrEnum):
    """A class of the clients' work, of which the time without service is measured apart."""

    WRITES = "writes"
    """Operations of the ledger that write data and make them durable."""
    METADATA = "metadata"
    """Operations of the ledger that change names, attributes or extents."""
    LOCKS = "locks"
    """Granted locks, of whole files and of ranges."""
    APPLICATION = "application"
    """Operations of the user's own application."""


class Rto(Strict):
    """The time for which one client got no acknowledgement of one class of work around an outage."""

    client: str
    work: Work
    last_s: float
    """Time of the last acknowledgement before service could resume, in seconds from the fault; negative if earlier."""
    seconds: float | None
    """Time from this acknowledgement to the next one; None if the client got no further one."""
    dated: bool
    """Whether both times are those of the server's replies on the network; else of the client's reports, which arrive
    later."""


class Outage(Strict):
    """One outage of the server, with its recovery times (RTO), and the acknowledged work that it lost (RPO)."""

    fault: str
    """Name of the fault that made the server unavailable."""
    target: str
    """The machine or disk that the fault affected."""
    down_s: float
    """Time in seconds for which the server was down by the fault's record, until service could resume."""
    rto: list[Rto]
    """The times of each client and class of work, without those of which nothing was acknowledged before."""
    lost: int | None = None
    """RPO: number of acknowledged operations that were missing after the fault; None if the ledger was not read.

    Operations that an earlier fault lost are among them.
    """
    lost_s: float | None = None
    """RPO: time in seconds from the oldest of these acknowledgements to the fault; 0 without a loss."""
