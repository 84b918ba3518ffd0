"""The known gaps of md's partial parity log (PPL), read from the disks of a crash state.

The log's format is that of drivers/md/raid5-ppl.c and include/uapi/linux/raid/md_p.h (struct ppl_header).
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from raidproof.core.units import SECTOR
from raidproof.storage.array.striping import ReadMember, Striping
from raidproof.storage.array.superblock import Superblock, superblock_of

HEADER = 4096
_FIELDS = struct.Struct("<512xIIQII")  # reserved, signature, padding, generation, number of entries, checksum
_ENTRY = struct.Struct("<QIIII")  # first sector in the array, bytes of partial parity, bytes of data, parity disk, CRC
_MOST = (HEADER - _FIELDS.size) // _ENTRY.size
NEAR = 1 << 16
"""Greatest difference of generation between consecutive headers of one member; all members share one counter."""


class Newest(NamedTuple):
    """The newest header of one member's log. Offsets are in bytes from the beginning of the log."""

    end: int
    """Offset at which the next header would begin."""
    room: int
    written: tuple[tuple[int, int], ...]
    """For each entry: offset in the array and length of the data, in bytes."""


def newest(read: Callable[[int, int], bytes], superblock: Superblock) -> Newest | None:
    """Return the newest header: read a log from its beginning, as md does when it starts the array."""
    assert superblock.ppl_offset is not None
    found, at, generation = None, 0, 0
    while at + HEADER <= superblock.ppl_size:
        header = read(superblock.ppl_offset + at, HEADER)
        _, _, now, count, _ = _FIELDS.unpack_from(header)
        if not 0 < count <= _MOST or (found and not generation <= now < generation + NEAR):
            break
        entries = [_ENTRY.unpack_from(header, _FIELDS.size + place * _ENTRY.size) for place in range(count)]
        at += HEADER + sum(entry[1] for entry in entries)
        generation = now
        found = Newest(at, superblock.ppl_size, tuple((entry[0] * SECTOR, entry[2]) for entry in entries))
    return found


def gaps(read: ReadMember, members: int, missing: int) -> Iterator[str]:
    """Yield a description of each known gap because of which the log does not close the write hole of this state."""
    for member in range(members):
        if member == missing:
            continue

        def of(offset: int, length: int, member: int = member) -> bytes:
            return read(member, offset, length)

        superblock = superblock_of(of)
        assert superblock is not None
        log = newest(of, superblock)
        if log is None:
            continue
        if log.end + HEADER > log.room:
            yield f"the newest header of member {member} is the last that fits: md looks for its parity behind it"
        striping = Striping.of(superblock)
        for first, length in log.written:
            roles = {role for at in range(first, first + length, HEADER) for role, _ in striping.places(at)}
            if missing in roles:
                yield f"the newest entry of member {member} writes to the missing one: its parity is not restored"
