"""What a member's md superblock says of its array: format 1.2, as it lies on the disk.

Layout and constants are those of ``struct mdp_superblock_1`` in the kernel's include/uapi/linux/raid/md_p.h; the
checksum is that of ``calc_sb_1_csum`` in drivers/md/md.c.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntFlag

from raidproof.core.units import SECTOR

Read = Callable[[int, int], bytes]
"""Reads so many bytes of a member from an offset on."""

OFFSET = 4096
"""Where a superblock of format 1.2 lies on a member, in bytes."""
SIZE = 4096
MAGIC = 0xA92B4EFC
IN_SYNC = (1 << 64) - 1
"""A ``resync_offset`` that says that nothing is to be resynced."""
SPARE, FAULTY, JOURNAL = 0xFFFF, 0xFFFE, 0xFFFD
"""Roles that are no place in the array."""

_HEAD = struct.Struct("<IIII16s32sQiIQIIiIQiIIi")  # constant array information
_DEVICE = struct.Struct("<QQQQII16sBBHi")  # constant information of this device
_STATE = struct.Struct("<QQQII")  # array state
_STATE_AT = 192
_CHECKSUM_AT = 216
_ROLES_AT = 256
_MOST_ROLES = (SIZE - _ROLES_AT) // 2


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
    """One member's superblock. Sizes and offsets are bytes; those of areas count from the start of the member."""

    uuid: str
    """The array's, as mdadm writes it."""
    name: str
    features: Feature
    level: int
    layout: int
    size: int
    """What of each member holds data."""
    chunk_size: int
    raid_disks: int
    data_offset: int
    data_size: int
    """What of this member could hold data."""
    dev_number: int
    """Which entry of ``roles`` is its own."""
    roles: tuple[int, ...]
    events: int
    resync_offset: int
    """What lies below is in sync: bytes of a member, or of the array if it is a RAID10; `IN_SYNC` is all."""
    recovery_offset: int
    """How much of a member that is being rebuilt holds data already, if the feature says so."""
    bitmap_offset: int | None
    ppl_offset: int | None
    ppl_size: int
    bad_blocks_offset: int | None
    bad_blocks_size: int
    whole: bool
    """Whether its checksum is right: md refuses one that is not."""

    @property
    def role(self) -> int:
        """Which place this member has in the array; or `SPARE`, `FAULTY` or `JOURNAL`."""
        return self.roles[self.dev_number] if self.dev_number < len(self.roles) else SPARE

    @property
    def active(self) -> tuple[int, ...]:
        """The places of the array that have a member, according to this one."""
        return tuple(sorted({role for role in self.roles if role < self.raid_disks}))

    @property
    def clean(self) -> bool:
        """Whether it says that no resync is needed."""
        return self.resync_offset == IN_SYNC


def superblock_of(read: Read) -> Superblock | None:
    """Return the superblock of a member, or None if there is none of format 1.2."""
    return parse_superblock(read(OFFSET, SIZE))


def parse_superblock(data: bytes) -> Superblock | None:
    """Read a superblock of 4 KiB, or return None if these bytes are not the beginning of one."""
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
    # The same four bytes: the place of the bitmap, or place and size of the partial parity log.
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
    """Return the checksum that a superblock should have: the sum of its 32-bit words, the checksum itself as 0."""
    end = min(_ROLES_AT + 2 * most_roles, len(data))
    words = struct.unpack_from(f"<{end // 4}I", data)
    total: int = sum(words) - words[_CHECKSUM_AT // 4]
    if end % 4:
        total += int.from_bytes(data[end - 2 : end], "little")
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF


def freshest(superblocks: Mapping[int, Superblock | None]) -> Superblock | None:
    """Return what md believes: the superblock with the most events among those that are whole."""
    whole = [one for _, one in sorted(superblocks.items()) if one is not None and one.whole]
    return max(whole, key=lambda one: one.events, default=None)
