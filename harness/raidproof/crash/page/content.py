"""The contents that a crash page follows: blocks, their units, hashes, rows and stripes."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from raidproof.core.units import SECTOR
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.page.hash import SIZE, page_hash, part_hash
from raidproof.crash.redundancy import Redundancy
from raidproof.crash.states import BLOCK, CrashState, Spans, blocks_of, pieces
from raidproof.disk.writelog import Kind, Record, data_of
from raidproof.record.crash_page import Area, Copies, PageBlock, PageRow, PageStripe
from raidproof.storage.array.striping import ROW, Assembled, Striping
from raidproof.storage.array.superblock import OFFSET

Block = tuple[int, int]
"""Index of the member, and number of the block of 4 KiB on it."""
SUPERBLOCK = OFFSET // BLOCK
"""Number of the block with the superblock."""
SECTORS = BLOCK // SECTOR
WHOLE = (1,)
"""The factors of a block that is part of no parity: one hash of its content."""


@dataclass(frozen=True)
class Geometry:
    """The places of an array's rows on its members."""

    array: Assembled

    @property
    def slots(self) -> list[int | None]:
        """The number of the member in each slot; None if the slot has no member."""
        return [self.array.members.get(slot) for slot in range(self.array.striping.members)]

    @property
    def equations(self) -> int:
        """The number of parities, or 1."""
        return max(1, len(self.array.striping.factors(0)))

    def row(self, block: Block) -> int | None:
        """Return the row of a block; None outside the data."""
        member, number = block
        slot = next((slot for slot, one in self.array.members.items() if one == member), None)
        if slot is None:
            return None
        at = number * BLOCK - self.array.data_offsets[slot]
        return at // ROW if 0 <= at < self.array.striping.size else None

    def area(self, member: int, offset: int) -> Area:
        """Return the part of a member to which a byte belongs."""
        if offset // BLOCK == SUPERBLOCK:
            return Area.SUPERBLOCK
        if member not in self.array.members.values():
            return Area.UNKNOWN
        return Area.METADATA if self.row((member, offset // BLOCK)) is None else Area.DATA

    def block(self, slot: int, row: int) -> Block | None:
        """Return the block of a row in a slot; None if the slot has no member."""
        if slot not in self.array.members:
            return None
        return self.array.members[slot], (self.array.data_offsets[slot] + row * ROW) // BLOCK

    def stripe(self, row: int) -> int:
        """Return the number of the stripe of a row."""
        return row * ROW // self.array.striping.chunk_size

    def partners(self, row: int) -> Iterator[tuple[int, list[tuple[int, Block]]]]:
        """Yield offset in the array and places (slot, block) of each page whose copies a row has."""
        striping = self.array.striping
        if striping.raid.copies == 1:
            return
        chunks = (striping.chunk(slot, row * ROW) for slot in range(striping.members))
        for offset in sorted({chunk.offset for chunk in chunks if chunk.offset is not None}):
            places = ((slot, self.block(slot, at // ROW)) for slot, at in striping.places(offset))
            yield offset, [(slot, block) for slot, block in places if block is not None]

    def factors(self, block: Block) -> tuple[int, ...]:
        """Return the factor of a block in each parity of its stripe; `WHOLE` for a block that has none."""
        row = self.row(block)
        if row is None or self.array.striping.raid.copies > 1:
            return WHOLE
        slot = next(slot for slot, one in self.array.members.items() if one == block[0])
        return tuple(of[slot] for of in _factors(self.array.striping, self.stripe(row))) or WHOLE

    def described(self, row: int) -> PageStripe:
        """Return the description of a row's stripe."""
        number, raid = self.stripe(row), self.array.striping.raid
        found = [raid.content(slot, number) for slot in range(self.array.striping.members)]
        return PageStripe(number=number, parts=[part.value for part, _ in found], chunks=[one for _, one in found])


@lru_cache(maxsize=1024)
def _factors(striping: Striping, stripe: int) -> tuple[tuple[int, ...], ...]:
    return striping.factors(stripe)


class PageContent:
    """The blocks that a page follows, with the hash of each of their contents in the order of `hashes`.

    ``window``: the contents at the page's first cut. ``requests``: the page's requests by number. ``torn``: the
    surviving byte ranges of torn requests, as (member, spans).
    """

    def __init__(
        self,
        window: DiskStates,
        redundancy: Redundancy,
        geometry: Geometry | None,
        requests: Sequence[Record],
        torn: Iterable[tuple[int, Spans]],
    ) -> None:
        self._window = window
        self._durable = CrashState(window.cut)
        self.geometry = geometry
        self.equations = geometry.equations if geometry else 1
        self._cut: set[Block] = set()
        """Blocks that a request or a torn part covers only in part."""
        members = range(len(window.recording.members))
        touched: set[Block] = {(member, SUPERBLOCK) for member in members}
        for record in requests:
            touched.update(self._changed(record))
            self._split(record.member, ((record.offset, record.offset + record.length),))
        for member, spans in torn:
            self._split(member, spans)
        rows: set[int] = set(redundancy.differing) if geometry else set()
        if geometry:
            rows.update(row for block in touched if (row := geometry.row(block)) is not None)
        self._rows = sorted(rows)
        followed = {block for block in touched if block[1] == SUPERBLOCK}
        if geometry:
            for row in self._rows:
                blocks = (geometry.block(slot, row) for slot in geometry.array.members)
                followed.update(block for block in blocks if block is not None)
                followed.update(place for _, places in geometry.partners(row) for _, place in places)
        self.blocks: list[PageBlock] = []
        self._index: dict[Block, PageBlock] = {}
        self.units = 0
        for block in sorted(followed):
            units = SECTORS if block in self._cut else 1
            self._index[block] = PageBlock(member=block[0], number=block[1], unit=self.units, units=units)
            self.blocks.append(self._index[block])
            self.units += units
        self._place = {block: index for index, block in enumerate(sorted(followed))}
        self._factors = {block: self._factors_of(block) for block in self._index}
        self._hashes = bytearray()
        self._count = 0
        for block in self._index:
            content = window.read(self._durable, block[0], block[1] * BLOCK, BLOCK)
            self._add(block, content, (0, BLOCK))

    @property
    def hashes(self) -> str:
        """All hashes in base64."""
        return b64encode(self._hashes).decode()

    def _changed(self, record: Record) -> Iterator[Block]:
        """Yield the blocks whose content a request can change; those that a discard leaves blank are left out."""
        for number in blocks_of(record.offset, record.offset + record.length):
            # A discard may cover the whole disk. The other requests of the page yield the blocks that they write.
            if record.kind is Kind.WRITE or not self._window.is_blank(record.member, number):
                yield record.member, number

    def _split(self, member: int, spans: Spans) -> None:
        for edge in (edge for span in spans for edge in span if edge % BLOCK):
            self._cut.add((member, edge // BLOCK))

    def _factors_of(self, block: Block) -> tuple[int, ...]:
        own = self.geometry.factors(block) if self.geometry else WHOLE
        return (*own, *(0 for _ in range(self.equations - len(own))))

    def units_of(self, member: int, start: int, end: int) -> list[int]:
        """Return the followed units that lie in a byte range of a member."""
        found: list[int] = []
        for number, first, last in pieces(start, end):
            if (block := self._index.get((member, number))) is not None:
                found += (
                    range(block.unit + first // SECTOR, block.unit + last // SECTOR)
                    if block.units > 1
                    else [block.unit]
                )
        return found

    def write(self, record: Record) -> int | None:
        """Add the hashes of a write's content; return the index of the first. None: the request has no content."""
        if record.kind is not Kind.WRITE:
            return None
        begin = self._count
        for number, first, last in pieces(record.offset, record.offset + record.length):
            if (record.member, number) in self._index:
                at = number * BLOCK + first - record.offset
                content = data_of(record.part(at, at + last - first))
                self._add((record.member, number), content, (first, last))
        return begin

    def _add(self, block: Block, content: bytes, span: tuple[int, int]) -> None:
        """Add the hashes of a block, or of the sectors of a block in a byte range."""
        factors = self._factors[block]
        if self._index[block].units == 1:
            self._put([page_hash(content, factor) for factor in factors])
            return
        for start in range(*span, SECTOR):
            sector = content[start - span[0] :][:SECTOR]
            self._put([part_hash(sector, start, factor) for factor in factors])

    def _put(self, hashes: Iterable[int]) -> None:
        for one in hashes:
            self._hashes += one.to_bytes(SIZE)
            self._count += 1

    def block_index(self, block: Block) -> int:
        """Return the index of a followed block in `blocks`."""
        return self._place[block]

    def stripes_and_rows(self) -> tuple[list[PageStripe], list[PageRow]]:
        """Return the stripes, and the rows with indices of their stripes and blocks."""
        stripes: dict[int, PageStripe] = {}
        rows: list[PageRow] = []
        if self.geometry is None:
            return [], []
        for row in self._rows:
            number = self.geometry.stripe(row)
            if number not in stripes:
                stripes[number] = self.geometry.described(row)
            blocks = [self.geometry.block(slot, row) for slot in range(self.geometry.array.striping.members)]
            copies = [
                Copies(offset=offset, places=[(slot, self._place[block]) for slot, block in places])
                for offset, places in self.geometry.partners(row)
            ]
            rows.append(
                PageRow(
                    number=row,
                    # Rows are in ascending order, and so are their stripes: the newest stripe is the last one.
                    stripe=len(stripes) - 1,
                    offset=self.geometry.array.array_offset(row),
                    blocks=[None if block is None else self._place[block] for block in blocks],
                    copies=copies,
                )
            )
        return list(stripes.values()), rows
