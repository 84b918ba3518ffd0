"""The metadata of an array of dm-raid on a member: the superblock of the target ``raid``, and LVM's label."""

import re
import struct
from typing import NamedTuple

from raidproof.core.units import SECTOR
from raidproof.storage.array.superblock import IN_SYNC, SPARE, Feature, Read, Superblock

SUPERBLOCK_BYTES = 128
"""Bytes of the superblock that are read; its fields end before."""
_MAGIC = b"DmRd"
_V190 = 1
_SUPERBLOCK = struct.Struct("<4sIII QQQQ iiII Q iiIi Q QQQ")
"""struct dm_raid_superblock up to ``sectors``."""
_MDA_AT, _MDA_TEXT = 4096, b" LVM2 x[5A%r0N*>"
_MDA = struct.Struct("<I16sIQQQQ")
"""LVM's header of the metadata area: checksum, magic, version, begin, size; offset and size of the newest text."""


class RaidSuperblock(NamedTuple):
    """The superblock of the target ``raid`` on one member (struct dm_raid_superblock in dm-raid.c)."""

    devices: int
    """Number of members."""
    position: int
    """The slot of this member."""
    events: int
    failed: int
    """Bits of the slots whose members have failed."""
    recovery: int
    """Sector up to which this member is rebuilt; `IN_SYNC` if it is."""
    resync: int
    """Sector up to which the array is in sync; `IN_SYNC` if it is."""
    level: int
    layout: int
    chunk_size: int
    """Bytes."""
    sectors: int
    """Sectors of each member that hold data."""

    def placed(self, uuid: str, name: str, *, bitmap_at: int, data_at: int) -> Superblock:
        """Return the superblock in md's form, for an array ``uuid`` with bitmap and data at these offsets in bytes."""
        roles = tuple(SPARE if self.failed >> slot & 1 else slot for slot in range(self.devices))
        behind = self.recovery != IN_SYNC
        return Superblock(
            uuid=uuid,
            name=name,
            features=Feature.BITMAP | (Feature.RECOVERY_OFFSET if behind else Feature(0)),
            level=self.level,
            layout=self.layout,
            size=self.sectors * SECTOR,
            chunk_size=self.chunk_size,
            raid_disks=self.devices,
            data_offset=data_at,
            data_size=self.sectors * SECTOR,
            dev_number=self.position,
            roles=roles,
            events=self.events,
            resync_offset=self.resync if self.resync == IN_SYNC else self.resync * SECTOR,
            recovery_offset=self.recovery * SECTOR if behind else 0,
            bitmap_offset=bitmap_at,
            ppl_offset=None,
            ppl_size=0,
            bad_blocks_offset=None,
            bad_blocks_size=0,
            whole=True,  # the superblock has no checksum
        )


def parse_superblock(data: bytes) -> RaidSuperblock | None:
    """Parse the superblock of the target ``raid``; return None if the bytes are none, or of a version before 1.9."""
    if len(data) < _SUPERBLOCK.size:
        return None
    magic, features, devices, position, events, failed, recovery, resync, level, layout, chunk, *more = (
        _SUPERBLOCK.unpack_from(data)
    )
    if magic != _MAGIC or not features & _V190:
        return None
    return RaidSuperblock(
        devices, position, events, failed, recovery, resync, level, layout, chunk * SECTOR, sectors=more[-1]
    )


def group_of(read: Read) -> str | None:
    """Return the UUID of the volume group of a member, from LVM's newest metadata on it; None without metadata."""
    header = read(_MDA_AT, _MDA.size)
    if len(header) < _MDA.size:
        return None
    _, magic, _, begin, size, offset, length = _MDA.unpack(header)
    if magic != _MDA_TEXT or not offset or length > size:
        return None
    # The text continues at the begin of the area, behind its first sector, if it reaches the area's end.
    whole = min(length, size - offset)
    text = read(begin + offset, whole) + (read(begin + SECTOR, length - whole) if whole < length else b"")
    found = re.search(rb'^\s*id = "([\w-]+)"', text, re.MULTILINE)
    return found[1].decode() if found else None
