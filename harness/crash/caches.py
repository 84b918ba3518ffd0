"""What the members' caches held at each cut: which requests are durable, and which may or may not be there."""

from collections.abc import Iterator

from harness.crash.recording import CHANGES, Recording
from harness.disk.writelog import ALL_MEMBERS, Flag, Kind, Record


class Caches:
    """The caches of all members, rolled forward through a recording. It knows numbers of requests, no data.

    A flush covers what had completed before it was issued. That is what a disk owes; most flushes cover more.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.cut = 0
        self.pending: list[list[int]] = [[] for _ in recording.members]
        """For each member the requests that have completed and no flush has covered, in order."""
        self._loses = [info.mode.loses for info in recording.members]
        total = len(recording.records) + len(recording.caught)
        changes = [number for number in range(total) if recording.request(number).kind in CHANGES]
        self._by_issue = sorted(changes, key=lambda number: recording.request(number).issued_ns)
        self._issued = 0
        self._in_flight: set[int] = set()

    def roll(self, cut: int) -> Iterator[int]:
        """Go on to a later cut, and yield the requests that become durable on the way, in their order.

        Roll to the end: the caches are at the cut when nothing more comes.
        """
        while self.cut < cut:
            number, self.cut = self.cut, self.cut + 1
            yield from self._take(number, self.recording.records[number])

    def _take(self, number: int, record: Record) -> Iterator[int]:
        if record.kind is Kind.MODE:
            yield from self._set_mode(record)
        elif record.kind is Kind.FLUSH:
            if not record.flags & Flag.LIED:
                yield from self._flush(record)
        elif self._loses[record.member]:
            self.pending[record.member].append(number)
        else:
            yield number

    def _set_mode(self, record: Record) -> Iterator[int]:
        loses = self.recording.loses(record)
        whose = range(len(self.pending)) if record.member == ALL_MEMBERS else [record.member]
        for member in whose:
            self._loses[member] = loses
            if not loses:
                yield from self.pending[member]
                self.pending[member] = []

    def _flush(self, flush: Record) -> Iterator[int]:
        waiting = self.pending[flush.member]
        covered = sum(self.recording.records[number].completed_ns <= flush.issued_ns for number in waiting)
        yield from waiting[:covered]
        del waiting[:covered]

    def forced(self, number: int) -> bool:
        """Return whether a pending request is on the medium for itself: a FUA write, which no cut takes."""
        flags = self.recording.request(number).flags
        return bool(flags & Flag.FUA) and not flags & Flag.LIED and number < self.cut

    @property
    def open(self) -> tuple[int, ...]:
        """The requests that may or may not be there, in their order; those in flight are among them."""
        records, instant = self.recording, self.recording.instant_ns(self.cut)
        order = self._by_issue
        while self._issued < len(order) and records.request(order[self._issued]).issued_ns <= instant:
            self._in_flight.add(order[self._issued])
            self._issued += 1
        self._in_flight = {number for number in self._in_flight if number >= self.cut}
        pending = [number for waiting in self.pending for number in waiting if not self.forced(number)]
        return tuple(sorted([*pending, *self._in_flight]))

    @property
    def kept(self) -> tuple[int, ...]:
        """The FUA writes that are there whatever happens to the requests before them, in their order."""
        return tuple(sorted(number for waiting in self.pending for number in waiting if self.forced(number)))
