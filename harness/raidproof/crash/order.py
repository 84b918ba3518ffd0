"""The order of writes in a crash state: a barrier write that survived, and an earlier write that did not.

A barrier write is one that a file system submits with PREFLUSH: all earlier writes must become durable first.
"""

import re
from collections.abc import Iterable
from itertools import islice

from raidproof.crash.owner import Part
from raidproof.crash.states import Recording
from raidproof.disk.writelog import Kind, Record
from raidproof.record.failure import OrderRecord
from raidproof.storage.filesystem import FILESYSTEMS

PAGE = 4096
"""Alignment in bytes of the structures that a file system writes: a request may contain several."""
BARRIERS = {
    name: pattern
    for _, kind in FILESYSTEMS.items()
    for pattern, name in kind.structures.items()
    if name in kind.barriers
}
"""The patterns with which the barrier writes of all file systems begin, by the name of the structure."""


def broken_order(recording: Recording, absent: Iterable[int], cut: int) -> OrderRecord | None:
    """Return the first barrier write of a state that must not survive without a lost write; None without one.

    ``absent``: the numbers of the requests that the state lacks; all other requests before the cut survive.
    """
    lost = {number: recording.request(number) for number in absent}
    ended = {number: one for number, one in lost.items() if one.kind is Kind.WRITE and one.completed_ns}
    since_ns = min((one.completed_ns for one in ended.values()), default=recording.end_ns)
    for number, one in enumerate(islice(recording.records, cut)):
        if one.kind is not Kind.WRITE or one.issued_ns <= since_ns or number in lost:
            continue
        structure = barrier_of(one)
        if structure is None:
            continue
        # A write that had completed before the barrier write reached its member was completed for md before, too.
        for earlier, write in ended.items():
            if write.completed_ns < one.issued_ns:
                barrier = _whole(number, one).record(recording, {})
                return OrderRecord(
                    barrier=barrier.model_copy(update={"structure": structure}),
                    lost=_whole(earlier, write).record(recording, {}),
                )
    return None


def barrier_of(write: Record) -> str | None:
    """Return the name of the first structure of `BARRIERS` that a write contains at a multiple of `PAGE`."""
    data = write.data
    pages = (data[at : at + PAGE] for at in range(0, write.length, PAGE))
    found = (name for page in pages for name, pattern in BARRIERS.items() if re.match(pattern, page, re.DOTALL))
    return next(found, None)


def _whole(number: int, request: Record) -> Part:
    return Part(number, request.offset, request.offset + request.length, request.member)
