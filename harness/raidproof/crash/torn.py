"""Blocks of the ledger in the requests of which only a part survived a power cut."""

from raidproof.crash.states import CrashState, Recording
from raidproof.workload.ledger_blocks import blocks_in


class Torn:
    """Finds the ledger blocks in torn requests of a recording; the result for each request is cached."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[int, frozenset[tuple[int, int]]] = {}

    def blocks(self, state: CrashState) -> frozenset[tuple[int, int]]:
        """Return (file number, offset) of each ledger block in the torn requests of a state.

        The torn requests of the crash state whose recovery was recorded count, too.
        """
        torn = [one.request for one in state.survivors if one.spans is not None]
        origin = self._recording.origin
        return frozenset(origin.torn_blocks if origin is not None else ()).union(*map(self._carried, torn))

    def _carried(self, request: int) -> frozenset[tuple[int, int]]:
        if request not in self._known:
            data = self._recording.request(request).data
            self._known[request] = frozenset((one.file, one.offset) for one in blocks_in(data))
        return self._known[request]
