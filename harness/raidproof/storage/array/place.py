"""What a byte of a member disk is to md: its own metadata, parity, or which byte of the array."""

from dataclasses import dataclass
from enum import StrEnum

from raidproof.core.errors import RequestError
from raidproof.storage.array.parity import Assembled
from raidproof.storage.array.striping import Part, Striping
from raidproof.storage.array.superblock import JOURNAL, OFFSET, SIZE, Superblock


class Area(StrEnum):
    """What md keeps at a place of a member."""

    SUPERBLOCK = "md superblock"
    BITMAP = "write-intent bitmap"
    BAD_BLOCKS = "list of bad blocks"
    PPL = "partial parity log"
    JOURNAL = "array's journal"
    DATA = "data"
    P = "parity"
    Q = "Q"
    UNUSED = "not used by md"


_PARTS = {Part.DATA: Area.DATA, Part.P: Area.P, Part.Q: Area.Q, Part.UNUSED: Area.UNUSED}


@dataclass(frozen=True)
class Place:
    """What a byte of a member is."""

    area: Area
    role: int | None = None
    """The member's place in the array."""
    stripe: int | None = None
    chunk: int | None = None
    """Which chunk of the array's data it lies in; None for parity and metadata."""
    array_offset: int | None = None
    """Which byte of the array it is; None for parity and metadata."""

    def __str__(self) -> str:
        if self.stripe is None:
            return self.area.value
        said = f"stripe {self.stripe}, {self.area.value}"
        return said if self.array_offset is None else f"{said} chunk {self.chunk}, array byte {self.array_offset}"


def place_of(superblock: Superblock, offset: int) -> Place:
    """Return what a byte of the member with this superblock is.

    Raises:
        RequestError: the array's level or layout is not known here.
    """
    inside = offset - superblock.data_offset
    if 0 <= inside < superblock.data_size:
        if superblock.role == JOURNAL:
            return Place(Area.JOURNAL)
        if superblock.role >= superblock.raid_disks:
            return Place(Area.UNUSED)
        chunk = Striping.of(superblock).chunk(superblock.role, inside)
        if chunk.part is Part.UNUSED:
            return Place(Area.UNUSED, superblock.role)
        return Place(_PARTS[chunk.part], superblock.role, chunk.stripe, chunk.number, chunk.offset)
    areas = sorted(_metadata(superblock))
    held = [area for start, end, area in areas if start <= offset < end]
    return Place(held[-1] if held else Area.UNUSED)


def _metadata(superblock: Superblock) -> list[tuple[int, int, Area]]:
    areas = [(OFFSET, OFFSET + SIZE, Area.SUPERBLOCK)]
    if superblock.bad_blocks_offset is not None:
        start = superblock.bad_blocks_offset
        areas.append((start, start + superblock.bad_blocks_size, Area.BAD_BLOCKS))
    if superblock.ppl_offset is not None:
        areas.append((superblock.ppl_offset, superblock.ppl_offset + superblock.ppl_size, Area.PPL))
    if superblock.bitmap_offset is not None:
        # How long it is only the bitmap says; whatever comes next ends it.
        begin = superblock.bitmap_offset
        ends = [start for start, _, _ in areas if start > begin]
        areas.append((begin, min([*ends, superblock.data_offset]), Area.BITMAP))
    return areas


def members_at(array: Assembled, offset: int) -> tuple[tuple[int, int], ...]:
    """Return (member, offset on it) of each copy of a byte of an array, without members that are missing.

    Raises:
        RequestError: the array ends before.
    """
    if not 0 <= offset < array.striping.capacity:
        raise RequestError(f"the array has {array.striping.capacity} bytes, none at {offset}")
    return tuple(
        (array.members[role], array.data_offsets[role] + at)
        for role, at in array.striping.places(offset)
        if role in array.members
    )
