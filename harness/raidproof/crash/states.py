"""Crash states: the recorded run, the states that it allows, and the content of the disks in each."""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from raidproof.core.errors import RequestError, RigError
from raidproof.disk.cache import CacheMode
from raidproof.disk.sparse_image import OLD_DATA, SparseImage
from raidproof.disk.writelog import ALL_MEMBERS, Flag, Kind, LogError, LogWriter, MemberInfo, Record, WriteLog, kept_by
from raidproof.guest.ledger_writer import HEADER, MAGIC

Spans = tuple[tuple[int, int], ...]
"""Byte ranges (start, end) on a member, sorted."""

BLOCK = 4096
"""Bytes; the unit in which contents are compared: a page, in which md and the file systems write."""
CHANGES = frozenset({Kind.WRITE, Kind.ZERO, Kind.DISCARD})
_KEPT = CHANGES | {Kind.FLUSH, Kind.MODE}
_ENDS = frozenset({Kind.POWER_ON, Kind.RESET})
_LONGEST = 1 << 20
_BLANK = bytes(BLOCK)
_Overlay = dict[tuple[int, int], bytearray]


class Recording:
    """The requests to the members of one run, up to its first power cut.

    A *cut* is an index into ``records``: the power goes when that many records and no others have completed. A
    *request* number is an index into ``records``, or beyond their end into ``caught``.

    Raises:
        LogError: the log has no data, or the disks were not blank when it began.
    """

    def __init__(self, log: WriteLog) -> None:
        if not log.with_data:
            raise LogError(f"{log.path}: written without data, it shows times only")
        if not log.blank:
            raise LogError(f"{log.path}: begun on disks that were not blank, their content is unknown")
        self.log = log
        self.members: tuple[MemberInfo, ...] = log.members
        self.records: list[Record] = []
        """Changes, flushes and changes of a cache mode, in the order in which they took effect."""
        self.caught: list[Record] = []
        """Changes in flight at the run's own power cut."""
        self.end_ns = log.opened_ns
        self.corrupted_ns: int | None = None
        """The instant of the first disk fault or other mark, in ns; None: none was marked."""
        self._read()

    def _read(self) -> None:
        frozen = False
        for record in self.log:
            if record.kind in _ENDS:
                break
            if record.flags & Flag.IN_FLIGHT:
                # Logged when they were failed, which is after the cut.
                if record.kind in CHANGES:
                    self.caught.append(record)
            elif record.kind is Kind.FREEZE:
                frozen, self.end_ns = True, record.completed_ns
            elif record.kind is Kind.MARK:
                # Only `raidproof.disk.engine` writes marks: for disk faults and for changed settings.
                self.corrupted_ns = record.completed_ns if self.corrupted_ns is None else self.corrupted_ns
            elif record.kind in _KEPT and not frozen:
                self.records.append(record)
                self.end_ns = record.completed_ns

    def request(self, number: int) -> Record:
        """Return a request by its number."""
        done = len(self.records)
        return self.records[number] if number < done else self.caught[number - done]

    def instant_ns(self, cut: int) -> int:
        """Return the latest possible instant of a cut in ns, just before the next request took effect.

        The latest, because more operations are acknowledged by then, so that more must have survived.
        """
        return self.records[cut].completed_ns - 1 if cut < len(self.records) else self.end_ns

    def place(self, instant_ns: int) -> int:
        """Return the first cut whose latest instant is not before an instant."""
        return bisect_left(self.records, instant_ns, key=lambda record: record.completed_ns)

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """The cuts before and after each change of what is durable, and one between two neighbours."""
        marks = {0, len(self.records)}
        for number in self._settling():
            marks |= {number, number + 1}
        between = [(first + last) // 2 for first, last in pairwise(sorted(marks))]
        return tuple(sorted({*marks, *between}))

    def _settling(self) -> Iterator[int]:
        """Yield the records that make data durable; with a cache mode that loses nothing, each change does."""
        loses = [info.mode.loses for info in self.members]
        for number, record in enumerate(self.records):
            if record.kind is Kind.MODE:
                for member in self.whose(record):
                    loses[member] = self.loses(record)
                if not self.loses(record):
                    yield number
            elif record.kind is Kind.FLUSH or record.flags & Flag.FUA or not loses[record.member]:
                yield number

    def loses(self, record: Record) -> bool:
        """Return whether the cache mode in a MODE record can lose acknowledged data."""
        return CacheMode(bytes(record.data).decode()).loses

    def whose(self, record: Record) -> Sequence[int]:
        """Return the members that a MODE record applies to."""
        return range(len(self.members)) if record.member == ALL_MEMBERS else (record.member,)


class Survivor(NamedTuple):
    """A request that was not durable at the cut, but survived."""

    request: int
    """Its number in the recording."""
    spans: Spans | None = None
    """The parts of it that survived; None: all of it."""


class CrashState(NamedTuple):
    """The disks after a power cut: everything durable at ``cut``, and the survivors, applied in their order."""

    cut: int
    survivors: tuple[Survivor, ...] = ()

    @property
    def name(self) -> str:
        """A name; equal states of the same recording have equal names."""
        return f"{self.cut}-{crc32(self.dump().encode()):08x}"

    def dump(self) -> str:
        """Return the state as JSON."""
        return json.dumps([self.cut, [[one.request, one.spans] for one in self.survivors]], separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> "CrashState":
        """Parse the output of `dump`.

        Raises:
            RequestError: the text is no crash state.
        """
        try:
            cut, survivors = json.loads(text)
            return cls(
                int(cut),
                tuple(
                    Survivor(int(request), None if spans is None else tuple((int(a), int(b)) for a, b in spans))
                    for request, spans in survivors
                ),
            )
        except (ValueError, TypeError) as error:
            raise RequestError(f"not a crash state: {text[:100]!r}") from error


@dataclass
class Patch:
    """Whole blocks of the members, by member number and block number."""

    blocks: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def then(self, later: "Patch") -> "Patch":
        """Return the patch that equals this one followed by a later one."""
        return Patch({**self.blocks, **later.blocks})

    def runs(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (member, offset in bytes, data) with adjacent blocks joined."""
        whose, start, parts = -1, 0, list[bytes]()
        for member, block in sorted(self.blocks):
            if member != whose or block != start + len(parts) or len(parts) * BLOCK >= _LONGEST:
                if parts:
                    yield whose, start * BLOCK, b"".join(parts)
                whose, start, parts = member, block, []
            parts.append(self.blocks[member, block])
        if parts:
            yield whose, start * BLOCK, b"".join(parts)

    def write(self, path: Path, members: Sequence[MemberInfo]) -> None:
        """Write the patch as a write log, for `EngineClient.show`.

        Raises:
            OSError: the file exists, or cannot be written.
        """
        with new_log(path, members, blank=False) as log:
            self.write_to(log, members)

    def write_to(self, log: LogWriter, members: Sequence[MemberInfo]) -> None:
        """Write the patch to an open write log."""
        for member, offset, data in self.runs():
            # The last block of a disk may be shorter.
            log.write(0, member, offset, (0, 0), data[: members[member].size - offset])

    @classmethod
    def of(cls, blocks: Mapping[tuple[int, int], bytes | bytearray]) -> "Patch":
        """Return the patch that writes these blocks."""
        return cls({place: bytes(data) for place, data in blocks.items()})


@contextmanager
def new_log(path: Path, members: Sequence[MemberInfo], *, blank: bool = True) -> Iterator[LogWriter]:
    """Yield a new write log, which is complete at the end, and after an error closed as it is.

    ``blank``: whether its disks were blank when it began.

    Raises:
        OSError: the file exists, or cannot be written.
    """
    log = LogWriter(path, members, 0, blank=blank)
    try:
        yield log
        log.close(0)
    except BaseException:
        log.abandon()
        raise


class Torn:
    """The ledger blocks in the requests of a recording; each request is read once."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[int, frozenset[tuple[int, int]]] = {}

    def blocks(self, state: CrashState) -> frozenset[tuple[int, int]]:
        """Return file number and offset of each ledger block in the requests that survived in part."""
        torn = [one.request for one in state.survivors if one.spans is not None]
        return frozenset().union(*map(self._carried, torn))

    def _carried(self, request: int) -> frozenset[tuple[int, int]]:
        if request not in self._known:
            self._known[request] = frozenset(carried(bytes(self._recording.request(request).data)))
        return self._known[request]


def carried(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield file number and offset of each ledger block whose header is in some data."""
    at = data.find(MAGIC)
    while at >= 0:
        if at + HEADER.size <= len(data):
            _, file, offset, _, _ = HEADER.unpack_from(data, at)
            yield file, offset
        at = data.find(MAGIC, at + 1)


class Caches:
    """The caches of all members, rolled forward through a recording; handles request numbers, no data.

    A flush covers the requests that had completed before its issue: the least that a disk must do; most do more.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.cut = 0
        self._loose: list[list[int]] = [[] for _ in recording.members]
        """For each member its completed requests that no flush has covered, in order."""
        self._forced: list[list[int]] = [[] for _ in recording.members]
        """For each member its completed FUA writes that no flush has covered: durable at every cut."""
        self._loses = [info.mode.loses for info in recording.members]
        total = len(recording.records) + len(recording.caught)
        changes = [number for number in range(total) if recording.request(number).kind in CHANGES]
        self._by_issue = sorted(changes, key=lambda number: recording.request(number).issued_ns)
        self._issued = 0
        self._in_flight: set[int] = set()

    def roll(self, cut: int) -> Iterator[int]:
        """Move to a later cut, and yield the requests that become durable on the way, in their order.

        Exhaust the iterator: the caches are at the cut only then.
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
        # In the order of completion: the flush ends at the first request that it need not cover.
        records, waiting = self.recording.records, (self._loose[flush.member], self._forced[flush.member])
        late = (next((one for one in of if records[one].completed_ns > flush.issued_ns), self.cut) for of in waiting)
        yield from self._settle(flush.member, min(late))

    def _flush_in_part(self, flush: Record) -> Iterator[int]:
        """Treat the requests that a lying flush did write as FUA writes: they are newer than what they overwrote."""
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
        """Make the requests of a member durable that completed before a cut."""
        durable = []
        for waiting in (self._loose[member], self._forced[member]):
            count = bisect_left(waiting, before)
            durable += waiting[:count]
            del waiting[:count]
        yield from sorted(durable)

    @property
    def open(self) -> tuple[int, ...]:
        """The requests that may or may not survive, those in flight included, in their order."""
        self._catch_up()
        # Merges sorted runs: a disk that never flushes has tens of thousands of requests.
        return tuple(sorted(chain(*self._loose, sorted(self._in_flight))))

    @property
    def count(self) -> int:
        """The number of `open` requests."""
        self._catch_up()
        return sum(map(len, self._loose)) + len(self._in_flight)

    def _catch_up(self) -> None:
        """Update the set of requests in flight at the cut."""
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
        """The FUA writes that survive independently of the requests before them, in their order."""
        return tuple(sorted(chain(*self._forced)))


class DiskStates:
    """The disks at a cut, rolled forward. States with equal digests have equal content: one check serves both."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.caches = Caches(recording)
        self._platters = [SparseImage(-(-info.size // BLOCK) * BLOCK) for info in recording.members]
        # For each member the hash of each block that is not blank; a member's digest is the XOR of them all.
        self._hashes: list[dict[int, int]] = [{} for _ in recording.members]
        self._sums = [0] * len(recording.members)
        self._last: tuple[CrashState, _Overlay] | None = None
        self._old = Patch(dict.fromkeys(_old_blocks(recording), OLD_DATA))
        for (member, block), data in self._old.blocks.items():
            self._platters[member].write(data, block * BLOCK)
            self._hashes[member][block] = hashed = _hash(block, data)
            self._sums[member] ^= hashed

    @property
    def cut(self) -> int:
        """The current cut."""
        return self.caches.cut

    @property
    def open(self) -> tuple[int, ...]:
        """The requests that may or may not survive at this cut, in their order."""
        return self.caches.open

    def move(self, cut: int) -> Patch:
        """Move to a later cut, and return what has become durable on the way; the first time with the old data.

        Raises:
            RigError: the cut lies before the current one.
        """
        if cut < self.cut:
            raise RigError(f"cut {cut} is before the current cut {self.cut}: DiskStates only moves forward")
        overlay: _Overlay = {}
        for number in self.caches.roll(cut):
            self._apply(overlay, Survivor(number))
        for (member, block), data in overlay.items():
            self._platters[member].write(data, block * BLOCK)
            old, new = self._hashes[member].pop(block, 0), _hash(block, data)
            if new:
                self._hashes[member][block] = new
            self._sums[member] ^= old ^ new
        self._last = None
        first, self._old = self._old, Patch()
        return first.then(Patch.of(overlay))

    def patch(self, state: CrashState) -> Patch:
        """Return what a crash state adds to the durable data.

        Raises:
            RigError: the state is of another cut.
        """
        return Patch.of(self._overlay(state))

    def digest(self, state: CrashState) -> str:
        """Return a digest of the content of all members: equal contents have equal digests.

        Raises:
            RigError: the state is of another cut.
        """
        sums = list(self._sums)
        for (member, block), data in self._overlay(state).items():
            sums[member] ^= self._hashes[member].get(block, 0) ^ _hash(block, data)
        return blake2b(b"".join(one.to_bytes(16) for one in sums), digest_size=16).hexdigest()

    def read(self, state: CrashState, member: int, offset: int, length: int) -> bytes:
        """Return the content of a byte range of a member in a crash state.

        Raises:
            RigError: the state is of another cut.
        """
        overlay = self._overlay(state)
        first, last = offset // BLOCK, -(-(offset + length) // BLOCK)
        parts = [overlay.get((member, block)) or self._block(member, block) for block in range(first, last)]
        return b"".join(parts)[offset - first * BLOCK :][:length]

    def image(self, serial: str) -> SparseImage:
        """Return the durable content of a member; read-only."""
        return self._platters[self.recording.log.number(serial)]

    def _overlay(self, state: CrashState) -> _Overlay:
        if state.cut != self.cut:
            raise RigError(f"state {state.name} is of another cut than {self.cut}")
        if self._last is None or self._last[0] != state:
            overlay: _Overlay = {}
            # In their order: a surviving earlier write never covers a later durable one.
            kept = (Survivor(number) for number in self.caches.kept)
            for survivor in sorted([*state.survivors, *kept], key=lambda one: one.request):
                self._apply(overlay, survivor)
            self._last = (state, overlay)
        return self._last[1]

    def _apply(self, overlay: _Overlay, survivor: Survivor) -> None:
        record = self.recording.request(survivor.request)
        spans: Spans = survivor.spans or ((record.offset, record.offset + record.length),)
        for start, end in spans:
            if record.kind is Kind.WRITE:
                data = record.data[start - record.offset : end - record.offset]
                for block, first, last in _pieces(start, end):
                    target = self._open(overlay, record.member, block)
                    at = block * BLOCK + first - start
                    target[first:last] = data[at : at + last - first]
            else:
                self._zero(overlay, record.member, start, end)

    def _zero(self, overlay: _Overlay, member: int, start: int, end: int) -> None:
        # A discard of a whole disk must not create a block for each of its pages: blank ones stay absent.
        first, last = start // BLOCK, -(-end // BLOCK)
        inside: Iterable[int] = range(first, last)
        if last - first > len(self._hashes[member]) + len(overlay):
            written = {*self._hashes[member], *(block for whose, block in overlay if whose == member)}
            inside = sorted(block for block in written if first <= block < last)
        for block in inside:
            if (member, block) in overlay or block in self._hashes[member]:
                target = self._open(overlay, member, block)
                low, high = max(start - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)
                target[low:high] = bytes(high - low)

    def _open(self, overlay: _Overlay, member: int, block: int) -> bytearray:
        place = (member, block)
        if place not in overlay:
            overlay[place] = bytearray(self._block(member, block))
        return overlay[place]

    def _block(self, member: int, block: int) -> bytes:
        return self._platters[member].copy(block * BLOCK, BLOCK) or _BLANK


def _old_blocks(recording: Recording) -> Iterator[tuple[int, int]]:
    """Yield the member and block of all old data that a state must hold.

    Old data is shown where a request of the recording writes on any member: no check reads elsewhere. The rest is
    blank, which costs a checker nothing. The rows are the same on all members, as parity needs.
    """
    rows: set[int] = set()
    if any(info.old for info in recording.members):
        for record in (*recording.records, *recording.caught):
            if record.kind is Kind.WRITE:
                rows.update(range(record.offset // BLOCK, -(-(record.offset + record.length) // BLOCK)))
    for member, info in enumerate(recording.members):
        if info.old:
            yield from ((member, block) for block in rows if block < -(-info.size // BLOCK))


def _hash(block: int, data: bytes | bytearray) -> int:
    """Return the hash of a block at its block number; 0 if it is blank."""
    if data == _BLANK:
        return 0
    return int.from_bytes(blake2b(data, digest_size=16, person=block.to_bytes(16)).digest())


def _pieces(start: int, end: int) -> Iterable[tuple[int, int, int]]:
    """Yield (block, start, end) for each block that a byte range touches; start and end are relative to the block."""
    for block in range(start // BLOCK, -(-end // BLOCK)):
        yield block, max(start - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)
