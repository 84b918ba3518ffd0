"""Copies of a mirror that differ though md wrote them all: a page that changed while it was written back.

md sends one page to the members one after the other, and for mirrors it does not keep the page from changing meanwhile
(md(4), "SCRUBBING AND MISMATCHES"). The next write-back of the page makes them equal, unless a crash comes first.
"""

from collections.abc import Callable, Iterator, Sequence

from raidproof.crash.recording import CHANGES, Recording
from raidproof.disk.writelog import Kind
from raidproof.storage.array.parity import ROW, Assembled, Difference

There = Callable[[int], bool]
"""Whether a request is there in a crash state, whole."""


def changed_under_write_back(
    array: Assembled, recording: Recording, there: There, cut: int, differ: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Return those of the rows that differ only because their page changed while md wrote it to the members."""
    return tuple(one for one in differ if _changed(array, recording, there, cut, one))


def _changed(array: Assembled, recording: Recording, there: There, cut: int, one: Difference) -> bool:
    places = [(role, at) for role, at in array.striping.places(one.array_offset) if role in array.members]
    written = [_writes(recording, array.members[role], array.data_offsets[role] + at, cut) for role, at in places]
    if not all(written):
        return False
    newest = [requests[-1] for requests in written]
    if not all(there(number) and recording.request(number).kind is Kind.WRITE for number in newest):
        return False  # a copy lacks what md had sent to it: that is for the resync
    first = newest[0]
    return all(
        _nearest(recording, first, requests) == requests[-1] and _nearest(recording, requests[-1], written[0]) == first
        for requests in written[1:]
    )


def _writes(recording: Recording, member: int, begin: int, cut: int) -> list[int]:
    """Return the requests that had been issued by a cut and change a page of a member, in the order of their issue."""
    instant_ns = recording.instant_ns(cut)
    found = [number for number, record in _changes(recording, member, begin) if number < cut or record <= instant_ns]
    return sorted(found, key=lambda number: recording.request(number).issued_ns)


def _changes(recording: Recording, member: int, begin: int) -> Iterator[tuple[int, int]]:
    """Yield each request that changes a page of a member, and when it was issued."""
    for number in range(len(recording.records) + len(recording.caught)):
        record = recording.request(number)
        if (
            record.member == member
            and record.kind in CHANGES
            and record.offset < begin + ROW
            and begin < record.offset + record.length
        ):
            yield number, record.issued_ns


def _nearest(recording: Recording, to: int, requests: Sequence[int]) -> int:
    """Return the request that was issued nearest to another: of one write of md, they are each other's."""
    at_ns = recording.request(to).issued_ns
    return min(requests, key=lambda number: abs(recording.request(number).issued_ns - at_ns))
