"""Whether copies and parity agree with the data in a crash state, and whether md would resync the rows that differ."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from raidproof.core.errors import RequestError
from raidproof.core.units import SECTOR
from raidproof.crash.states import BLOCK, CHANGES, CrashState, DiskStates, Patch, Recording
from raidproof.disk.writelog import Kind
from raidproof.record.exploration import Rows
from raidproof.storage.array.striping import ROW, Assembled, Difference, ReadMember, Region, differences
from raidproof.storage.array.superblock import HEADER, OFFSET, SIZE, Feature, parse_superblock

There = Callable[[int], bool]
"""Returns whether a request survived a crash state as a whole."""

MAGIC = 0x6D746962
HOST_ENDIAN, LITTLE_ENDIAN, CLUSTERED, LOCKLESS = 3, 4, 5, 6
"""Bitmap versions. A clustered array has several bitmaps; a lockless bitmap has a byte per chunk."""
_SUPER = struct.Struct("<II16sQQQIIIIII")
_STALE = 1 << 1
SEVERAL = "its members are of several arrays"


def changed_under_write_back(
    array: Assembled, recording: Recording, there: There, cut: int, differ: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Return the rows that differ only because their page changed while md wrote it to the members."""
    return tuple(one for one in differ if _changed(array, recording, there, cut, one))


def _changed(array: Assembled, recording: Recording, there: There, cut: int, one: Difference) -> bool:
    places = [(role, at) for role, at in array.striping.places(one.array_offset) if role in array.members]
    written = [_writes(recording, array.members[role], array.data_offsets[role] + at, cut) for role, at in places]
    if not all(written):
        return False
    newest = [requests[-1] for requests in written]
    if not all(there(number) and recording.request(number).kind is Kind.WRITE for number in newest):
        return False  # a copy lacks a write that md issued: the resync must repair it
    first = newest[0]
    return all(
        _nearest(recording, first, requests) == requests[-1] and _nearest(recording, requests[-1], written[0]) == first
        for requests in written[1:]
    )


def _writes(recording: Recording, member: int, begin: int, cut: int) -> list[int]:
    """Return the requests that were issued before a cut and change a page of a member, in the order of their issue."""
    instant_ns = recording.instant_ns(cut)
    found = [number for number, record in _changes(recording, member, begin) if number < cut or record <= instant_ns]
    return sorted(found, key=lambda number: recording.request(number).issued_ns)


def _changes(recording: Recording, member: int, begin: int) -> Iterator[tuple[int, int]]:
    """Yield the number and issue time in ns of each request that changes a page of a member."""
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
    """Return the request that was issued nearest to another one; requests of one md write are mutually nearest."""
    at_ns = recording.request(to).issued_ns
    return min(requests, key=lambda number: abs(recording.request(number).issued_ns - at_ns))


@dataclass(frozen=True)
class Bitmap:
    """The header of one member's write-intent bitmap. Sizes are in bytes."""

    version: int
    uuid: str
    events: int
    events_cleared: int
    sync_size: int
    """The range that the bitmap covers: of each member, or for RAID10 of the array."""
    stale: bool
    chunk_size: int
    offset: int
    """Offset of its bits on the member."""

    @property
    def chunks(self) -> int:
        """The number of its bits."""
        return -(-self.sync_size // self.chunk_size)

    def marked(self, read: ReadMember, member: int, offset: int) -> bool:
        """Return whether an offset in the synced range lies in a marked chunk."""
        byte, bit = divmod(offset // self.chunk_size, 8)
        return bool(read(member, self.offset + byte, 1)[0] >> bit & 1)


def parse_bitmap(data: bytes, offset: int) -> Bitmap | None:
    """Parse the first 256 bytes of a bitmap at ``offset`` of its member; return None if they are no bitmap."""
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


@dataclass(frozen=True)
class Accuracy:
    """What md would do about the rows of an array that differ."""

    policy: str
    """The mechanism md relies on: ``bitmap``, ``resync``, ``ppl``, ``journal``; ``none`` without redundancy."""
    differ: tuple[Difference, ...] = ()
    """All rows that differ."""
    unmarked: tuple[Difference, ...] = ()
    """Rows that md would not resync from any member's metadata: they would stay different. A broken promise of md."""
    uneven: tuple[Difference, ...] = ()
    """Rows that only some members' bitmaps mark: the resync depends on the member whose bitmap md reads."""
    changed: tuple[Difference, ...] = ()
    """Rows whose copies differ because the page changed between md's writes, which md(4) allows for mirrors."""
    all_marked: bool = False
    """Whether every chunk is marked, as on a new array for its first seconds: then no row can be unmarked."""
    unchecked: str | None = None
    """Why redundancy was not checked; None if it was."""

    @property
    def kept(self) -> bool:
        """Whether md would resync all rows that differ, or redundancy was not checked."""
        return not (self.unmarked or self.uneven)

    def __str__(self) -> str:
        if self.unchecked:
            return f"not checked: {self.unchecked}"
        said = f"{len(self.differ)} rows differ"
        if self.all_marked:
            said += ", and every chunk is marked"
        if self.unmarked:
            said += f", {len(self.unmarked)} of them md would not resync, the first {self.unmarked[0]}"
        if self.changed:
            said += f", {len(self.changed)} where a page changed under write-back, the first {self.changed[0]}"
        if self.uneven:
            said += f", {len(self.uneven)} are marked on some members only, the first {self.uneven[0]}"
        return said


def accuracy_of(array: Assembled, read: ReadMember, differ: Iterable[Difference]) -> Accuracy:
    """Return which of the differing rows md would not resync if it assembled these members."""
    features, found = array.superblock.features, tuple(differ)
    if not array.striping.raid.redundant:
        return Accuracy("none", unchecked=array.incomplete)
    for logged, word in ((Feature.PPL | Feature.MULTIPLE_PPLS, "ppl"), (Feature.JOURNAL, "journal")):
        if features & logged:
            return Accuracy(word, found, unchecked="what its log replays is not computed here")
    policy = "bitmap" if features & Feature.BITMAP else "resync"
    if array.incomplete is not None:
        return Accuracy(policy, found, unchecked=array.incomplete)
    if not found:
        return Accuracy(policy)
    if array.superblock.clean:
        return Accuracy(policy, found, unmarked=found)
    if policy == "resync":
        return Accuracy(policy, found, unmarked=tuple(one for one in found if not _ahead(array, one, ROW)))
    return _by_bitmap(array, read, found)


def _ahead(array: Assembled, one: Difference, unit: int) -> bool:
    """Return whether the resync, from ``resync_offset`` on in whole units, covers a row."""
    return (array.synced_at(one) // unit + 1) * unit > array.superblock.resync_offset


def bitmaps_of(array: Assembled, read: ReadMember) -> dict[int, Bitmap | None]:
    """Return the bitmap of each assembled member, by the member's number."""
    found: dict[int, Bitmap | None] = {}
    for role, number in array.members.items():
        offset = array.bitmap_offsets[role]
        found[number] = None if offset is None else parse_bitmap(read(number, offset, HEADER), offset)
    return found


def _by_bitmap(array: Assembled, read: ReadMember, found: tuple[Difference, ...]) -> Accuracy:
    bitmaps = bitmaps_of(array, read)
    versions = {one.version for one in bitmaps.values() if one is not None}
    if versions & {CLUSTERED, LOCKLESS}:
        return Accuracy("bitmap", found, unchecked=f"bitmap of version {max(versions)}")
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
    if bitmap is None or not _ahead(array, one, bitmap.chunk_size):
        return False
    # A stale bitmap causes a full resync.
    return bitmap.stale or bitmap.events < array.superblock.events or bitmap.marked(read, number, array.synced_at(one))


def dirty(bitmaps: Mapping[int, Bitmap | None], read: ReadMember) -> dict[int, int]:
    """Return the number of marked chunks of each member's bitmap."""
    counts: dict[int, int] = {}
    for number, one in bitmaps.items():
        if one is not None:
            bits = int.from_bytes(read(number, one.offset, -(-one.chunks // 8)), "little")
            counts[number] = (bits & ((1 << one.chunks) - 1)).bit_count()
    return counts


class Redundancy:
    """Compares copies and parity in the states of a window; call ``moved`` after each move, the first included."""

    def __init__(self, window: DiskStates) -> None:
        self.window = window
        self._written: set[tuple[int, int]] = set()
        self._uuid: str | None = None
        self._differ: set[int] = set()

    def moved(self, patch: Patch) -> None:
        """Note the blocks that have become durable."""
        self._written.update(patch.blocks)
        durable = CrashState(self.window.cut)
        array = self._array(durable)
        if not isinstance(array, Assembled):
            self._uuid, self._differ = None, set()
            return
        # For a newly created array all blocks ever written count.
        blocks = patch.blocks if array.superblock.uuid == self._uuid else self._written
        changed = (*_regions(blocks), *self._requests(self.window.caches.kept))
        if array.superblock.uuid != self._uuid:
            self._uuid, self._differ = array.superblock.uuid, set()
        rows = sorted({*self._differ, *array.rows_of(changed)})
        found = differences(array, self._reader(durable), rows)
        # With a member missing rows cannot be compared; they all have to be compared when it is back.
        self._differ = set(rows) if array.incomplete else {one.row for one in found}

    def _array(self, state: CrashState) -> Assembled | str:
        """Return the array as md would assemble it in a state, or the reason why it is unknown."""
        read = self._reader(state)
        found = {
            number: parse_superblock(read(number, OFFSET, SIZE))
            for number in range(len(self.window.recording.members))
        }
        if len({one.uuid for one in found.values() if one is not None and one.whole}) > 1:
            return SEVERAL
        try:
            return Assembled.of(found) or "no member has a whole superblock"
        except RequestError as error:
            return str(error)

    def rows(self, state: CrashState) -> Rows:
        """Return the numbers of rows that `accuracy` finds."""
        found = self.accuracy(state)
        left = (*found.unmarked, *found.uneven)
        return Rows(
            differ=len(found.differ),
            unmarked=len(found.unmarked),
            uneven=len(found.uneven),
            changed=len(found.changed),
            all_marked=found.all_marked,
            first=str(left[0]) if left else "",
            unchecked=found.unchecked,
        )

    def accuracy(self, state: CrashState) -> Accuracy:
        """Return the rows that differ in a state, and those of them that md would not resync."""
        array, read = self._array(state), self._reader(state)
        if isinstance(array, str):
            return Accuracy("none", unchecked=array)
        touched = array.rows_of(self._requests((*self.window.open, *self.window.caches.kept)))
        rows = sorted({*self._differ, *touched}) if array.superblock.uuid == self._uuid else touched
        found = accuracy_of(array, read, differences(array, read, rows))
        if not found.unmarked or array.striping.raid.copies == 1:
            return found
        changed = changed_under_write_back(array, self.window.recording, self._there(state), state.cut, found.unmarked)
        left = tuple(one for one in found.unmarked if one not in changed)
        return replace(found, unmarked=left, changed=changed)

    def _there(self, state: CrashState) -> Callable[[int], bool]:
        """Return a function that returns whether a request survived as a whole in a state."""
        survivors = {one.request for one in state.survivors if one.spans is None}
        open_ = set(self.window.open)
        return lambda number: number in survivors or (number < state.cut and number not in open_)

    def _reader(self, state: CrashState) -> ReadMember:
        return lambda member, offset, length: self.window.read(state, member, offset, length)

    def _requests(self, numbers: Iterable[int]) -> Iterator[Region]:
        for number in numbers:
            record = self.window.recording.request(number)
            yield record.member, record.offset, record.length


def _regions(blocks: Iterable[tuple[int, int]]) -> Iterator[Region]:
    return ((member, block * BLOCK, ROW) for member, block in blocks)
