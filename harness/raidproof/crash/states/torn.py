"""Which blocks of the ledger a torn request may have left in part."""

from collections.abc import Iterator

from raidproof.crash.recording import Recording
from raidproof.crash.states.state import CrashState
from raidproof.guest.ledger_writer import HEADER, MAGIC


class Torn:
    """The blocks that the requests of a recording carry, each request read once."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[int, frozenset[tuple[int, int]]] = {}

    def blocks(self, state: CrashState) -> frozenset[tuple[int, int]]:
        """Return file and offset of each block that a request carries which is there in part."""
        torn = [one.request for one in state.survivors if one.spans is not None]
        return frozenset().union(*map(self._carried, torn))

    def _carried(self, request: int) -> frozenset[tuple[int, int]]:
        if request not in self._known:
            self._known[request] = frozenset(carried(bytes(self._recording.request(request).data)))
        return self._known[request]


def carried(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield file and offset of each block of the ledger whose beginning is in some data."""
    at = data.find(MAGIC)
    while at >= 0:
        if at + HEADER.size <= len(data):
            _, file, offset, _, _ = HEADER.unpack_from(data, at)
            yield file, offset
        at = data.find(MAGIC, at + 1)
