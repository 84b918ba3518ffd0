"""The part of a write log that a crash page shows: the requests that can be volatile there, and its bounds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from raidproof.core.errors import RequestError
from raidproof.crash.states import BLOCK, Caches, Recording
from raidproof.disk.writelog import CHANGES, Flag, Kind

MOST_REQUESTS = 12_000
"""Limit of the requests of a page, so that a browser handles each move of the cut at once."""
MOST_BLOCKS = 60_000
"""Limit of the blocks of 4 KiB that the requests of a page cover, so that the page stays below 3 MB."""
MOST_REFUSED = 8
"""Number of cuts in succession that do not fit into the page, after which no more are tried."""


@dataclass(frozen=True)
class Lifetime:
    """The cuts at which a request is volatile."""

    opens: int
    """The first cut at which the request may survive or be lost."""
    sure: int | None = None
    """The first cut at which the request survives every power cut; None if there is none in the log."""
    durable: int | None = None
    """The first cut whose durable content includes the request; later than ``sure`` for some FUA writes."""


def lifetimes(recording: Recording) -> dict[int, Lifetime]:
    """Return the lifetime of each write, discard and write-zeroes request of a recording, by its number."""
    caches = Caches(recording)
    opens: dict[int, int] = {}
    sure: dict[int, int] = {}
    durable: dict[int, int] = {}
    for cut in range(len(recording.records) + 1):
        for number in caches.roll(cut):
            durable[number] = cut
            sure.setdefault(number, cut)
        if cut:
            record = recording.records[cut - 1]
            if record.kind in CHANGES:
                opens.setdefault(cut - 1, cut)
            if record.kind not in CHANGES or record.flags & Flag.FUA:
                for number in caches.kept:
                    sure.setdefault(number, cut)
        for number in caches.in_flight:
            opens.setdefault(number, cut)
    return {number: Lifetime(at, sure.get(number), durable.get(number)) for number, at in sorted(opens.items())}


class Window:
    """The bounds of a page's part of a write log, chosen around the cuts that a reader looks at."""

    def __init__(self, recording: Recording, first: int, focus: Sequence[int]) -> None:
        """Choose the bounds; ``first``: earliest cut; ``focus``: cuts of judged states, the most important ones first.

        Raises:
            RequestError: no cut in ``focus`` has so few volatile requests that a page can show them.
        """
        self.recording = recording
        self.lives = lifetimes(recording)
        self.first, self.last = first, len(recording.records)
        if not self._fits(self.first, self.last):
            self.first, self.last = self._around(first, list(dict.fromkeys(focus)))

    @cached_property
    def requests(self) -> tuple[int, ...]:
        """Numbers of the requests that are not durable at the first cut, and issued before the last cut."""
        return tuple(self._needed(self.first, self.last))

    def _needed(self, first: int, last: int) -> Iterator[int]:
        for number, life in self.lives.items():
            if life.opens <= last and (life.durable is None or life.durable > first):
                yield number

    def _fits(self, first: int, last: int) -> bool:
        blocks = 0
        for count, number in enumerate(self._needed(first, last), start=1):
            record = self.recording.request(number)
            blocks += -(-record.length // BLOCK) if record.kind is Kind.WRITE else 1
            if count > MOST_REQUESTS or blocks > MOST_BLOCKS:
                return False
        return True

    def _around(self, least: int, focus: Sequence[int]) -> tuple[int, int]:
        begin = next((cut for cut in focus if self._fits(cut, cut)), None)
        if begin is None:
            raise RequestError(
                f"no checked state has at most {MOST_REQUESTS:,} volatile requests of {MOST_BLOCKS:,} blocks in "
                "total, so that no page can show its writes",
                remedy="record a shorter run, or explore disks that execute flushes",
            )
        first = last = begin
        refused = 0
        for cut in focus:
            if self._fits(min(first, cut), max(last, cut)):
                first, last, refused = min(first, cut), max(last, cut), 0
            elif (refused := refused + 1) > MOST_REFUSED:
                break
        # Show what leads to the first of these states and follows the last one.
        step = len(self.recording.records)
        while step:
            if first - step >= least and self._fits(first - step, last):
                first -= step
            if last + step <= len(self.recording.records) and self._fits(first, last + step):
                last += step
            step //= 2
        return first, last
