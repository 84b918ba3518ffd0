"""The exhaustive choice of crash states: all states with at most a given number of lost requests.

A request is *lost* in a state if it does not survive and was issued before the last surviving request, or before the
first cut. Requests issued later count as not yet issued. A state with no lost request is therefore a state in which
the requests survived in the order of their issue.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, combinations
from math import comb

from raidproof.core.errors import RequestError
from raidproof.crash.directed import NONE_DIRECTED
from raidproof.crash.sampler import Choice, Choices, Policy
from raidproof.crash.states import Caches, CrashState, Recording
from raidproof.disk.writelog import CHANGES

MOST_STATES = 1_000_000
"""Limit of the number of states of one exhaustive exploration; each has an entry in memory and in the journal."""


class Issues:
    """The requests of a recording in the order of their issue, and what was outstanding at each issue.

    A request is *outstanding* from its issue until it is durable: a power cut can lose it. A *flush epoch* of a member
    is a group of requests that were issued while none of the member's outstanding requests became durable: a
    completed flush, a completed FUA write, or a write without volatile cache ends it. A flush epoch of the recording
    ends when that of any member ends. Requests that were outstanding at the first cut belong to the first epoch.
    """

    def __init__(self, recording: Recording, first: int) -> None:
        self.recording = recording
        self.first = first
        """The first cut; requests that were durable at this cut survive in all states."""
        self.order: list[int] = []
        """Numbers of the requests, in the order of their issue, those outstanding at the first cut included."""
        self.outstanding: list[int] = []
        """For each request after those of `base`: the number of requests outstanding at its issue."""
        self._places: list[int] = []
        """For each request after those of `base`: the cut before which the request was issued."""
        self._oldest: list[int] = []
        """For each request after those of `base`: the index in `order` of the first request outstanding at issue."""
        self._durable: dict[int, int] = {}
        """For each request that became durable: the index of the record that made it durable."""
        self.base = 0
        """Number of requests that were outstanding at the first cut."""
        self._read()
        ends = sorted(set(self._durable.values()))
        raw = [bisect_left(ends, place) for place in (first, *self._places)]
        number = {one: place for place, one in enumerate(dict.fromkeys(raw), start=1)}
        self.epochs: list[int] = [number[one] for one in raw]
        """The number of the flush epoch (from 1) of the first cut, followed by that of each request after `base`."""
        nothing_later = len(recording.records)
        later = accumulate(map(self.durable, reversed(self.order[self.base :])), min, initial=nothing_later)
        self._later = list(later)[::-1]
        """The first record that makes a request durable which was issued after the first cut, or after each issue."""

    def _read(self) -> None:
        recording, records = self.recording, self.recording.records
        caches = Caches(recording)
        caches.go(self.first)
        outstanding = dict.fromkeys(caches.open)
        self.order, self.base = list(outstanding), len(outstanding)
        total = len(records) + len(recording.caught)
        waiting = [
            number
            for number in range(self.first, total)
            if recording.request(number).kind in CHANGES and number not in outstanding
        ]
        waiting.sort(key=lambda number: recording.request(number).issued_ns)
        changes = set(recording.durability_changes)
        index = {number: place for place, number in enumerate(self.order)}
        at, issued = 0, set(outstanding)

        def issue(number: int, cut: int) -> None:
            self._oldest.append(index[next(iter(outstanding))] if outstanding else len(self.order))
            self.outstanding.append(len(outstanding))
            self._places.append(cut)
            index[number] = len(self.order)
            self.order.append(number)
            outstanding[number] = None
            issued.add(number)

        for cut in range(self.first, len(records) + 1):
            instant = recording.instant_ns(cut)
            while at < len(waiting) and recording.request(waiting[at]).issued_ns <= instant:
                if waiting[at] not in issued:
                    issue(waiting[at], cut)
                at += 1
            if cut == len(records):
                break
            if records[cut].kind in CHANGES and cut not in issued:
                issue(cut, cut)  # the log has the same instant for its issue and its completion
            if cut in changes:
                caches.go(cut + 1)
                still = set(caches.open)
                for number in [one for one in outstanding if one not in still]:
                    del outstanding[number]
                    self._durable[number] = cut

    def durable(self, number: int) -> int:
        """Return the index of the record that makes a request durable; the number of records if none does."""
        return self._durable.get(number, len(self.recording.records))

    def before(self, index: int) -> Sequence[int]:
        """Return the requests outstanding at the issue of the ``index``-th request after `base`, in order of issue.

        Index -1: the requests outstanding at the first cut.
        """
        if index < 0:
            return self.order[: self.base]
        place = self._places[index]
        window = self.order[self._oldest[index] : self.base + index]
        return [number for number in window if self.durable(number) >= place]

    def last_cut(self, index: int, lost: Sequence[int]) -> int:
        """Return the last cut at which a state is possible: before a record makes an absent request durable.

        ``index``: that of the last surviving request after `base`; -1: none. ``lost``: requests lost before it.
        """
        return min(self._later[index + 1], *map(self.durable, lost), len(self.recording.records))


class AllLosses:
    """All crash states of a recording with at most ``most`` lost requests, each once, without torn requests.

    Each set of requests that are there, durable or surviving, is one state. Its cut is the last at which the state is
    possible, when the most operations are acknowledged. States with fewer lost requests come first.

    ``epochs``: the first and last flush epoch (from 1) whose requests are the last surviving ones; None: all epochs.

    Raises:
        RequestError: the recording has no such epochs; or there are more states than `MOST_STATES`.
    """

    def __init__(
        self, recording: Recording, most: int, *, first: int = 0, epochs: tuple[int, int] | None = None
    ) -> None:
        self.recording = recording
        self.directed = NONE_DIRECTED
        self.most = most
        self.issues = Issues(recording, first)
        self.of_epochs = self.issues.epochs[-1]
        """Number of flush epochs in the recording from the first cut on."""
        self.epochs = epochs or (1, self.of_epochs)
        """The first and the last flush epoch of the states."""
        low, high = self.epochs
        if not 1 <= low <= high <= self.of_epochs:
            raise RequestError(
                f"flush epochs {low} to {high} do not exist: the recording has the epochs 1 to {self.of_epochs:,}",
                remedy=f"choose a range between 1 and {self.of_epochs}",
            )
        self._sizes = (self.issues.base, *self.issues.outstanding)
        self._begin = bisect_left(self.issues.epochs, low)
        self._end = bisect_right(self.issues.epochs, high)
        self.counts: tuple[int, ...] = tuple(
            sum(comb(size, lost) for size in self._sizes[self._begin : self._end]) for lost in range(most + 1)
        )
        """Number of states by number of lost requests: 0, 1, ... ``most``."""
        self._offsets = [0]
        """For each number of lost requests, and each last survivor, the number of the first state."""
        for lost in range(most + 1):
            self._offsets += accumulate((comb(size, lost) for size in self._sizes), initial=self._offsets.pop())

    @property
    def total(self) -> int:
        """Number of states."""
        return sum(self.counts)

    def require_few(self) -> None:
        """Refuse a number of states above `MOST_STATES`.

        Raises:
            RequestError: there are more states; the remedy names bounds with fewer states.
        """
        if self.total > MOST_STATES:
            where = "{} to {}".format(*self.epochs)
            raise RequestError(
                f"{self.total:,} crash states have up to {self.most} lost requests in the flush epochs {where}, "
                f"more than the limit of {MOST_STATES:,}",
                remedy=self.fewer,
            )

    @property
    def fewer(self) -> str:
        """What to choose for no more than `MOST_STATES` states, as options of the command line."""
        low = self.epochs[0]
        fewer = [f"--all-losses {most}" for most in range(self.most) if sum(self.counts[: most + 1]) <= MOST_STATES][
            -1:
        ]
        until, states = low - 1, 0
        for epoch, size in zip(self.issues.epochs[self._begin :], self._sizes[self._begin :], strict=True):
            states += sum(comb(size, lost) for lost in range(self.most + 1))
            if states > MOST_STATES:
                break
            until = epoch - 1
        if until >= low:
            fewer.append(f"--epochs {low}-{until}")
        return f"choose {' or '.join(fewer)}" if fewer else "record a crash test with fewer operations"

    @cached_property
    def order(self) -> tuple[Choice, ...]:
        """All states: those with fewer lost requests first, then those with the earlier cuts."""
        return tuple(
            Choice(cut, Policy.FEW_LOST, number)
            for lost in range(self.most + 1)
            for cut, number in sorted(self._of(lost))
        )

    def _of(self, lost: int) -> Iterator[tuple[int, int]]:
        """Yield (cut, number) of each state with exactly this number of lost requests."""
        for place in range(self._begin, self._end):
            number = self._offsets[lost * len(self._sizes) + place]
            for absent in combinations(self.issues.before(place - 1), lost):
                yield self.issues.last_cut(place - 1, absent), number
                number += 1

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """The cuts of the states."""
        return tuple(sorted({choice.cut for choice in self.order}))

    @cached_property
    def possible(self) -> int:
        """Number of possible crash states without torn ones, also those with more lost requests."""
        return Choices(self.recording, 0, first=self.issues.first, only_replies=True).possible

    def counts_of(self, choices: Collection[Choice]) -> tuple[int, ...]:
        """Return how many of these states have 0, 1, ... lost requests."""
        counted = Counter(self.lost(choice) for choice in choices)
        return tuple(counted[lost] for lost in range(self.most + 1))

    def lost(self, choice: Choice) -> int:
        """Return how many requests are lost in a state."""
        return (bisect_right(self._offsets, choice.number) - 1) // len(self._sizes)

    def state(self, choice: Choice, requests: Sequence[int] = ()) -> CrashState:  # noqa: ARG002  as in `Chosen`
        """Return the crash state of a choice."""
        number = choice.number
        at = bisect_right(self._offsets, number) - 1
        lost, place = divmod(at, len(self._sizes))
        before = self.issues.before(place - 1)
        absent = nth_combination(len(before), lost, number - self._offsets[at])
        gone = {before[one] for one in absent}
        cut = self.issues.last_cut(place - 1, tuple(gone))
        there = [one for one in before if one not in gone]
        if place:
            there.append(self.issues.order[self.issues.base + place - 1])
        return CrashState.of(cut, sorted(one for one in there if self.issues.durable(one) >= cut))


def nth_combination(size: int, chosen: int, rank: int) -> tuple[int, ...]:
    """Return item ``rank`` of ``itertools.combinations(range(size), chosen)`` without computing the items before."""
    picked, low = [], 0
    for left in range(chosen, 0, -1):
        while (with_low := comb(size - low - 1, left - 1)) <= rank:
            rank -= with_low
            low += 1
        picked.append(low)
        low += 1
    return tuple(picked)
