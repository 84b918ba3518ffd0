"""The record schema of the life of a lost block: what was observed of one acknowledged write before the cut.

Times are in seconds from the fault: negative before it. A step that was not observed is None, or is missing.
"""

from pydantic import Field

from raidproof.record.cell import Strict


class DiskRequest(Strict):
    """A write request to a member disk that contained the block in the acknowledged generation or in a newer one."""

    member: str
    """Serial of the member disk."""
    request: int
    """Number of the request in the write log."""
    sector: int
    """First sector (512 bytes) of the request on the member."""
    begun_s: float
    """Arrival of the request at the disk."""
    ended_s: float | None
    """The disk's reply to the request; None if the request was in flight at the cut."""
    forced: bool = False
    """Whether the request had FUA, and the disk executed it: then the request was durable at its reply."""
    flush_begun_s: float | None = None
    """Arrival of the member's first flush after ``ended_s``; None if none completed before the cut."""
    flush_ended_s: float | None = None
    """The disk's reply to this flush."""
    flush_lied: bool = False
    """Whether the disk acknowledged this flush, or the FUA request, without making the data durable."""


class BlockLife(Strict):
    """The life of one lost block: the client's write, the acknowledgement, the disk requests and their flushes."""

    client: str
    path: str
    """Path of the file below the ledger's folder."""
    kind: str
    """Kind of the operation that wrote the block."""
    block: int
    """Index of the 4 KiB block in the file."""
    generation: int
    """The acknowledged generation of the block, which is missing."""
    found: str
    """What the scan found instead, as a clause."""
    written_s: float
    """Begin of the client's operation."""
    replied_s: float | None = None
    """The server's last reply to the operation on the network; None if the replies were not captured."""
    reported_s: float | None = None
    """Arrival of the client's report that the operation had ended."""
    requests: list[DiskRequest] | None = Field(default=None)
    """Requests before the cut that carried the block; None if the write log was not kept, or lacks the data.

    Of a level with parity, a request can be the parity of a stripe whose other blocks are zeroes.
    """
