"""Whether md would put right what a crash has left inconsistent: its write-intent bitmap, and what md makes of it.

Layout: ``bitmap_super_s`` in the kernel's drivers/md/md-bitmap.h, the bits right behind it. What is resynced follows
``md_bitmap_read_sb``, ``md_bitmap_load`` and ``md_bitmap_init_from_disk`` in drivers/md/md-bitmap.c, and
``md_do_sync`` in drivers/md/md.c:

* a superblock that says ``resync_offset`` is the end has nothing resynced, whatever bits are set;
* without a bitmap all from ``resync_offset`` on is resynced;
* with one only what is marked, or everything if the bitmap has seen fewer updates than the superblock;
* md reads the bitmap of one member, and which one is not for sure: so all of them must have the mark.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raidproof.core.units import SECTOR
from raidproof.storage.array.bitmap import HEADER
from raidproof.storage.array.parity import ROW, Assembled, Difference, ReadMember
from raidproof.storage.array.superblock import Feature

MAGIC = 0x6D746962
HOST_ENDIAN, LITTLE_ENDIAN, CLUSTERED, LOCKLESS = 3, 4, 5, 6
"""Versions. One of a cluster has several bitmaps, a lockless one a byte for each chunk."""
_SUPER = struct.Struct("<II16sQQQIIIIII")
_STALE = 1 << 1


@dataclass(frozen=True)
class Bitmap:
    """One member's write-intent bitmap, without its bits. Sizes are bytes."""

    version: int
    uuid: str
    events: int
    events_cleared: int
    sync_size: int
    """What it covers: of each member, or of the array if it is a RAID10."""
    stale: bool
    chunk_size: int
    offset: int
    """Where on the member its bits begin."""

    @property
    def chunks(self) -> int:
        """How many bits it has."""
        return -(-self.sync_size // self.chunk_size)

    def marked(self, read: ReadMember, member: int, offset: int) -> bool:
        """Return whether a byte of what is synced lies in a marked chunk."""
        byte, bit = divmod(offset // self.chunk_size, 8)
        return bool(read(member, self.offset + byte, 1)[0] >> bit & 1)


def parse_bitmap(data: bytes, offset: int) -> Bitmap | None:
    """Read the first 256 bytes of a bitmap that begins at ``offset`` of its member, or return None if it is none."""
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
    """What would become of the rows of an array that differ."""

    policy: str
    """What md relies on: ``bitmap``, ``resync``, ``ppl``, ``journal``; ``none`` of an array without redundancy."""
    differ: tuple[Difference, ...] = ()
    """All that differ."""
    unmarked: tuple[Difference, ...] = ()
    """Those that no member's metadata would have resynced: they would stay as they are. A broken promise of md."""
    uneven: tuple[Difference, ...] = ()
    """Those that are marked on some members only: resynced or not, as the member goes that md reads."""
    changed: tuple[Difference, ...] = ()
    """Copies that differ though md wrote both: the page changed between the two, which md(4) allows for mirrors."""
    all_marked: bool = False
    """Every chunk is marked, as on a new array for its first seconds: then nothing could be unmarked."""
    unchecked: str | None = None
    """Why nothing is said about it."""

    @property
    def kept(self) -> bool:
        """Whether everything that differs would be put right, or nothing is said."""
        return not (self.unmarked or self.uneven)

    def __str__(self) -> str:
        if self.unchecked:
            return f"not checked: {self.unchecked}"
        said = f"{len(self.differ)} rows differ"
        if self.all_marked:
            said += ", and every chunk is marked"
        if self.unmarked:
            said += f", {len(self.unmarked)} of them nothing would resync, the first {self.unmarked[0]}"
        if self.changed:
            said += f", {len(self.changed)} where a page changed under write-back, the first {self.changed[0]}"
        if self.uneven:
            said += f", {len(self.uneven)} are marked on some members only, the first {self.uneven[0]}"
        return said


def judge_marks(array: Assembled, read: ReadMember, differ: Iterable[Difference]) -> Accuracy:
    """Return which of the rows that differ md would not resync if it assembled these members."""
    features, found = array.superblock.features, tuple(differ)
    if array.superblock.level == 0:
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
    """Whether the resync, which begins at ``resync_offset``, comes by; it takes whole units."""
    return (array.synced_at(one) // unit + 1) * unit > array.superblock.resync_offset


def bitmaps_of(array: Assembled, read: ReadMember) -> dict[int, Bitmap | None]:
    """Return the bitmap of each member that is taken in, by the member's number."""
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
    # One that is out of date has everything resynced.
    return bitmap.stale or bitmap.events < array.superblock.events or bitmap.marked(read, number, array.synced_at(one))


def dirty(bitmaps: Mapping[int, Bitmap | None], read: ReadMember) -> dict[int, int]:
    """Return how many chunks each member's bitmap has marked."""
    counts: dict[int, int] = {}
    for number, one in bitmaps.items():
        if one is not None:
            bits = int.from_bytes(read(number, one.offset, -(-one.chunks // 8)), "little")
            counts[number] = (bits & ((1 << one.chunks) - 1)).bit_count()
    return counts
