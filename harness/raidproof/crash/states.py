"""Crash states: the recording of a run, the volatile caches at each instant, and the possible crash states."""

import json
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from raidproof.core.errors import RequestError
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import (
    ALL_MEMBERS,
    CHANGES,
    Flag,
    Joined,
    Kind,
    LogWriter,
    MemberInfo,
    Record,
    Records,
    Stored,
    WriteLog,
    kept_by,
    new_log,
)
from raidproof.storage.array.array import ArraySpec
from raidproof.storage.array.superblock import Read, Superblock, superblock_of
from raidproof.workload.ledger_blocks import blocks_in

Spans = tuple[tuple[int, int], ...]
"""Byte ranges (start, end) on a member, sorted."""

BLOCK = 4096
"""Size in bytes of a block, the unit in which contents are compared; md and the file systems write whole pages."""
BLANK = bytes(BLOCK)
"""The content of a blank block."""
_RECORDED = CHANGES | {Kind.FLUSH, Kind.MODE}
_ENDS = frozenset({Kind.POWER_ON, Kind.RESET})
_LONGEST = 1 << 20


class Recording:
    """The requests to the members of one run, from its write log, up to the run's first power cut.

    A *cut* is a number of records: the power fails when the records before index ``cut`` have completed, and no
    others. The *number* of a request is its index in ``records`` followed by ``caught``.

    ``origin``: for the log of a recovery, the crash state that the disks held when the log began. The first
    ``first_cut`` records then are durable writes of this content.

    Raises:
        LogError: the log has no data, or without an ``origin`` its disks were not blank when it began.
    """

    def __init__(
        self, log: WriteLog, array: ArraySpec | None = None, origin: "Origin | None" = None, lost: Iterable[int] = ()
    ) -> None:
        """``array``: the request for the array, which names the format of its metadata; None: md's format 1.2."""
        log.require_content(blank=origin is None)
        self.log = log
        self.origin = origin
        self.array = array
        self.superblock: Callable[[Read], Superblock | None] = array.superblock if array else superblock_of
        """Reads the array's metadata on a member."""
        self.unreadable = array.unreadable if array else None
        """The reason why the array's metadata and data on the members cannot be read; None if they can."""
        self.in_page = array is None or (array.in_page and self.unreadable is None)
        """Whether the metadata of a member is in the page of md's superblock."""
        self.lost = frozenset(lost)
        """Indices of the members that are lost with the power cut: they are blank in each crash state."""
        self.members: tuple[MemberInfo, ...] = log.members
        content = () if origin is None else _content_of(origin.content, log)
        self.records = Records(log, content)
        """Writes, discards, flushes and changes of a cache mode, in the order in which they took effect."""
        self.caught = Records(log)
        """Writes and discards that were in flight at the run's own power cut."""
        self.end_ns = log.opened_ns
        """Instant of the run's own power cut, or of its last record (CLOCK_MONOTONIC, ns)."""
        self.corrupted_ns: int | None = None
        """Instant of the first MARK record, such as the setting of a disk fault; None: the log has no MARK record."""
        if origin is not None:
            # The content is durable: until it is written, no member has a volatile cache.
            self.members = tuple(info._replace(mode=CacheMode.NONE, old=False) for info in log.members)
        self.first_cut = len(self.records)
        """The first cut that is a power cut during the recording; not 0 only for the log of a recovery."""
        self._read()

    def _read(self) -> None:
        frozen = False
        for record in self.log:
            if record.kind in _ENDS:
                break
            if record.flags & Flag.IN_FLIGHT:
                # The engine logs these requests after the cut, when it fails them.
                if record.kind in CHANGES:
                    self.caught.append(record)
            elif record.kind is Kind.FREEZE:
                frozen, self.end_ns = True, record.completed_ns
            elif record.kind is Kind.MARK:
                # Marks record disk faults: from the first mark on the disks may hold corrupted data.
                self.corrupted_ns = record.completed_ns if self.corrupted_ns is None else self.corrupted_ns
            elif record.kind in _RECORDED and not frozen:
                self.records.append(record)
                self.end_ns = record.completed_ns

    @property
    def most_content(self) -> int:
        """Upper limit in bytes of what the disks hold in any crash state."""
        every = (zip(of.kinds, of.lengths, strict=True) for of in (self.records, self.caught))
        written: int = sum(length for kind, length in chain(*every) if kind == Kind.WRITE)
        # Old data is on all disks, wherever a request writes to one of them.
        disks = len(self.members) if any(info.old for info in self.members) else 1
        return min(written * disks, sum(info.size for info in self.members))

    def request(self, number: int) -> Record:
        """Return the request with this number."""
        done = len(self.records)
        return self.records[number] if number < done else self.caught[number - done]

    def number_of(self, sequence: int) -> int:
        """Return the number of the request with this sequence number in the write log."""
        return bisect_left(self.records, sequence, key=lambda record: record.sequence)

    def issued_ns(self, number: int) -> int:
        """Return the instant in ns at which a request arrived at the disk engine."""
        done = len(self.records)
        return self.records.issued_ns[number] if number < done else self.caught.issued_ns[number - done]

    def length(self, number: int) -> int:
        """Return the number of bytes of a request."""
        done = len(self.records)
        return self.records.lengths[number] if number < done else self.caught.lengths[number - done]

    def member(self, number: int) -> int:
        """Return the index of the member to which a request was sent."""
        done = len(self.records)
        return self.records.members[number] if number < done else self.caught.members[number - done]

    @cached_property
    def by_issue(self) -> Sequence[int]:
        """The numbers of the requests that change a member's content, in the order of their issue."""
        kinds = enumerate(chain(self.records.kinds, self.caught.kinds))
        return array("I", sorted((number for number, kind in kinds if kind in CHANGES), key=self.issued_ns))

    @cached_property
    def changes(self) -> Mapping[tuple[int, int], Sequence[int]]:
        """The requests that change each block of a member, by member and number of the block, in ascending order.

        The content with which the log of a recovery begins was not written by md, and does not count.
        """
        found = defaultdict[tuple[int, int], list[int]](list)
        for number in range(self.first_cut, len(self.records) + len(self.caught)):
            record = self.request(number)
            if record.kind in CHANGES:
                for block in blocks_of(record.offset, record.offset + record.length):
                    found[record.member, block].append(number)
        return found

    def instant_ns(self, cut: int) -> int:
        """Return the latest possible instant of a cut in ns: 1 ns before the next request took effect.

        The later the instant, the more operations are acknowledged, and the more operations must have survived.
        """
        return self.records.completed_ns[cut] - 1 if cut < len(self.records) else self.end_ns

    def acknowledged_ns(self, cut: int) -> int:
        """Return the instant in ns before which an acknowledgement obliges the states of a cut.

        It is the instant of the cut. During a recovery no client works: then it is that of the first power cut.
        """
        return self.instant_ns(cut) if self.origin is None else self.origin.acknowledged_ns

    def modes(self, cut: int) -> tuple[CacheMode, ...]:
        """Return the cache mode of each member at a cut."""
        modes = [info.mode for info in self.members]
        for record in islice(self.records, cut):
            if record.kind is Kind.MODE:
                for member in self.whose(record):
                    modes[member] = CacheMode(record.data.decode())
        return tuple(modes)

    def place(self, instant_ns: int) -> int:
        """Return the first cut whose next request took effect at or after ``instant_ns``."""
        return bisect_left(self.records.completed_ns, instant_ns)

    def place_of_reply(self, replied_ns: int) -> int:
        """Return the first cut at which a reply counts: one whose latest instant is after the reply."""
        # That instant is 1 ns before the next request's effect.
        return self.place(replied_ns + 2)

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """The cuts before and after each record that makes data durable, and one midway between each two of these."""
        marks = {0, len(self.records)}
        for number in self.durability_changes:
            marks |= {number, number + 1}
        between = [(first + last) // 2 for first, last in pairwise(sorted(marks))]
        return tuple(sorted({*marks, *between}))

    @cached_property
    def durability_changes(self) -> Sequence[int]:
        """Indices of the records that make data durable: flushes, FUA, and writes without volatile cache.

        A flush of an empty cache is included, and so is one of a lying disk.
        """
        return array("I", self._durability_changes())

    def _durability_changes(self) -> Iterator[int]:
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
        """Return whether a power cut can lose acknowledged data in the cache mode of a MODE record."""
        return CacheMode(record.data.decode()).loses

    def whose(self, record: Record) -> Sequence[int]:
        """Return the indices of the members whose cache mode a MODE record changes."""
        return range(len(self.members)) if record.member == ALL_MEMBERS else (record.member,)


def blocks_of(start: int, end: int) -> range:
    """Return the numbers of the blocks that a byte range touches."""
    return range(start // BLOCK, -(-end // BLOCK))


def pieces(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (block number, start, end) for each block that a byte range touches, with offsets inside the block."""
    for block in blocks_of(start, end):
        yield block, max(start - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)


class Survivor(NamedTuple):
    """A request that was not durable at the cut, and that survived."""

    request: int
    """Number of the request in the recording."""
    spans: Spans | None = None
    """Surviving byte ranges of a torn request; None: the whole request survived."""

    def ranges(self, request: Record) -> Spans:
        """Return the byte ranges that survived of this survivor's request."""
        # Older explorations have states with empty spans, whose requests were checked as whole ones.
        return self.spans or ((request.offset, request.offset + request.length),)


class CrashState(NamedTuple):
    """The content of all disks after a power cut: all data durable at the cut, and the surviving requests."""

    cut: int
    """Cut of the recording, see `Recording`."""
    survivors: tuple[Survivor, ...] = ()
    """Surviving requests in the order of their numbers."""

    @classmethod
    def of(cls, cut: int, requests: Iterable[int]) -> "CrashState":
        """Return the state of a cut in which exactly these requests survived, none of them torn."""
        return cls(cut, tuple(map(Survivor, requests)))

    @property
    def whole(self) -> frozenset[int]:
        """Numbers of the requests that survived whole."""
        return frozenset(one.request for one in self.survivors if one.spans is None)

    @property
    def name(self) -> str:
        """Name of the state; equal states of one recording have equal names."""
        return self.name_of(self.dump())

    @staticmethod
    def name_of(dump: str) -> str:
        """Return the name of the state in a text that `dump` returned."""
        cut, _, _ = dump[1:].partition(",")
        return f"{cut}-{crc32(dump.encode()):08x}"

    def dump(self) -> str:
        """Return the state as JSON."""
        return json.dumps([self.cut, [[one.request, one.spans] for one in self.survivors]], separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> "CrashState":
        """Return the state in a text that `dump` returned.

        Raises:
            RequestError: the text does not have the format of `dump`.
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
            raise RequestError(f"the text is not a crash state: {text[:100]!r}") from error


@dataclass
class Patch:
    """A set of blocks to be written to the members. What is in the file of a write log is not in memory."""

    blocks: Mapping[tuple[int, int], bytes | Stored] = field(default_factory=dict)
    """Content of each block, by (member index, block number)."""

    def then(self, later: "Patch") -> "Patch":
        """Return the patch with the effect of this patch followed by ``later``."""
        return Patch({**self.blocks, **later.blocks})

    def joined(self) -> Iterator[tuple[int, int, Joined]]:
        """Yield the blocks as (member index, offset in bytes, data), with adjacent blocks joined."""
        whose, start, parts = -1, 0, list[bytes | Stored]()
        for member, block in sorted(self.blocks):
            if member != whose or block != start + len(parts) or len(parts) * BLOCK >= _LONGEST:
                if parts:
                    yield whose, start * BLOCK, Joined(tuple(parts), BLOCK, len(parts) * BLOCK)
                whose, start, parts = member, block, []
            parts.append(self.blocks[member, block])
        if parts:
            yield whose, start * BLOCK, Joined(tuple(parts), BLOCK, len(parts) * BLOCK)

    def runs(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the blocks as `joined` does, with their data in memory, one run after the other."""
        for member, offset, data in self.joined():
            yield member, offset, data.read()

    def write(self, path: Path, members: Sequence[MemberInfo]) -> None:
        """Write the patch to the file ``path`` as a write log for `EngineClient.show`.

        Raises:
            OSError: the file exists, or cannot be written.
        """
        with new_log(path, members, blank=False) as log:
            self.write_to(log, members)

    def write_to(self, log: LogWriter, members: Sequence[MemberInfo]) -> None:
        """Append the patch to an open write log."""
        for member, offset, data in self.runs():
            # The last block of a disk may be shorter than BLOCK.
            log.write(0, member, offset, (0, 0), data[: members[member].size - offset])

    @classmethod
    def of(cls, blocks: Mapping[tuple[int, int], bytes | bytearray | Stored]) -> "Patch":
        """Return a patch with a copy of these blocks, which are given by (member index, block number)."""
        return cls({place: bytes(data) if isinstance(data, bytearray) else data for place, data in blocks.items()})


@dataclass(frozen=True)
class Origin:
    """The crash state whose recovery a recording contains."""

    content: Patch
    """The content of all disks, without blank blocks."""
    acknowledged_ns: int
    """The instant in ns before which an acknowledgement obliges the crash state (`Recording.acknowledged_ns`)."""
    torn: bool = False
    """Whether a request survived in part."""
    torn_blocks: frozenset[tuple[int, int]] = frozenset()
    """File number and offset of each block of the ledger in a request that survived in part."""


def _content_of(content: Patch, log: WriteLog) -> Iterator[Record]:
    """Yield writes of a content, followed by the changes to the cache modes that the members have in the log.

    The sequence numbers are negative: those of the log begin with 0.
    """
    at_ns = log.opened_ns
    runs, modes = list(content.joined()), [info.mode for info in log.members]
    first = -len(runs) - len(modes)
    for sequence, (member, offset, data) in enumerate(runs, start=first):
        # The last block of a disk may be shorter than BLOCK.
        size = min(data.size, log.members[member].size - offset)
        whole = data._replace(size=size)
        yield Record(sequence, Kind.WRITE, Flag(0), member, offset, size, at_ns, at_ns, whole)
    for member, mode in enumerate(modes):
        name = mode.value.encode()
        yield Record(member - len(modes), Kind.MODE, Flag(0), member, 0, 0, at_ns, at_ns, name)


class Caches:
    """The volatile caches of all members at a cut, as request numbers without data.

    A flush makes the requests durable that had completed before the issue of the flush. This is the least that a disk
    must do; most disks make more requests durable.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.cut = 0
        self._unflushed: list[list[int]] = [[] for _ in recording.members]
        """For each member the completed requests that no flush has covered, in order, without FUA writes."""
        self._fua: list[list[int]] = [[] for _ in recording.members]
        """For each member the completed FUA writes that no flush has covered; they survive every cut."""
        self._loses = [info.mode.loses for info in recording.members]
        self._issued = 0
        self._in_flight: set[int] = set()

    def roll(self, cut: int) -> Iterator[int]:
        """Move to a later cut; yield the numbers of the requests that become durable before the new cut, in order.

        The caches are at the cut only after the caller has exhausted the iterator.
        """
        while self.cut < cut:
            number, self.cut = self.cut, self.cut + 1
            yield from self._take(number, self.recording.records[number])

    def go(self, cut: int) -> None:
        """Move to a later cut."""
        for _ in self.roll(cut):
            pass

    def _take(self, number: int, record: Record) -> Iterator[int]:
        if record.kind is Kind.MODE:
            yield from self._set_mode(record)
        elif record.kind is Kind.FLUSH:
            yield from self._flush_in_part(record) if record.flags & Flag.LIED else self._flush(record)
        elif self._loses[record.member]:
            forced = record.flags & Flag.FUA and not record.flags & Flag.LIED
            (self._fua if forced else self._unflushed)[record.member].append(number)
        else:
            yield number

    def _set_mode(self, record: Record) -> Iterator[int]:
        loses = self.recording.loses(record)
        for member in self.recording.whose(record):
            self._loses[member] = loses
            if not loses:
                yield from self._make_durable(member, self.cut)

    def _flush(self, flush: Record) -> Iterator[int]:
        # Requests become durable in the order of completion, up to the first that the flush need not cover.
        completed_ns = self.recording.records.completed_ns
        waiting = self._unflushed[flush.member], self._fua[flush.member]
        late = (next((one for one in of if completed_ns[one] > flush.issued_ns), self.cut) for of in waiting)
        yield from self._make_durable(flush.member, min(late))

    def _flush_in_part(self, flush: Record) -> Iterator[int]:
        """Execute a lying flush: the requests that it made durable nevertheless count as FUA writes from now on."""
        if not (kept := kept_by(flush)):
            return
        loose, forced = self._unflushed[flush.member], self._fua[flush.member]
        durable = set(map(self.recording.number_of, kept)).intersection(loose)
        self._unflushed[flush.member] = left = [one for one in loose if one not in durable]
        forced[:] = sorted([*forced, *durable])
        yield from self._make_durable(flush.member, left[0] if left else self.cut)

    def _make_durable(self, member: int, before: int) -> Iterator[int]:
        """Make the requests of a member durable whose numbers are less than ``before``; yield their numbers."""
        durable = []
        for waiting in (self._unflushed[member], self._fua[member]):
            count = bisect_left(waiting, before)
            durable += waiting[:count]
            del waiting[:count]
        yield from sorted(durable)

    @property
    def open(self) -> tuple[int, ...]:
        """Numbers of the requests that may survive or be lost, including requests in flight, in order."""
        self._update_in_flight()
        # `sorted` merges sorted runs fast: a disk that never flushes has tens of thousands of open requests.
        return tuple(sorted(chain(*self._unflushed, sorted(self._in_flight))))

    @property
    def in_flight(self) -> frozenset[int]:
        """Numbers of the requests that are in flight at the cut; they are part of `open`."""
        self._update_in_flight()
        return frozenset(self._in_flight)

    @property
    def count(self) -> int:
        """Number of requests that may survive or be lost, see `open`."""
        self._update_in_flight()
        return sum(map(len, self._unflushed)) + len(self._in_flight)

    def _update_in_flight(self) -> None:
        """Update the set of requests that are in flight at the current cut."""
        recording, instant = self.recording, self.recording.instant_ns(self.cut)
        order = recording.by_issue
        while self._issued < len(order) and recording.issued_ns(order[self._issued]) <= instant:
            self._in_flight.add(order[self._issued])
            self._issued += 1
        self._in_flight = {number for number in self._in_flight if number >= self.cut}

    @property
    def members(self) -> list[int]:
        """Indices of the members that have requests in `open`, which may survive or be lost."""
        in_flight = {self.recording.member(number) for number in self._in_flight}
        return [member for member, waiting in enumerate(self._unflushed) if waiting or member in in_flight]

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the FUA writes that survive although earlier requests are not durable yet, in order."""
        return tuple(sorted(chain(*self._fua)))


class Torn:
    """Finds torn requests, and the ledger blocks in them; the result for each request is cached."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[int, frozenset[tuple[int, int]]] = {}

    def within(self, state: CrashState) -> bool:
        """Return whether a request survived in part in a state."""
        origin = self._recording.origin
        return any(one.spans is not None for one in state.survivors) or (origin is not None and origin.torn)

    def blocks(self, state: CrashState) -> frozenset[tuple[int, int]]:
        """Return (file number, offset) of each ledger block in the torn requests of a state.

        The torn requests of the crash state whose recovery was recorded count, too.
        """
        torn = [one.request for one in state.survivors if one.spans is not None]
        origin = self._recording.origin
        return frozenset(origin.torn_blocks if origin is not None else ()).union(*map(self._carried, torn))

    def _carried(self, request: int) -> frozenset[tuple[int, int]]:
        if request not in self._known:
            data = self._recording.request(request).data
            self._known[request] = frozenset((one.file, one.offset) for one in blocks_in(data))
        return self._known[request]
