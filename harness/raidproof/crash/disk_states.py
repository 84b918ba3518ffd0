"""The content of the disks at a cut of a recording, and in the crash states at this cut."""

from collections.abc import Iterable, Iterator
from itertools import chain

from raidproof.core.errors import RigError
from raidproof.crash.content_hash import ContentHash
from raidproof.crash.states import BLANK, BLOCK, Caches, CrashState, Patch, Recording, Survivor, blocks_of, pieces
from raidproof.disk.sparse_image import OLD_DATA
from raidproof.disk.writelog import Kind, Stored, data_of

_Overlay = dict[tuple[int, int], bytearray | bytes | Stored]


class DiskStates:
    """The durable content of all disks at a cut, and the contents of the crash states at this cut.

    The cut moves only forward. Two states with equal digests have equal content, so that one check serves both.
    A whole block that a request wrote is not kept in memory: it is read from the write log whenever it is needed.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.caches = Caches(recording)
        self._durable: dict[tuple[int, int], bytes | Stored] = {}
        """The blocks that are not blank, by member index and block number."""
        self._hash = ContentHash(recording, self._block)
        self._last: tuple[CrashState, _Overlay] | None = None
        self._old = Patch(dict.fromkeys(_old_blocks(recording), OLD_DATA))
        self._keep(self._old)

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
            self._hash.forget(number)
        durable = Patch.of(overlay)
        self._keep(durable)
        self._last = None
        first, self._old = self._old, Patch()
        return first.then(durable)

    def _keep(self, durable: Patch) -> None:
        """Note the new durable content of blocks."""
        for place, data in durable.blocks.items():
            if self._hash.write(*place, data_of(data)):
                self._durable[place] = data
            else:
                self._durable.pop(place, None)

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
        touched = blocks_of(offset, offset + length)
        parts = (overlay.get((member, block)) or self._block(member, block) for block in touched)
        data = b"".join(one.read() if isinstance(one, Stored) else one for one in parts)
        return data[offset - touched.start * BLOCK :][:length]

    def content(self, state: CrashState) -> Patch:
        """Return the content of all members in a crash state, without blank blocks.

        Raises:
            RigError: the state has another cut.
        """
        every = Patch(self._durable).then(self.patch(state)).blocks
        return Patch({place: data for place, data in every.items() if data_of(data) != BLANK})

    def is_blank(self, member: int, block: int) -> bool:
        """Return whether the durable content of a block is only zeroes at the current cut."""
        return (member, block) not in self._durable

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
        for start, end in survivor.ranges(record):
            if record.kind is Kind.WRITE:
                for block, first, last in pieces(start, end):
                    at = block * BLOCK + first - record.offset
                    data = record.part(at, at + last - first)
                    if last - first == BLOCK:
                        overlay[record.member, block] = data
                    else:
                        self._open(overlay, record.member, block)[first:last] = data_of(data)
            else:
                self._zero(overlay, record.member, start, end)

    def _zero(self, overlay: _Overlay, member: int, start: int, end: int) -> None:
        # A discard of a whole disk must not create an overlay block for each blank block of the disk.
        touched = blocks_of(start, end)
        inside: Iterable[int] = touched
        if len(touched) > len(self._hash.blocks[member]) + len(overlay):
            written = {*self._hash.blocks[member], *(block for whose, block in overlay if whose == member)}
            inside = sorted(block for block in written if block in touched)
        for block in inside:
            if (member, block) in overlay or block in self._hash.blocks[member]:
                target = self._open(overlay, member, block)
                low, high = max(start - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)
                target[low:high] = bytes(high - low)

    def _open(self, overlay: _Overlay, member: int, block: int) -> bytearray:
        """Return the content of a block in an overlay, for a change of a part of it."""
        found = overlay.get((member, block)) or self._block(member, block)
        if not isinstance(found, bytearray):
            overlay[member, block] = found = bytearray(data_of(found))
        return found

    def _block(self, member: int, block: int) -> bytes | Stored:
        return self._durable.get((member, block), BLANK)


def _old_blocks(recording: Recording) -> Iterator[tuple[int, int]]:
    """Yield (member index, block number) of all blocks that have old data in the crash states.

    A block has old data if a request of the recording writes to this block number on any member. Checks read no other
    blocks, and blank blocks need no writes on a checker's disks. Because the block numbers are the same on all
    members, parity agrees.
    """
    rows: set[int] = set()
    if any(info.old for info in recording.members):
        for record in chain(recording.records, recording.caught):
            if record.kind is Kind.WRITE:
                rows.update(blocks_of(record.offset, record.offset + record.length))
    for member, info in enumerate(recording.members):
        if info.old and member not in recording.lost:
            yield from ((member, block) for block in rows if block < -(-info.size // BLOCK))
