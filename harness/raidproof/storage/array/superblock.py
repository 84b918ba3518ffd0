"""md's metadata on a member: the superblock of format 1.2, and the write-intent bitmap."""

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntFlag

from raidproof.core.layer import State, found_in
from raidproof.core.units import GIB, KIB, MIB, SECTOR, parse_size

Read = Callable[[int, int], bytes]
"""A function that returns the bytes of a member: called with (offset, size) in bytes."""

OFFSET = 4096
"""Offset in bytes of a superblock of format 1.2 on a member."""
SIZE = 4096
"""Bytes of a superblock of format 1.2."""
MAGIC = 0xA92B4EFC
IN_SYNC = (1 << 64) - 1
"""The ``resync_offset`` of an array that needs no resync."""
SPARE, FAULTY, JOURNAL = 0xFFFF, 0xFFFE, 0xFFFD
"""Values of a device's role in the superblock if the device has no slot in the array."""

# The parts of struct mdp_superblock_1 in the kernel's include/uapi/linux/raid/md_p.h.
_HEAD = struct.Struct("<IIII16s32sQiIQIIiIQiIIi")  # constant array information
_DEVICE = struct.Struct("<QQQQII16sBBHi")  # constant information of this device
_STATE = struct.Struct("<QQQII")  # array state
_STATE_AT = 192
_CHECKSUM_AT = 216
_ROLES_AT = 256
_MOST_ROLES = (SIZE - _ROLES_AT) // 2

LEAST_CHUNK = 4 * KIB
"""Smallest bitmap chunk in bytes that mdadm accepts (``add_internal_bitmap1`` in its super1.c).

A bitmap chunk is the number of bytes that one bit covers. md accepts 512 bytes or more, and like mdadm only powers of
two (``md_bitmap_read_sb`` in drivers/md/md-bitmap.c).
"""
LARGEST_CHUNK = GIB
"""Largest bitmap chunk in bytes: mdadm stores the number of bytes as an int (``struct shape`` in mdadm.h)."""
USUAL_CHUNK = 64 * MIB
"""mdadm's default chunk of the bitmap in bytes on all but large members (``add_internal_bitmap1`` in its super1.c)."""
MOST_OF_BIT = 25
"""Least number of bits that cover an array of small disks."""
HEADER = 256
"""Bytes of the bitmap's header, ``bitmap_super_s`` in drivers/md/md-bitmap.h. The bits follow the header."""
_LEAST_OFFSET = MIB
"""Least offset in bytes of a member's data. A resync does not cover the bytes before."""


class Feature(IntFlag):
    """The bits of ``feature_map`` in a superblock (MD_FEATURE_* in the kernel's md_p.h)."""

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
    """The superblock of one member. Sizes and offsets are in bytes; offsets count from the start of the member."""

    uuid: str
    """UUID of the array, as mdadm prints it."""
    name: str
    """Name of the array, with its homehost."""
    features: Feature
    level: int
    """md's number of the level."""
    layout: int
    """The kernel's number of the layout."""
    size: int
    """Bytes of each member that hold data."""
    chunk_size: int
    raid_disks: int
    data_offset: int
    data_size: int
    """Bytes of this member that are available for data."""
    dev_number: int
    """Index of this member in ``roles``."""
    roles: tuple[int, ...]
    """For each device of the array, its slot or `SPARE`, `FAULTY` or `JOURNAL`."""
    events: int
    """Number of updates of the array's superblocks."""
    resync_offset: int
    """Offset in a member's data, for RAID10 in the array, below which all is in sync; `IN_SYNC` if all is."""
    recovery_offset: int
    """Bytes of this member's data that md has rebuilt; 0 without `Feature.RECOVERY_OFFSET`."""
    bitmap_offset: int | None
    ppl_offset: int | None
    ppl_size: int
    bad_blocks_offset: int | None
    bad_blocks_size: int
    whole: bool
    """Whether the checksum is right: md refuses a superblock whose checksum is wrong."""

    @property
    def role(self) -> int:
        """The slot of this member in the array, or `SPARE`, `FAULTY` or `JOURNAL` without a slot."""
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
    """Return the superblock of a member, or None if the member has no superblock of format 1.2."""
    return parse_superblock(read(OFFSET, SIZE))


def parse_superblock(data: bytes) -> Superblock | None:
    """Parse the 4 KiB of a superblock of format 1.2; return None if the bytes are not a superblock."""
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
    # The same four bytes hold the bitmap's offset, or with a partial parity log that log's offset and size.
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
    """Compute the checksum of a superblock from its bytes: the sum of its 32-bit words without the checksum field.

    ``most_roles`` is the number of roles in the superblock (max_dev). Source: calc_sb_1_csum in drivers/md/md.c.
    """
    end = min(_ROLES_AT + 2 * most_roles, len(data))
    words = struct.unpack_from(f"<{end // 4}I", data)
    total: int = sum(words) - words[_CHECKSUM_AT // 4]
    if end % 4:
        total += int.from_bytes(data[end - 2 : end], "little")
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF


def freshest(superblocks: Mapping[int, Superblock | None]) -> Superblock | None:
    """Return the superblock that md uses: the one with the most events, among those with a valid checksum.

    ``superblocks`` are by number of the member. Return None if no superblock is valid.
    """
    whole = [one for _, one in sorted(superblocks.items()) if one is not None and one.whole]
    return max(whole, key=lambda one: one.events, default=None)


def least_chunk(synced: int, member: int) -> int:
    """Return the smallest bitmap chunk in bytes with which the bitmap fits into the space that mdadm reserves.

    ``synced`` is the number of bytes that the bitmap covers: of each member, or for RAID10 of the array. ``member`` is
    the size of a member in bytes. mdadm reserves 4 KiB on members up to 8 GiB, 64 KiB up to 200 GiB, else 128 KiB
    (``choose_bm_space`` in mdadm's super1.c).
    """
    room = 4 * KIB if member <= 8 * GIB else 64 * KIB if member <= 200 * GIB else 128 * KIB
    bits, chunk = (room - HEADER) * 8, LEAST_CHUNK
    while max(0, synced - _LEAST_OFFSET) // chunk + 1 > bits:
        chunk *= 2
    return chunk


def small_chunk(synced: int, member: int) -> int | None:
    """Return the bitmap chunk in bytes with which one bit covers 2 to 4 % of a small array; None for large arrays.

    ``synced`` and ``member``: as for `least_chunk`. With mdadm's default of 64 MiB, one bit would cover all of a small
    array, and no crash would show a bitmap that lacks a mark.
    """
    chunk = LEAST_CHUNK
    while chunk * 2 * MOST_OF_BIT <= synced:
        chunk *= 2
    return max(chunk, least_chunk(synced, member)) if chunk < USUAL_CHUNK else None


def by_device(text: str, heading: str) -> dict[str, str]:
    """Split the output of mdadm about several devices into one text for each device, by path of the device.

    ``heading`` is the regular expression of the line before each part; its group is the path.
    """
    parts = re.split(heading, text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


class Bitmap(State):
    """The write-intent bitmap on one member, as ``mdadm --examine-bitmap`` reports it."""

    regions: int
    """Number of regions, each of which has one bit."""
    dirty: int
    """Number of regions whose bit is set, so that md would resync them."""
    region_size: int
    """Bytes of a region: of each member, or for RAID10 of the array."""
    events: int
    """The array's event count when the bitmap was last written."""
    events_cleared: int
    """The array's event count when a bit was last cleared. md re-adds no member with an older event count."""


def examine_bitmap_command(paths: Iterable[str]) -> list[str]:
    """Return the command that reads the bitmaps on the devices with these paths; the array may be offline."""
    return ["mdadm", "--examine-bitmap", *paths]


def parse_bitmaps(text: str) -> dict[str, Bitmap]:
    """Parse the output of ``mdadm --examine-bitmap`` into the bitmap of each device, by path.

    Raises:
        RigError: a line is missing, so that the output is truncated or malformed.
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
