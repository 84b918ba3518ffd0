"""The interest of a cut: a weight that is greater where a defect of the stack is more likely to show.

The weights were chosen by the stored explorations of planted defects (`benchmarks/interest.py`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from raidproof.crash.states import Caches, Recording
from raidproof.disk.writelog import Flag, Kind
from raidproof.workload.ledger_blocks import blocks_in

AT_RISK = 8
"""Factor if an operation was acknowledged after the completion of a request that is still not durable."""
FRESH = 2
"""Factor if an operation was acknowledged and nothing became durable since then."""
SEVERAL_MEMBERS = 2
"""Factor if requests to more than one member are not durable: copies and parity may differ from the data."""
METADATA = 2
"""Factor if a request without content of a file is not durable: metadata of the file system, superblock, bitmap, or
parity."""
BEFORE_DURABLE = 2
"""Factor if the next request is a flush or a FUA write."""


_FUA = int(Flag.FUA)


class Interest:
    """Weights cuts of a recording; ``replies``: instants of acknowledgements in ns."""

    def __init__(self, recording: Recording, replies: Iterable[int]) -> None:
        self.recording = recording
        self._replies = sorted(replies)
        self._changes = tuple(recording.durability_changes())
        self._metadata: dict[int, bool] = {}

    def weights(self, cuts: Iterable[int]) -> dict[int, int]:
        """Return the weight of each cut."""
        caches, weights = Caches(self.recording), {}
        for cut in sorted(set(cuts)):
            for _ in caches.roll(cut):
                pass
            weights[cut] = self._weight(cut, caches.open, len(caches.members))
        return weights

    def _weight(self, cut: int, requests: Sequence[int], members: int) -> int:
        weight, instant, records = 1, self.recording.instant_ns(cut), self.recording.records
        # Requests that have completed have smaller numbers than those in flight, in the order of their completion.
        if requests and requests[0] < cut and self._acknowledged(records.completed_ns[requests[0]], instant):
            weight *= AT_RISK
        changes = bisect_left(self._changes, cut)
        if self._acknowledged(records.completed_ns[self._changes[changes - 1]] if changes else 0, instant):
            weight *= FRESH
        if members > 1:
            weight *= SEVERAL_MEMBERS
        if any(map(self._is_metadata, requests)):
            weight *= METADATA
        if cut < len(records) and (records.kinds[cut] == Kind.FLUSH or records.flags[cut] & _FUA):
            weight *= BEFORE_DURABLE
        return weight

    def _acknowledged(self, since_ns: int, instant_ns: int) -> bool:
        return bisect_left(self._replies, since_ns) < bisect_right(self._replies, instant_ns)

    def _is_metadata(self, number: int) -> bool:
        if number not in self._metadata:
            record = self.recording.request(number)
            content = record.kind is Kind.WRITE and next(blocks_in(record.data), None) is not None
            self._metadata[number] = record.kind is Kind.WRITE and not content
        return self._metadata[number]
