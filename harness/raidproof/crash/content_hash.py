"""The hash of the content of all members: two crash states with equal digests have equal content.

The hash of a member is the XOR of the hashes of its blocks, so that a changed block costs two operations, and the hash
of what one request wrote into a whole block is computed once for all crash states.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain

from raidproof.crash.states import BLANK, BLOCK, Recording, Survivor, blocks_of, pieces
from raidproof.disk.writelog import Record, Stored, data_of

Place = tuple[int, int]
"""A block: member index and block number."""


Writers = tuple[int | None, tuple[Survivor, ...]]
"""The hash of a block, and the surviving requests that wrote it; the hash is None until it is needed."""


class ContentHash:
    """The hashes of the durable content at a cut, and of the crash states at this cut.

    ``block_of`` returns the durable content of a block.
    """

    def __init__(self, recording: Recording, block_of: Callable[[int, int], bytes | Stored]) -> None:
        self.recording = recording
        self.blocks: list[dict[int, int]] = [{} for _ in recording.members]
        """For each member the hash of each block that is not blank."""
        self._sums = [0] * len(recording.members)
        self._block_of = block_of
        self._written: dict[int, list[tuple[Place, Writers | None]]] = {}
        """For each request the blocks that it writes; None: it writes only a part of the block."""
        self._mixed: dict[Place, dict[tuple[Survivor, ...], int]] = {}
        """Hashes of blocks whose content depends on the durable content also."""

    def write(self, member: int, block: int, data: bytes) -> bool:
        """Note the new durable content of a block; return whether it is not blank."""
        old, new = self.blocks[member].pop(block, 0), _hash(block, data)
        if new:
            self.blocks[member][block] = new
        self._sums[member] ^= old ^ new
        self._mixed.pop((member, block), None)
        return bool(new)

    def forget(self, request: int) -> None:
        """Forget the hashes of what a request wrote, which has become durable."""
        self._written.pop(request, None)

    def digest(self, survivors: Sequence[Survivor]) -> str:
        """Return the digest of the content of all members after these writes, in the order of the requests."""
        latest: dict[Place, Writers] = {}
        for survivor in survivors:
            for place, whole in self._writes(survivor):
                if whole is not None:
                    latest[place] = whole
                else:
                    latest[place] = (None, (*latest.get(place, (None, ()))[1], survivor))
        sums = list(self._sums)
        for place, (known, writers) in latest.items():
            member, block = place
            hashed = self._mixed_hash(place, writers) if known is None else known
            sums[member] ^= self.blocks[member].get(block, 0) ^ hashed
        return _joined(sums)

    def digest_of(self, overlay: Mapping[Place, bytearray | bytes | Stored]) -> str:
        """Return the digest of the content of all members with other blocks."""
        sums = list(self._sums)
        for (member, block), data in overlay.items():
            content = data.read() if isinstance(data, Stored) else data
            sums[member] ^= self.blocks[member].get(block, 0) ^ _hash(block, content)
        return _joined(sums)

    def _writes(self, survivor: Survivor) -> Sequence[tuple[Place, Writers | None]]:
        record = self.recording.request(survivor.request)
        if survivor.spans:
            ranges = (blocks_of(start, end) for start, end in survivor.spans)
            return [((record.member, block), None) for block in dict.fromkeys(chain.from_iterable(ranges))]
        if survivor.request not in self._written:
            self._written[survivor.request] = list(self._whole(survivor, record))
        return self._written[survivor.request]

    @staticmethod
    def _whole(survivor: Survivor, record: Record) -> Iterator[tuple[Place, Writers | None]]:
        data = record.data
        for block, first, last in pieces(record.offset, record.offset + record.length):
            whole: Writers | None = None
            if last - first == BLOCK:
                at = block * BLOCK - record.offset
                whole = (_hash(block, data[at : at + BLOCK]), (survivor,))
            yield (record.member, block), whole

    def _mixed_hash(self, place: Place, writers: tuple[Survivor, ...]) -> int:
        """Return the hash of a block after these writes into its durable content."""
        hashes = self._mixed.setdefault(place, {})
        if writers not in hashes:
            member, block = place
            begin, target = block * BLOCK, bytearray(data_of(self._block_of(member, block)))
            for survivor in writers:
                record = self.recording.request(survivor.request)
                for start, end in survivor.ranges(record):
                    low, high = max(start, begin), min(end, begin + BLOCK)
                    if low < high:
                        part = record.part(low - record.offset, high - record.offset)
                        target[low - begin : high - begin] = data_of(part)
            hashes[writers] = _hash(block, target)
        return hashes[writers]


def _joined(sums: Sequence[int]) -> str:
    return blake2b(b"".join(one.to_bytes(16) for one in sums), digest_size=16).hexdigest()


def _hash(block: int, data: bytes | bytearray) -> int:
    """Return a hash of a block's content and block number; 0 for a blank block."""
    if data == BLANK:
        return 0
    return int.from_bytes(blake2b(data, digest_size=16, person=block.to_bytes(16)).digest())
