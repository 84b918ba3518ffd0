"""The order of flushes and barrier writes in a write log.

A barrier write is a write that a file system submits with PREFLUSH: all earlier writes must become durable first.
ext4 submits so the commit block of a transaction, and XFS the records of its log. Both are recognised by their
content, so that writes of md's superblock and bitmap, which go to each member by itself, are not mistaken for one.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raidproof.disk.writelog import Kind, Record

PAGE = 4096
"""Bytes of a block of ext4; a record of the log of XFS begins at a sector, and on an array with stripes at a page."""
_JBD2_MAGIC, _COMMIT = 0xC03B3998, 2
"""The magic number and the type of a commit block (struct journal_header_s in the kernel's include/linux/jbd2.h)."""
_XLOG_MAGIC = 0xFEEDBABE
"""The magic number of a log record of XFS (struct xlog_rec_header in fs/xfs/libxfs/xfs_log_format.h)."""
_HEAD = struct.Struct(">III")
LONG_NS = 10_000_000
"""Least duration of a flush on the slow member in ns: then a barrier write that does not wait for it is seen."""


@dataclass(frozen=True)
class FlushOrder:
    """The number of barrier writes in a write log, and how many did not wait for the flushes before them."""

    barriers: int
    """Number of barrier writes that a flush of at least `LONG_NS` preceded, since the previous barrier write."""
    early: int
    """Number of barrier writes that a member received while a flush of a member was open."""

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
    """Return how many barrier writes did not wait for the flushes of all members.

    The copies of one barrier write, and its parity if it looks alike, count as one write if no flush lies between
    them. The workload must be one process that waits for each of its writes: then a flush that is open when a barrier
    write reaches a member can only be one of those that must precede the write. The array must have no bitmap, whose
    writes flush single members at any time.
    """
    requests = sorted(
        (one for one in records if one.kind in {Kind.WRITE, Kind.FLUSH} and not one.flags & one.flags.IN_FLIGHT),
        key=lambda one: one.issued_ns,
    )
    return _counted(_barriers(requests))


def _barriers(requests: list[Record]) -> Iterator[tuple[bool, bool]]:
    """Yield for each barrier write whether a long flush preceded it, and whether a flush was open."""
    longest, flushes_until, new = 0, 0, False
    for one in requests:
        if one.kind is Kind.FLUSH:
            longest = max(longest, one.completed_ns - one.issued_ns)
            flushes_until, new = max(flushes_until, one.completed_ns), True
        elif new and is_barrier(one.data):
            yield longest >= LONG_NS, flushes_until > one.issued_ns
            longest, new = 0, False


def _counted(barriers: Iterable[tuple[bool, bool]]) -> FlushOrder:
    seen = [early for long, early in barriers if long or early]
    return FlushOrder(len(seen), sum(seen))
