"""Members of real arrays as od printed them, and arrays made of random bytes that keep md's rules."""

import struct
from functools import reduce
from operator import xor
from pathlib import Path
from random import Random

from raidproof.storage.array.striping import ROW, Assembled, ReadMember, Striping
from raidproof.storage.array.superblock import Feature, Superblock, checksum_of

MD = Path(__file__).parents[1] / "data" / "md"


def member(name: str) -> bytes:
    """Return the first 16 KiB of a member of a real array."""
    return undump((MD / f"member-{name}.od").read_text())


def undump(text: str) -> bytes:
    """Turn ``od -A x -t x1`` back into bytes; a star stands for repetitions of the line before it."""
    data, line = bytearray(), b""
    for row in text.splitlines():
        if row == "*":
            continue
        at, *words = row.split()
        data += line * ((int(at, 16) - len(data)) // 16)
        line = bytes.fromhex("".join(words))
        data += line
    return bytes(data)


def superblock(striping: Striping, role: int, **changes: object) -> Superblock:
    """Return the superblock of a member of a whole, dirty array without a bitmap."""
    fields = {
        "uuid": "a",
        "name": "raidproof:0",
        "features": Feature(0),
        "level": striping.level,
        "layout": striping.layout,
        "size": striping.size,
        "chunk_size": striping.chunk_size if striping.level != 1 else 0,
        "raid_disks": striping.members,
        "data_offset": 16384,
        "data_size": striping.size,
        "dev_number": role,
        "roles": tuple(range(striping.members)),
        "events": 7,
        "resync_offset": 0,
        "recovery_offset": 0,
        "bitmap_offset": None,
        "ppl_offset": None,
        "ppl_size": 0,
        "bad_blocks_offset": None,
        "bad_blocks_size": 0,
        "whole": True,
    }
    return Superblock(**{**fields, **changes})  # type: ignore[arg-type]


def packed(superblock: Superblock, uuid: bytes = b"a" * 16) -> bytes:
    """Return the 4 KiB of a superblock, as far as its fields say."""
    data, sector = bytearray(4096), 512
    struct.pack_into("<IIII16s", data, 0, 0xA92B4EFC, 1, superblock.features, 0, uuid)
    struct.pack_into(
        "<iIQI",
        data,
        72,
        superblock.level,
        superblock.layout,
        superblock.size // sector,
        superblock.chunk_size // sector,
    )
    struct.pack_into("<I", data, 92, superblock.raid_disks)
    if superblock.bitmap_offset is not None:
        struct.pack_into("<i", data, 96, superblock.bitmap_offset // sector - 8)
    struct.pack_into("<QQQ", data, 128, superblock.data_offset // sector, superblock.data_size // sector, 8)
    struct.pack_into("<I", data, 160, superblock.dev_number)
    resync = superblock.resync_offset if superblock.clean else superblock.resync_offset // sector
    struct.pack_into("<QQ", data, 200, superblock.events, resync)
    struct.pack_into("<I", data, 220, len(superblock.roles))
    struct.pack_into(f"<{len(superblock.roles)}H", data, 256, *superblock.roles)
    struct.pack_into("<I", data, 216, checksum_of(bytes(data), len(superblock.roles)))
    return bytes(data)


class Disks:
    """An array of random data with right copies, P and Q."""

    def __init__(self, striping: Striping, seed: int = 1, **changes: object) -> None:
        self.striping = striping
        supers = {role: superblock(striping, role, **changes) for role in range(striping.members)}
        array = Assembled.of(supers)
        assert array is not None
        self.array = array
        self.disks = [bytearray(16384 + striping.size) for _ in range(striping.members)]
        draw = Random(seed)
        for offset in range(0, striping.capacity, ROW):
            page = draw.randbytes(ROW)
            for role, at in striping.places(offset):
                self.page(role, at, page)
        if striping.level in {4, 5, 6}:
            for row in range(striping.size // ROW):
                self._seal(row)

    def page(self, role: int, at: int, data: bytes) -> None:
        self.disks[role][16384 + at : 16384 + at + len(data)] = data

    def _seal(self, number: int) -> None:
        row = self.striping.raid.row(number * ROW // self.striping.chunk_size)
        values = [int.from_bytes(self.disks[role][16384 + number * ROW :][:ROW]) for role in range(len(self.disks))]
        parities = self.striping.raid.parities(row, values)
        assert row.p is not None
        assert parities[row.p] == reduce(xor, (values[role] for role in row.data))
        for role, parity in parities.items():
            self.page(role, number * ROW, parity.to_bytes(ROW))

    @property
    def read(self) -> ReadMember:
        return lambda number, offset, length: bytes(self.disks[number][offset : offset + length])
