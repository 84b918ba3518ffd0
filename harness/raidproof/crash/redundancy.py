"""The comparison of copies and parity with the data in a crash state, and md's resync of the rows that differ.

A row is the set of pages, one on each member, that copies or parity relate to each other.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.units import SECTOR
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.states import BLOCK, CrashState, Patch, Recording, blocks_of
from raidproof.disk.writelog import Kind, LogError, WriteLog
from raidproof.record.exploration import Rows
from raidproof.storage.array import ArraySpec
from raidproof.storage.array.striping import ROW, Assembled, Difference, ReadMember, Region, differences
from raidproof.storage.array.superblock import HEADER, Feature, Superblock

Survived = Callable[[int], bool]
"""A function that returns whether a request, given by its number, survived whole in a crash state."""

MOST_DESCRIBED = 3
"""Greatest number of rows that `never_written` describes."""
MAGIC = 0x6D746962
"""Magic number of a bitmap (BITMAP_MAGIC in drivers/md/md-bitmap.h)."""
CLUSTERED, LOCKLESS = 5, 6
"""Versions of md's bitmap that are not read: several bitmaps of a clustered array; one with a byte for each chunk."""
_SUPER = struct.Struct("<II16sQQQIIIIII")
_STALE = 1 << 1
SETTLED_NS = 1_000_000_000
"""Time in ns after which the writes of a row have all ended: md writes a page to all its members at once."""
SEVERAL = "the members have superblocks of several arrays"


def changed_under_write_back(
    array: Assembled, recording: Recording, survived: Survived, cut: int, differ: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Return the differing rows whose copies differ because the page in memory changed between md's writes of it.

    md(4) allows this for mirrors: the writes of one page to several members may have different contents.
    """
    return tuple(one for one in differ if _changed(array, recording, survived, cut, one))


def _changed(array: Assembled, recording: Recording, survived: Survived, cut: int, one: Difference) -> bool:
    places = [(role, at) for role, at in array.striping.places(one.array_offset) if role in array.members]
    written = [_writes(recording, array.members[role], array.data_offsets[role] + at, cut) for role, at in places]
    if not all(written):
        return False
    newest = [requests[-1] for requests in written]
    if not all(survived(number) and recording.request(number).kind is Kind.WRITE for number in newest):
        return False  # the newest write of a copy did not survive: a resync must repair the row
    first = newest[0]
    return all(
        _nearest_in_time(recording, first, requests) == requests[-1]
        and _nearest_in_time(recording, requests[-1], written[0]) == first
        for requests in written[1:]
    )


def settled(
    array: Assembled, recording: Recording, uncertain: Collection[int], cut: int, differ: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Return the differing rows whose last write was durable on all members, and had ended, well before the cut.

    ``uncertain``: the requests before the cut that are not durable.
    No write was in progress that the cut could have interrupted: a copy, or the parity, was never written. Old data
    of the disks does not differ: see `holders_of_old_data`.
    """
    if recording.origin is not None:
        return ()
    limit_ns = recording.instant_ns(cut) - SETTLED_NS
    return tuple(one for one in differ if _ended_ns(array, recording, uncertain, cut, one) < limit_ns)


def _ended_ns(array: Assembled, recording: Recording, uncertain: Collection[int], cut: int, one: Difference) -> float:
    """Return the instant in ns at which the last write of a row had ended; infinite while one is not durable."""
    if array.striping.raid.copies > 1:
        places = array.striping.places(one.array_offset)
    else:
        places = tuple((role, one.row * ROW) for role in range(array.striping.members))
    found = [
        number
        for role, at in places
        if role in array.members
        for number in _writes(recording, array.members[role], array.data_offsets[role] + at, cut)
    ]
    if any(number >= cut or number in uncertain for number in found):
        return inf
    return max((recording.request(number).completed_ns for number in found), default=0)


def _writes(recording: Recording, member: int, begin: int, cut: int) -> list[int]:
    """Return the requests issued before a cut that change the page at ``begin`` of a member, in the order of issue."""
    instant_ns = recording.instant_ns(cut)
    found = [number for number, record in _changes(recording, member, begin) if number < cut or record <= instant_ns]
    return sorted(found, key=lambda number: recording.request(number).issued_ns)


def _changes(recording: Recording, member: int, begin: int) -> Iterator[tuple[int, int]]:
    """Yield the number and issue time in ns of each request that changes the page at ``begin`` of a member."""
    blocks = blocks_of(begin, begin + ROW)
    for number in sorted({number for block in blocks for number in recording.changes.get((member, block), ())}):
        record = recording.request(number)
        if record.offset < begin + ROW and begin < record.offset + record.length:
            yield number, record.issued_ns


def _nearest_in_time(recording: Recording, to: int, requests: Sequence[int]) -> int:
    """Return the request whose issue time is nearest to that of request ``to``.

    Two requests are the copies of one md write if each is nearest to the other.
    """
    at_ns = recording.request(to).issued_ns
    return min(requests, key=lambda number: abs(recording.request(number).issued_ns - at_ns))


@dataclass(frozen=True)
class Bitmap:
    """The header of the write-intent bitmap on one member (bitmap_super_t in drivers/md/md-bitmap.h)."""

    version: int
    uuid: str
    events: int
    """Event counter of the array at the last update of the bitmap."""
    events_cleared: int
    """Event counter of the array when bits were last cleared."""
    sync_size: int
    """Bytes that the bitmap covers: of each member, or of the array for RAID10."""
    stale: bool
    """Whether the flag BITMAP_STALE is set, which causes a full resync."""
    chunk_size: int
    """Bytes that one bit covers."""
    offset: int
    """Offset in bytes of the bits on the member."""

    @property
    def chunks(self) -> int:
        """Number of chunks, and of bits in the bitmap."""
        return -(-self.sync_size // self.chunk_size)

    def marked(self, read: ReadMember, member: int, offset: int) -> bool:
        """Return whether the bit is set for the chunk that contains ``offset``, an offset in the covered range."""
        byte, bit = divmod(offset // self.chunk_size, 8)
        return bool(read(member, self.offset + byte, 1)[0] >> bit & 1)


def parse_bitmap(data: bytes, offset: int) -> Bitmap | None:
    """Parse the first 256 bytes of a bitmap at ``offset`` of its member; return None if ``data`` is no bitmap."""
    if len(data) < _SUPER.size:
        return None
    magic, version, uuid, events, cleared, size, state, chunk, *_ = _SUPER.unpack_from(data)
    if magic != MAGIC or not chunk:
        return None
    return Bitmap(
        version=version,
        uuid=":".join(uuid.hex()[start : start + 8] for start in range(0, 32, 8)),
        events=events,
        events_cleared=cleared,
        sync_size=size * SECTOR,
        stale=bool(state & _STALE),
        chunk_size=chunk,
        offset=offset + HEADER,
    )


def assembled(found: Mapping[int, Superblock | None]) -> Assembled | str:
    """Return the array that md would assemble from members with these superblocks; or why the array is unknown."""
    if len({one.uuid for one in found.values() if one is not None and one.whole}) > 1:
        return SEVERAL
    try:
        return Assembled.of(found) or "no member has a whole superblock"
    except RequestError as error:
        return str(error)


@dataclass(frozen=True)
class Accuracy:
    """The rows of an array that differ in a crash state, by what md would do about them after assembly."""

    policy: str
    """md's consistency policy: ``bitmap``, ``resync``, ``ppl`` or ``journal``; ``none`` without redundancy."""
    differ: tuple[Difference, ...] = ()
    """All rows whose copies or parity differ from the data."""
    unmarked: tuple[Difference, ...] = ()
    """Rows that md would not resync, whichever member's metadata md reads: a failure, as the rows stay different."""
    uneven: tuple[Difference, ...] = ()
    """Rows that the bitmaps of only some members mark: a resync depends on the member whose bitmap md reads."""
    settled: tuple[Difference, ...] = ()
    """Rows that differ although their last write had ended long before the cut: a failure even if md resyncs them."""
    changed: tuple[Difference, ...] = ()
    """Rows whose copies differ because the page changed between md's writes of it; md(4) allows this for mirrors."""
    all_marked: bool = False
    """Whether the bitmap marks all chunks, as on a new array for its first seconds; then no row can be unmarked."""
    unchecked: str | None = None
    """Reason why redundancy was not checked; None if it was checked."""

    @property
    def kept(self) -> bool:
        """Whether md would resync all rows that differ, and all were written whole, or redundancy was not checked."""
        return not (self.unmarked or self.uneven or self.settled)

    def __str__(self) -> str:
        if self.unchecked:
            return f"redundancy not checked: {self.unchecked}"
        parts = [f"{len(self.differ)} rows differ"]
        if self.all_marked:
            parts.append("the bitmap marks all chunks")
        if self.unmarked:
            parts.append(f"rows that md would not resync: {len(self.unmarked)}, the first {self.unmarked[0]}")
        if self.settled:
            parts.append(f"rows that were never written whole: {len(self.settled)}, the first {self.settled[0]}")
        if self.changed:
            parts.append(
                f"rows whose page changed during write-back: {len(self.changed)}, the first {self.changed[0]}"
            )
        if self.uneven:
            parts.append(
                f"rows that the bitmaps of only some members mark: {len(self.uneven)}, the first {self.uneven[0]}"
            )
        return "; ".join(parts)


def accuracy_of(array: Assembled, read: ReadMember, differ: Iterable[Difference]) -> Accuracy:
    """Return the differing rows by what md would do about them if it assembled the members of ``array``."""
    features, found = array.superblock.features, tuple(differ)
    if not array.striping.raid.redundant:
        return Accuracy("none", unchecked=array.incomplete)
    for logged, word in ((Feature.PPL | Feature.MULTIPLE_PPLS, "ppl"), (Feature.JOURNAL, "journal")):
        if features & logged:
            return Accuracy(word, found, unchecked=f"the replay of the {word} is not computed")
    policy = "bitmap" if features & Feature.BITMAP else "resync"
    if array.incomplete is not None:
        return Accuracy(policy, found, unchecked=array.incomplete)
    if not found:
        return Accuracy(policy)
    if array.superblock.clean:
        return Accuracy(policy, found, unmarked=found)
    if policy == "resync":
        return Accuracy(policy, found, unmarked=tuple(one for one in found if not _resync_covers(array, one, ROW)))
    return _by_bitmap(array, read, found)


def _resync_covers(array: Assembled, one: Difference, unit: int) -> bool:
    """Return whether md's resync, from ``resync_offset`` rounded down to a multiple of ``unit``, covers a row."""
    return (array.synced_at(one) // unit + 1) * unit > array.superblock.resync_offset


def bitmaps_of(array: Assembled, read: ReadMember) -> dict[int, Bitmap | None]:
    """Return the bitmap of each assembled member by the member's number; None for a member without bitmap."""
    found: dict[int, Bitmap | None] = {}
    for role, number in array.members.items():
        offset = array.bitmap_offsets[role]
        found[number] = None if offset is None else parse_bitmap(read(number, offset, HEADER), offset)
    return found


def _by_bitmap(array: Assembled, read: ReadMember, found: tuple[Difference, ...]) -> Accuracy:
    bitmaps = bitmaps_of(array, read)
    versions = {one.version for one in bitmaps.values() if one is not None}
    if versions & {CLUSTERED, LOCKLESS}:
        return Accuracy("bitmap", found, unchecked=f"the bitmap has version {max(versions)}")
    unmarked, uneven = [], []
    for one in found:
        marks = [_would_resync(array, read, number, bitmap, one) for number, bitmap in bitmaps.items()]
        if not any(marks):
            unmarked.append(one)
        elif not all(marks):
            uneven.append(one)
    counts, chunks = dirty(bitmaps, read), {number: one.chunks for number, one in bitmaps.items() if one}
    return Accuracy("bitmap", found, tuple(unmarked), tuple(uneven), all_marked=counts == chunks)


def _would_resync(array: Assembled, read: ReadMember, number: int, bitmap: Bitmap | None, one: Difference) -> bool:
    if bitmap is None or not _resync_covers(array, one, bitmap.chunk_size):
        return False
    # md resyncs the whole member if its bitmap is stale or older than the superblock.
    return bitmap.stale or bitmap.events < array.superblock.events or bitmap.marked(read, number, array.synced_at(one))


def dirty(bitmaps: Mapping[int, Bitmap | None], read: ReadMember) -> dict[int, int]:
    """Return the number of marked chunks in the bitmap of each member, by the member's number."""
    counts: dict[int, int] = {}
    for number, one in bitmaps.items():
        if one is not None:
            bits = int.from_bytes(read(number, one.offset, -(-one.chunks // 8)), "little")
            counts[number] = (bits & ((1 << one.chunks) - 1)).bit_count()
    return counts


class Redundancy:
    """Compares copies and parity with the data, in the crash states at the current cut of ``window``.

    The caller calls `moved` after each move of the window, including the first move.
    """

    def __init__(self, window: DiskStates) -> None:
        self.window = window
        self._written: set[tuple[int, int]] = set()
        """Member and block number of all blocks that have become durable."""
        self._uuid: str | None = None
        """UUID of the array at the current cut; None without an array."""
        self._differ: set[int] = set()
        """Rows that differ in the durable content at the current cut."""

    def moved(self, patch: Patch) -> None:
        """Compare the rows of the blocks in ``patch``, which became durable with the last move of the window."""
        self._written.update(patch.blocks)
        durable = CrashState(self.window.cut)
        array = self.array(durable)
        if not isinstance(array, Assembled):
            self._uuid, self._differ = None, set()
            return
        # For a newly created array, compare the rows of all blocks that were ever written.
        blocks = patch.blocks if array.superblock.uuid == self._uuid else self._written
        changed = (*_regions(blocks), *self._requests(self.window.caches.kept))
        if array.superblock.uuid != self._uuid:
            self._uuid, self._differ = array.superblock.uuid, set()
        rows = sorted({*self._differ, *array.rows_of(changed)})
        found = differences(array, self._reader(durable), rows)
        # Rows cannot be compared while a member is missing: keep all of them for the time when the member is back.
        self._differ = set(rows) if array.incomplete else {one.row for one in found}

    def array(self, state: CrashState) -> Assembled | str:
        """Return the array as md would assemble it in a state; or the reason why the array is unknown."""
        recording = self.window.recording
        if recording.unreadable is not None:
            return recording.unreadable
        read = self._reader(state)
        return assembled({one: recording.superblock(partial(read, one)) for one in range(len(recording.members))})

    @property
    def differing(self) -> frozenset[int]:
        """Rows that differ in the durable content at the current cut."""
        return frozenset(self._differ)

    def rows(self, state: CrashState) -> Rows:
        """Return the result of `accuracy` for a state as counts, for the record."""
        found = self.accuracy(state)
        left = (*found.settled, *found.unmarked, *found.uneven)
        return Rows(
            differ=len(found.differ),
            unmarked=len(found.unmarked),
            uneven=len(found.uneven),
            settled=len(found.settled),
            changed=len(found.changed),
            all_marked=found.all_marked,
            first=str(left[0]) if left else "",
            unchecked=found.unchecked,
        )

    def accuracy(self, state: CrashState) -> Accuracy:
        """Return the rows that differ in a state, by what md would do about them."""
        array, read = self.array(state), self._reader(state)
        if isinstance(array, str):
            return Accuracy("none", unchecked=array)
        touched = array.rows_of(self._requests((*self.window.open, *self.window.caches.kept)))
        rows = sorted({*self._differ, *touched}) if array.superblock.uuid == self._uuid else touched
        found = accuracy_of(array, read, differences(array, read, rows))
        recording = self.window.recording
        uncertain = {*self.window.open, *self.window.caches.kept}
        ended = () if found.unchecked else settled(array, recording, uncertain, state.cut, found.differ)
        suspects = tuple(dict.fromkeys((*found.unmarked, *ended)))
        if not suspects or array.striping.raid.copies == 1:
            return replace(found, settled=ended)
        changed = changed_under_write_back(array, recording, self._survived(state), state.cut, suspects)
        unmarked, ended = (tuple(one for one in of if one not in changed) for of in (found.unmarked, ended))
        return replace(found, unmarked=unmarked, settled=ended, changed=changed)

    def _survived(self, state: CrashState) -> Callable[[int], bool]:
        """Return a function that returns whether a request survived whole in a state."""
        whole, open_ = state.whole, set(self.window.open)
        return lambda number: number in whole or (number < state.cut and number not in open_)

    def _reader(self, state: CrashState) -> ReadMember:
        return lambda member, offset, length: self.window.read(state, member, offset, length)

    def _requests(self, numbers: Iterable[int]) -> Iterator[Region]:
        for number in numbers:
            record = self.window.recording.request(number)
            yield record.member, record.offset, record.length


def _regions(blocks: Iterable[tuple[int, int]]) -> Iterator[Region]:
    return ((member, block * BLOCK, ROW) for member, block in blocks)


def never_written(log: Path, array: ArraySpec) -> list[str] | None:
    """Return descriptions of the first rows that differ at the end of a write log although no write is in progress.

    The last write of such a row was durable on its members, and had ended, more than `SETTLED_NS` before. Rows whose
    copies differ because the page changed while md wrote it are left out. None: the log does not tell.
    """
    try:
        recording = Recording(WriteLog(log), array)
    except (LogError, OSError):
        return None
    window = DiskStates(recording)
    redundancy = Redundancy(window)
    cut = len(recording.records)
    redundancy.moved(window.move(cut))
    found = redundancy.accuracy(CrashState.of(cut, window.open))
    return None if found.unchecked else [str(one) for one in found.settled[:MOST_DESCRIBED]]
