"""The content of the disks at a cut of a recording, and in the crash states at this cut."""

from collections.abc import Iterable, Iterator

from raidproof.core.errors import RigError
from raidproof.crash.content_hash import BLANK, ContentHash, pieces
from raidproof.crash.states import BLOCK, Caches, CrashState, Patch, Recording, Spans, Survivor
from raidproof.disk.sparse_image import OLD_DATA, SparseImage
from raidproof.disk.writelog import Kind

_Overlay = dict[tuple[int, int], bytearray]


class DiskStates:
    """The durable content of all disks at a cut, and the contents of the crash states at this cut.

    The cut moves only forward. Two states with equal digests have equal content, so that one check serves both.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.caches = Caches(recording)
        self._images = [SparseImage(-(-info.size // BLOCK) * BLOCK) for info in recording.members]
        self._hash = ContentHash(recording, self._block)
        self._last: tuple[CrashState, _Overlay] | None = None
        self._old = Patch(dict.fromkeys(_old_blocks(recording), OLD_DATA))
        for (member, block), data in self._old.blocks.items():
            self._images[member].write(data, block * BLOCK)
            self._hash.write(member, block, data)

    @property
    def cut(self) -> int:
        """The current cut of the recording."""
        return self.caches.cut

    @property
    def open(self) -> tuple[int, ...]:
        """Numbers of the requests that may survive or be lost at the current cut, in order."""
        return self.caches.open

    def move(self, cut: int) -> Patch:
        """Move to a later cut; return the blocks that have become durable since the previous cut.

        The result of the first call includes the old data of disks that were not zeroed.

        Raises:
            RigError: the cut lies before the current cut.
        """
        if cut < self.cut:
            raise RigError(f"cannot move to cut {cut}: it is before the current cut {self.cut}")
        overlay: _Overlay = {}
        for number in self.caches.roll(cut):
            self._apply(overlay, Survivor(number))
        for (member, block), data in overlay.items():
            self._images[member].write(data, block * BLOCK)
            self._hash.write(member, block, data)
        self._last = None
        first, self._old = self._old, Patch()
        return first.then(Patch.of(overlay))

    def patch(self, state: CrashState) -> Patch:
        """Return the blocks in which a crash state differs from the durable content at the current cut.

        Raises:
            RigError: the state has another cut.
        """
        return Patch.of(self._overlay(state))

    def digest(self, state: CrashState) -> str:
        """Return a digest of the content of all members in a crash state; equal contents have equal digests.

        Raises:
            RigError: the state has another cut.
        """
        survivors = self._survivors(state)
        records = [self.recording.request(one.request) for one in survivors]
        if any(one.kind is not Kind.WRITE for one in records):
            return self._hash.digest_of(self._overlay(state))
        lost = self.recording.lost
        there = (one for one, record in zip(survivors, records, strict=True) if record.member not in lost)
        return self._hash.digest(list(there) if lost else survivors)

    def read(self, state: CrashState, member: int, offset: int, length: int) -> bytes:
        """Return the content of a byte range of a member in a crash state.

        Raises:
            RigError: the state has another cut.
        """
        overlay = self._overlay(state)
        first, last = offset // BLOCK, -(-(offset + length) // BLOCK)
        parts = [overlay.get((member, block)) or self._block(member, block) for block in range(first, last)]
        return b"".join(parts)[offset - first * BLOCK :][:length]

    def content(self, state: CrashState) -> Patch:
        """Return the content of all members in a crash state, without blank blocks.

        Raises:
            RigError: the state has another cut.
        """
        blocks = {
            (member, block): self._block(member, block) for member, of in enumerate(self._hash.blocks) for block in of
        }
        every = Patch(blocks).then(self.patch(state)).blocks
        return Patch({place: data for place, data in every.items() if data != BLANK})

    def image(self, serial: str) -> SparseImage:
        """Return the durable content of a member at the current cut; the caller must not change the image."""
        return self._images[self.recording.log.number(serial)]

    def _survivors(self, state: CrashState) -> list[Survivor]:
        """Return all requests that survive beside the durable content, in the order in which they are applied."""
        if state.cut != self.cut:
            raise RigError(f"crash state {state.name} has cut {state.cut}, the current cut is {self.cut}")
        # In the order of the requests, so that a surviving earlier write never covers a later durable write.
        kept = (Survivor(number) for number in self.caches.kept)
        return sorted([*state.survivors, *kept], key=lambda one: one.request)

    def _overlay(self, state: CrashState) -> _Overlay:
        survivors = self._survivors(state)
        if self._last is None or self._last[0] != state:
            overlay: _Overlay = {}
            for survivor in survivors:
                self._apply(overlay, survivor)
            self._last = (state, overlay)
        return self._last[1]

    def _apply(self, overlay: _Overlay, survivor: Survivor) -> None:
        record = self.recording.request(survivor.request)
        if record.member in self.recording.lost:
            return
        # Older explorations have states with empty spans, whose requests were checked as whole ones.
        spans: Spans = survivor.spans or ((record.offset, record.offset + record.length),)
        for start, end in spans:
            if record.kind is Kind.WRITE:
                data = record.data[start - record.offset : end - record.offset]
                for block, first, last in pieces(start, end):
                    target = self._open(overlay, record.member, block)
                    at = block * BLOCK + first - start
                    target[first:last] = data[at : at + last - first]
            else:
                self._zero(overlay, record.member, start, end)

    def _zero(self, overlay: _Overlay, member: int, start: int, end: int) -> None:
        # A discard of a whole disk must not create an overlay block for each blank block of the disk.
        first, last = start // BLOCK, -(-end // BLOCK)
        inside: Iterable[int] = range(first, last)
        if last - first > len(self._hash.blocks[member]) + len(overlay):
            written = {*self._hash.blocks[member], *(block for whose, block in overlay if whose == member)}
            inside = sorted(block for block in written if first <= block < last)
        for block in inside:
            if (member, block) in overlay or block in self._hash.blocks[member]:
                target = self._open(overlay, member, block)
                low, high = max(start - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)
                target[low:high] = bytes(high - low)

    def _open(self, overlay: _Overlay, member: int, block: int) -> bytearray:
        place = (member, block)
        if place not in overlay:
            overlay[place] = bytearray(self._block(member, block))
        return overlay[place]

    def _block(self, member: int, block: int) -> bytes:
        return self._images[member].copy(block * BLOCK, BLOCK) or BLANK


def _old_blocks(recording: Recording) -> Iterator[tuple[int, int]]:
    """Yield (member index, block number) of all blocks that have old data in the crash states.

    A block has old data if a request of the recording writes to this block number on any member. Checks read no other
    blocks, and blank blocks need no writes on a checker's disks. Because the block numbers are the same on all
    members, parity agrees.
    """
    rows: set[int] = set()
    if any(info.old for info in recording.members):
        for record in (*recording.records, *recording.caught):
            if record.kind is Kind.WRITE:
                rows.update(range(record.offset // BLOCK, -(-(record.offset + record.length) // BLOCK)))
    for member, info in enumerate(recording.members):
        if info.old and member not in recording.lost:
            yield from ((member, block) for block in rows if block < -(-info.size // BLOCK))
