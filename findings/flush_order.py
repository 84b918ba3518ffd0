"""The order of flushes and barrier writes in a write log.

A barrier write is a write that a file system submits with PREFLUSH: all earlier writes must become durable first.
ext4 submits so the commit block of a transaction, and XFS the records of its log. Both are recognised by their
content, so that writes of md's superblock and bitmap, which go to each member by itself, are not mistaken for one.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from raidproof.disk.writelog import Kind, Record

PAGE = 4096
"""Bytes of a block of ext4; a record of the log of XFS begins at a sector, and on an array with stripes at a page."""
_JBD2_MAGIC, _COMMIT = 0xC03B3998, 2
"""The magic number and the type of a commit block (struct journal_header_s in the kernel's include/linux/jbd2.h)."""
_XLOG_MAGIC = 0xFEEDBABE
"""The magic number of a log record of XFS (struct xlog_rec_header in fs/xfs/libxfs/xfs_log_format.h)."""
_HEAD = struct.Struct(">III")
METADATA_END = 1 << 20
"""Byte of a member below which md stores its superblock and its bitmap, whose writes it flushes by themselves."""


@dataclass(frozen=True)
class FlushOrder:
    """The number of barrier writes in a write log, and how many did not wait for the flushes before them."""

    barriers: int
    """Number of barrier writes that another write preceded, since the previous barrier write."""
    early: int
    """Number of barrier writes that came before the end of a flush of each member that had been written before."""

    def __str__(self) -> str:
        return f"{self.early} of {self.barriers} barrier writes came before the end of the flushes that precede them"


def is_barrier(data: bytes | memoryview) -> bool:
    """Return whether a write begins a commit block of ext4 or a log record of XFS in one of its pages."""
    for at in range(0, len(data) - _HEAD.size + 1, PAGE):
        magic, kind, _ = _HEAD.unpack_from(data, at)
        if magic == _XLOG_MAGIC or (magic, kind) == (_JBD2_MAGIC, _COMMIT):
            return True
    return False


def flush_order(records: Iterable[Record]) -> FlushOrder:
    """Return how many barrier writes did not wait for the flushes of all members that had been written before.

    Between the first write of a member since the last barrier write and the next barrier write, a flush of the member
    must begin and end, and no flush may be open. Later writes of other processes may come after the flush. The copies
    of one barrier write count as one. The workload must be one process that waits for each of its writes, on an array
    without a bitmap: then a flush that is open when a barrier write comes is one of those that must precede it.
    """
    requests = sorted(
        (one for one in records if one.kind in {Kind.WRITE, Kind.FLUSH} and not one.flags & one.flags.IN_FLIGHT),
        key=lambda one: one.issued_ns,
    )
    barriers = early = 0
    before, since_ns = b"", 0
    for one in requests:
        if one.kind is Kind.FLUSH or not is_barrier(one.data) or bytes(one.data) == before:
            continue
        ended = [other for other in requests if since_ns <= other.issued_ns and other.completed_ns < one.issued_ns]
        written: dict[int, int] = {}
        for other in ended:
            if other.kind is Kind.WRITE and other.offset >= METADATA_END and bytes(other.data) != before:
                written[other.member] = min(written.get(other.member, other.completed_ns), other.completed_ns)
        flushed = {
            other.member
            for other in ended
            if other.kind is Kind.FLUSH and other.issued_ns >= written.get(other.member, 0)
        }
        open_ = any(
            other.kind is Kind.FLUSH and other.issued_ns < one.issued_ns < other.completed_ns for other in requests
        )
        barriers += bool(written)
        early += bool(written) and (open_ or bool(written.keys() - flushed))
        before, since_ns = bytes(one.data), one.issued_ns
    return FlushOrder(barriers, early)
