"""The members' contents at one cut: what is durable, and what each crash state makes of it."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from raidproof.core.errors import RigError
from raidproof.crash.recording import Recording
from raidproof.crash.states.caches import Caches
from raidproof.crash.states.patch import BLOCK, Patch
from raidproof.crash.states.state import CrashState, Spans, Survivor
from raidproof.disk.sparse_image import OLD_DATA, SparseImage
from raidproof.disk.writelog import Kind

_BLANK = bytes(BLOCK)
_Overlay = dict[tuple[int, int], bytearray]


class DiskStates:
    """Rolls forward through a recording. Two states are equal if their digests are: then one check does for both."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.caches = Caches(recording)
        self._platters = [SparseImage(-(-info.size // BLOCK) * BLOCK) for info in recording.members]
        # For each member the hash of each block that is not blank; a member's digest is the sum of them all.
        self._hashes: list[dict[int, int]] = [{} for _ in recording.members]
        self._sums = [0] * len(recording.members)
        self._last: tuple[CrashState, _Overlay] | None = None
        self._old = Patch(dict.fromkeys(_old_blocks(recording), OLD_DATA))
        for (member, block), data in self._old.blocks.items():
            self._platters[member].write(data, block * BLOCK)
            self._hashes[member][block] = hashed = _hash(block, data)
            self._sums[member] ^= hashed

    @property
    def cut(self) -> int:
        """Where it is."""
        return self.caches.cut

    @property
    def open(self) -> tuple[int, ...]:
        """The requests that may or may not be there at this cut, in their order."""
        return self.caches.open

    def move(self, cut: int) -> Patch:
        """Go on to a later cut, and return what has become durable on the way; at first the old data, too.

        Raises:
            RigError: it has been passed already.
        """
        if cut < self.cut:
            raise RigError(f"cut {cut} lies before {self.cut}: a window only goes forward")
        overlay: _Overlay = {}
        for number in self.caches.roll(cut):
            self._apply(overlay, Survivor(number))
        for (member, block), data in overlay.items():
            self._platters[member].write(data, block * BLOCK)
            old, new = self._hashes[member].pop(block, 0), _hash(block, data)
            if new:
                self._hashes[member][block] = new
            self._sums[member] ^= old ^ new
        self._last = None
        first, self._old = self._old, Patch()
        return first.then(Patch.of(overlay))

    def patch(self, state: CrashState) -> Patch:
        """Return what a crash state adds to what is durable.

        Raises:
            RigError: it is of another cut.
        """
        return Patch.of(self._overlay(state))

    def digest(self, state: CrashState) -> str:
        """Return a name for the content of all members: equal contents have equal names.

        Raises:
            RigError: it is of another cut.
        """
        sums = list(self._sums)
        for (member, block), data in self._overlay(state).items():
            sums[member] ^= self._hashes[member].get(block, 0) ^ _hash(block, data)
        return blake2b(b"".join(one.to_bytes(16) for one in sums), digest_size=16).hexdigest()

    def read(self, state: CrashState, member: int, offset: int, length: int) -> bytes:
        """Return what a member holds in a crash state.

        Raises:
            RigError: it is of another cut.
        """
        overlay = self._overlay(state)
        first, last = offset // BLOCK, -(-(offset + length) // BLOCK)
        parts = [overlay.get((member, block)) or self._block(member, block) for block in range(first, last)]
        return b"".join(parts)[offset - first * BLOCK :][:length]

    def image(self, serial: str) -> SparseImage:
        """Return what of a member is durable; not to be written to."""
        return self._platters[self.recording.log.number(serial)]

    def _overlay(self, state: CrashState) -> _Overlay:
        if state.cut != self.cut:
            raise RigError(f"state {state.name} is of another cut than {self.cut}")
        if self._last is None or self._last[0] != state:
            overlay: _Overlay = {}
            # In their order: what survived of an earlier write never covers a later one that is durable.
            kept = (Survivor(number) for number in self.caches.kept)
            for survivor in sorted([*state.survivors, *kept], key=lambda one: one.request):
                self._apply(overlay, survivor)
            self._last = (state, overlay)
        return self._last[1]

    def _apply(self, overlay: _Overlay, survivor: Survivor) -> None:
        record = self.recording.request(survivor.request)
        spans: Spans = survivor.spans or ((record.offset, record.offset + record.length),)
        for start, end in spans:
            if record.kind is Kind.WRITE:
                data = record.data[start - record.offset : end - record.offset]
                for block, first, last in _pieces(start, end):
                    target = self._open(overlay, record.member, block)
                    at = block * BLOCK + first - start
                    target[first:last] = data[at : at + last - first]
            else:
                self._zero(overlay, record.member, start, end)

    def _zero(self, overlay: _Overlay, member: int, start: int, end: int) -> None:
        # A discard of a whole disk must not make a block of each of its pages: blank ones stay as they are.
        first, last = start // BLOCK, -(-end // BLOCK)
        inside: Iterable[int] = range(first, last)
        if last - first > len(self._hashes[member]) + len(overlay):
            written = {*self._hashes[member], *(block for whose, block in overlay if whose == member)}
            inside = sorted(block for block in written if first <= block < last)
        for block in inside:
            if (member, block) in overlay or block in self._hashes[member]:
                target = self._open(overlay, member, block)
                low, high = max(start - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)
                target[low:high] = bytes(high - low)

    def _open(self, overlay: _Overlay, member: int, block: int) -> bytearray:
        place = (member, block)
        if place not in overlay:
            overlay[place] = bytearray(self._block(member, block))
        return overlay[place]

    def _block(self, member: int, block: int) -> bytes:
        return self._platters[member].copy(block * BLOCK, BLOCK) or _BLANK


def _old_blocks(recording: Recording) -> Iterator[tuple[int, int]]:
    """Yield the member and block of all old data that a state is to hold.

    That is where a request of the recording writes on any member: only there anything is ever looked at. All the rest
    is shown blank, which a checker shows at no cost. It is of the same rows on all members, as parity needs it.
    """
    rows: set[int] = set()
    if any(info.old for info in recording.members):
        for record in (*recording.records, *recording.caught):
            if record.kind is Kind.WRITE:
                rows.update(range(record.offset // BLOCK, -(-(record.offset + record.length) // BLOCK)))
    for member, info in enumerate(recording.members):
        if info.old:
            yield from ((member, block) for block in rows if block < -(-info.size // BLOCK))


def _hash(block: int, data: bytes | bytearray) -> int:
    """Return the hash of a block at its place; 0 if it is blank."""
    if data == _BLANK:
        return 0
    return int.from_bytes(blake2b(data, digest_size=16, person=block.to_bytes(16)).digest())


def _pieces(start: int, end: int) -> Iterable[tuple[int, int, int]]:
    """Yield (block, from, to) for each block that a byte range touches; from and to count within the block."""
    for block in range(start // BLOCK, -(-end // BLOCK)):
        yield block, max(start - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)
