"""What the members' caches held at each cut: which requests are durable, and which may or may not be there."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain

from raidproof.crash.recording import CHANGES, Recording
from raidproof.disk.writelog import Flag, Kind, Record, kept_by


class Caches:
    """The caches of all members, rolled forward through a recording. It knows numbers of requests, no data.

    A flush covers what had completed before it was issued. That is what a disk owes; most flushes cover more.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.cut = 0
        self._loose: list[list[int]] = [[] for _ in recording.members]
        """For each member the requests that have completed and no flush has covered, in order."""
        self._forced: list[list[int]] = [[] for _ in recording.members]
        """Those of them that are on the medium for themselves: FUA writes, which no cut takes."""
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
            yield from self._flush_in_part(record) if record.flags & Flag.LIED else self._flush(record)
        elif self._loses[record.member]:
            forced = record.flags & Flag.FUA and not record.flags & Flag.LIED
            (self._forced if forced else self._loose)[record.member].append(number)
        else:
            yield number

    def _set_mode(self, record: Record) -> Iterator[int]:
        loses = self.recording.loses(record)
        for member in self.recording.whose(record):
            self._loses[member] = loses
            if not loses:
                yield from self._settle(member, self.cut)

    def _flush(self, flush: Record) -> Iterator[int]:
        # In the order of their completion: the first that the flush does not owe is where it ends.
        records, waiting = self.recording.records, (self._loose[flush.member], self._forced[flush.member])
        late = (next((one for one in of if records[one].completed_ns > flush.issued_ns), self.cut) for of in waiting)
        yield from self._settle(flush.member, min(late))

    def _flush_in_part(self, flush: Record) -> Iterator[int]:
        """Take what a lie has made durable all the same for forced: it is later than what it overwrote."""
        if not (kept := kept_by(flush)):
            return
        loose, forced = self._loose[flush.member], self._forced[flush.member]
        durable = {self._number(sequence) for sequence in kept}.intersection(loose)
        self._loose[flush.member] = left = [one for one in loose if one not in durable]
        forced[:] = sorted([*forced, *durable])
        yield from self._settle(flush.member, left[0] if left else self.cut)

    def _number(self, sequence: int) -> int:
        """Return the number of the request with a sequence number of the write log."""
        return bisect_left(self.recording.records, sequence, key=lambda record: record.sequence)

    def _settle(self, member: int, before: int) -> Iterator[int]:
        """Make durable what of a member has completed before a cut."""
        durable = []
        for waiting in (self._loose[member], self._forced[member]):
            count = bisect_left(waiting, before)
            durable += waiting[:count]
            del waiting[:count]
        yield from sorted(durable)

    @property
    def open(self) -> tuple[int, ...]:
        """The requests that may or may not be there, in their order; those in flight are among them."""
        self._catch_up()
        # Runs that are sorted already: a disk that never flushes has tens of thousands.
        return tuple(sorted(chain(*self._loose, sorted(self._in_flight))))

    @property
    def count(self) -> int:
        """How many are `open`."""
        self._catch_up()
        return sum(map(len, self._loose)) + len(self._in_flight)

    def _catch_up(self) -> None:
        """Note what is in flight at the cut."""
        records, instant = self.recording, self.recording.instant_ns(self.cut)
        order = self._by_issue
        while self._issued < len(order) and records.request(order[self._issued]).issued_ns <= instant:
            self._in_flight.add(order[self._issued])
            self._issued += 1
        self._in_flight = {number for number in self._in_flight if number >= self.cut}

    @property
    def members(self) -> list[int]:
        """The members that have open requests."""
        flying = {self.recording.request(number).member for number in self._in_flight}
        return [member for member, waiting in enumerate(self._loose) if waiting or member in flying]

    @property
    def kept(self) -> tuple[int, ...]:
        """The FUA writes that are there whatever happens to the requests before them, in their order."""
        return tuple(sorted(chain(*self._forced)))
