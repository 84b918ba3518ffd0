"""Find the known gaps of md's partial parity log (PPL) in the contents of the disks in a crash state.

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
"""Greatest difference between the generations of consecutive headers in one member's log.

All members share one counter of generations, so that the generations in one log are not consecutive.
"""


class Newest(NamedTuple):
    """The newest header in one member's log. Offsets are in bytes from the beginning of the log."""

    end: int
    """Offset at which the next header would begin."""
    room: int
    """Size of the log in bytes."""
    written: tuple[tuple[int, int], ...]
    """For each entry of the header: the offset of its data in the array, and the length of the data, in bytes."""


def newest(read: Callable[[int, int], bytes], superblock: Superblock) -> Newest | None:
    """Return the newest header in one member's log; None if the log has no header.

    The log is read from its beginning, as md does when it starts the array. ``read`` takes an offset on the member and
    a length, in bytes.
    """
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
    """Yield a description of each known gap in the PPLs of a crash state, through which the write hole stays open.

    ``missing`` is the number of the member that the array lacks.
    """
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
            yield f"PPL of member {member}: no header fits after the newest one: md reads the parity at a wrong offset"
        striping = Striping.of(superblock)
        for first, length in log.written:
            roles = {role for at in range(first, first + length, HEADER) for role, _ in striping.places(at)}
            if missing in roles:
                yield f"PPL of member {member}: an entry writes to missing member {missing}: md restores no parity"
