"""md's metadata on members: superblock 1.2 and write-intent bitmap."""

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntFlag

from raidproof.core.layer import State, found_in
from raidproof.core.units import GIB, KIB, MIB, SECTOR, parse_size

Read = Callable[[int, int], bytes]
"""Reads (offset, size) of a member, in bytes."""

OFFSET = 4096
"""Offset of a superblock of format 1.2 on a member, in bytes."""
SIZE = 4096
MAGIC = 0xA92B4EFC
IN_SYNC = (1 << 64) - 1
"""The ``resync_offset`` of an array that needs no resync."""
SPARE, FAULTY, JOURNAL = 0xFFFF, 0xFFFE, 0xFFFD
"""Roles of devices that have no slot in the array."""

_HEAD = struct.Struct("<IIII16s32sQiIQIIiIQiIIi")  # constant array information
_DEVICE = struct.Struct("<QQQQII16sBBHi")  # constant information of this device
_STATE = struct.Struct("<QQQII")  # array state
_STATE_AT = 192
_CHECKSUM_AT = 216
_ROLES_AT = 256
_MOST_ROLES = (SIZE - _ROLES_AT) // 2

LEAST_CHUNK = 4 * KIB
"""Smallest number of bytes that one bit may cover in mdadm (``add_internal_bitmap1`` in its super1.c).

Md itself would accept 512, and as mdadm only powers of two (``md_bitmap_read_sb`` in drivers/md/md-bitmap.c).
"""
LARGEST_CHUNK = GIB
"""mdadm stores the size as an int (``struct shape`` in mdadm.h), in bytes."""
HEADER = 256
"""Bytes of ``bitmap_super_s`` in the kernel's drivers/md/md-bitmap.h; the bits follow."""
_LEAST_OFFSET = MIB
"""Least number of bytes before a member's data, which are never synced."""


class Feature(IntFlag):
    """Bits of ``feature_map``."""

    BITMAP = 1
    RECOVERY_OFFSET = 2
    RESHAPE = 4
    BAD_BLOCKS = 8
    REPLACEMENT = 16
    RESHAPE_BACKWARDS = 32
    NEW_OFFSET = 64
    RECOVERY_BITMAP = 128
    CLUSTERED = 256
    JOURNAL = 512
    PPL = 1024
    MULTIPLE_PPLS = 2048
    RAID0_LAYOUT = 4096


@dataclass(frozen=True)
class Superblock:
    """The superblock of one member. Sizes and offsets in bytes; offsets of areas from the start of the member."""

    uuid: str
    """UUID of the array, as mdadm prints it."""
    name: str
    features: Feature
    level: int
    layout: int
    size: int
    """Bytes of each member that hold data."""
    chunk_size: int
    raid_disks: int
    data_offset: int
    data_size: int
    """Bytes of this member that could hold data."""
    dev_number: int
    """Index of this member in ``roles``."""
    roles: tuple[int, ...]
    events: int
    resync_offset: int
    """Everything below is in sync: bytes of a member, for a RAID10 of the array; `IN_SYNC` is all."""
    recovery_offset: int
    """Bytes that are rebuilt on a member under rebuild, if the feature bit is set."""
    bitmap_offset: int | None
    ppl_offset: int | None
    ppl_size: int
    bad_blocks_offset: int | None
    bad_blocks_size: int
    whole: bool
    """Whether its checksum is right: md refuses a superblock whose checksum is wrong."""

    @property
    def role(self) -> int:
        """The slot of this member in the array; or `SPARE`, `FAULTY` or `JOURNAL`."""
        return self.roles[self.dev_number] if self.dev_number < len(self.roles) else SPARE

    @property
    def active(self) -> tuple[int, ...]:
        """The slots of the array that have a member, according to this superblock."""
        return tuple(sorted({role for role in self.roles if role < self.raid_disks}))

    @property
    def clean(self) -> bool:
        """Whether no resync is needed, according to this superblock."""
        return self.resync_offset == IN_SYNC


def superblock_of(read: Read) -> Superblock | None:
    """Return the superblock of a member, or None if there is none of format 1.2."""
    return parse_superblock(read(OFFSET, SIZE))


def parse_superblock(data: bytes) -> Superblock | None:
    """Parse a superblock of 4 KiB; return None if these bytes are not the beginning of one."""
    if len(data) < SIZE:
        return None
    magic, major, features, _, uuid, name, _, level, layout, size, chunk, disks, bitmap, *_ = _HEAD.unpack_from(data)
    if magic != MAGIC or major != 1:
        return None
    offset, room, at, recovery, number, _, _, _, _, bad_size, bad_at = _DEVICE.unpack_from(data, _HEAD.size)
    _, events, resync, checksum, most = _STATE.unpack_from(data, _STATE_AT)
    roles = struct.unpack_from(f"<{min(most, _MOST_ROLES)}H", data, _ROLES_AT)
    feature = Feature(features)
    at *= SECTOR
    # The same four bytes hold the offset of the bitmap, or offset and size of the partial parity log.
    ppl_at, ppl_size = struct.unpack("<hH", struct.pack("<i", bitmap))
    logs = bool(feature & (Feature.PPL | Feature.MULTIPLE_PPLS))
    return Superblock(
        uuid=":".join(uuid.hex()[start : start + 8] for start in range(0, 32, 8)),
        name=name.rstrip(b"\0").decode(errors="replace"),
        features=feature,
        level=level,
        layout=layout,
        size=size * SECTOR,
        chunk_size=chunk * SECTOR,
        raid_disks=disks,
        data_offset=offset * SECTOR,
        data_size=room * SECTOR,
        dev_number=number,
        roles=roles,
        events=events,
        resync_offset=IN_SYNC if resync == IN_SYNC else resync * SECTOR,
        recovery_offset=recovery * SECTOR if feature & Feature.RECOVERY_OFFSET else 0,
        bitmap_offset=at + bitmap * SECTOR if feature & Feature.BITMAP else None,
        ppl_offset=at + ppl_at * SECTOR if logs else None,
        ppl_size=ppl_size * SECTOR if logs else 0,
        bad_blocks_offset=at + bad_at * SECTOR if bad_size else None,
        bad_blocks_size=bad_size * SECTOR,
        whole=checksum == checksum_of(data, most),
    )


def checksum_of(data: bytes, most_roles: int) -> int:
    """Return the expected checksum of a superblock: the sum of its 32-bit words, with the checksum itself as 0."""
    end = min(_ROLES_AT + 2 * most_roles, len(data))
    words = struct.unpack_from(f"<{end // 4}I", data)
    total: int = sum(words) - words[_CHECKSUM_AT // 4]
    if end % 4:
        total += int.from_bytes(data[end - 2 : end], "little")
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF


def freshest(superblocks: Mapping[int, Superblock | None]) -> Superblock | None:
    """Return the superblock that md trusts: the one with the most events among those with a valid checksum."""
    whole = [one for _, one in sorted(superblocks.items()) if one is not None and one.whole]
    return max(whole, key=lambda one: one.events, default=None)


def least_chunk(synced: int, member: int) -> int:
    """Return the smallest chunk, in bytes, whose bits fit into the space that mdadm reserves for them.

    ``synced`` is what the bitmap covers: of each member, for a RAID10 of the array. The space depends on the size of a
    ``member``: a page up to 8 GiB, 64 KiB up to 200 GiB, else 128 KiB (``choose_bm_space`` in mdadm's super1.c). In
    memory md allocates a page per 2,048 chunks when one of them is written (``PAGE_COUNTER_RATIO`` in md-bitmap.c).
    """
    room = 4 * KIB if member <= 8 * GIB else 64 * KIB if member <= 200 * GIB else 128 * KIB
    bits, chunk = (room - HEADER) * 8, LEAST_CHUNK
    while max(0, synced - _LEAST_OFFSET) // chunk + 1 > bits:
        chunk *= 2
    return chunk


def by_device(text: str, heading: str) -> dict[str, str]:
    """Return what mdadm prints about each device, by its path, which is the group of the pattern of a heading."""
    parts = re.split(heading, text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


class Bitmap(State):
    """The bitmap on one member."""

    regions: int
    dirty: int
    """Regions that are marked, so that md would resync them."""
    region_size: int
    """Bytes of each member that one bit covers."""
    events: int
    events_cleared: int
    """The array's events when a bit was last cleared: an older member cannot be re-added."""


def examine_bitmap_command(paths: Iterable[str]) -> list[str]:
    """Return the command that reads the bitmaps on members; the array may be offline."""
    return ["mdadm", "--examine-bitmap", *paths]


def parse_bitmaps(text: str) -> dict[str, Bitmap]:
    """Parse ``mdadm --examine-bitmap`` of several devices, by their paths.

    Raises:
        RigError: a line is missing, or the output was cut off.
    """
    return {path: _bitmap(part, path) for path, part in by_device(text, r"^ *Filename : (\S+)\n").items()}


def _bitmap(text: str, path: str) -> Bitmap:
    def number(pattern: str, what: str) -> int:
        return int(found_in(pattern, text, f"{what} of the bitmap on {path}"))

    size = found_in(r"^ *Chunksize : (\d+ [KMG]?B)", text, f"chunk size of the bitmap on {path}")
    return Bitmap(
        regions=number(r"^ *Bitmap : (\d+) bits", "bits"),
        dirty=number(r"^ *Bitmap : .* (\d+) dirty", "dirty bits"),
        region_size=parse_size(re.sub(r" ([KMG])B$", r"\1iB", size)),
        events=number(r"^ *Events : (\d+)", "events"),
        events_cleared=number(r"^ *Events Cleared : (\d+)", "events cleared"),
    )
