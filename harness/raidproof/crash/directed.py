"""Directed crash states: those at the replies to solo operations, with everything volatile lost.

After the reply to a solo operation (`raidproof.workload.solo`), no other operation makes its data durable: if the
stack has left out a flush, this state shows it. States at the replies to other operations are added if they show a
flush that no state at the reply to a solo operation shows, or if the write log says that the data of the operation
were volatile at the reply.

The state at the reply to one solo operation is also the counterfactual state of the next one: it lacks all requests
between the two replies, as if the stack had dropped them. The next operation must be missing in it. If the check does
not report this operation as missing, it would not notice a real loss either.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush
from itertools import chain, islice, pairwise
from typing import NamedTuple, Self

from raidproof.crash.states import Recording
from raidproof.workload.history import Operation

MOST_VOLATILE = 10
"""Greatest number of states at replies to operations whose data were volatile that come before all others."""


class Reply(NamedTuple):
    """The reply to an operation."""

    cut: int
    """The cut at the instant of the reply."""
    operation: Operation
    shows: Set[Hashable] = frozenset()
    """The flushes whose absence the state of this cut would show."""


class Directed:
    """The cuts of directed states, in the order in which they are checked.

    ``replies``: the replies to the solo operations in the order in which these began. ``others``: the replies to other
    operations. ``volatile``: the cuts at replies to operations whose data were volatile, the most important one first.
    """

    def __init__(self, replies: Sequence[Reply], others: Sequence[Reply] = (), volatile: Iterable[int] = ()) -> None:
        self._after: dict[int, list[Operation]] = defaultdict(list)
        for before, following in pairwise(replies):
            # Without a request between the two replies, both have the same state.
            if before.cut < following.cut:
                self._after[before.cut].append(following.operation)
        every = [*replies, *others]
        places = in_pairs([one.operation.kind for one in replies], [one.shows for one in every])
        first = islice(dict.fromkeys(volatile), MOST_VOLATILE)
        self.cuts: tuple[int, ...] = tuple(dict.fromkeys(chain(first, (every[place].cut for place in places))))

    @classmethod
    def of(
        cls,
        recording: Recording,
        solo: Iterable[Operation],
        others: Iterable[Operation] = (),
        volatile: Iterable[Operation] = (),
        *,
        first: int = 0,
        missed_at: Callable[[Iterable[int]], Mapping[int, Set[Hashable]]] | None = None,
    ) -> Self:
        """Return the directed states of a recording.

        ``others``: further operations. ``volatile``: those whose data were volatile at the reply, the most important
        one first. ``first``: the first cut of the exploration. ``missed_at``: returns for instants of power cuts (ns)
        the flushes whose absence each of them would show; None: not known.
        """

        def replies_to(operations: Iterable[Operation]) -> list[Reply]:
            dated = [(one.promised_ns, one) for one in operations if one.promised_ns is not None]
            known = [Reply(recording.place_of_reply(at_ns), one) for at_ns, one in dated if at_ns < recording.end_ns]
            return [one for one in known if one.cut >= first]

        of_solo, of_others = replies_to(solo), replies_to(others)
        lost = [one.cut for one in replies_to(volatile)]
        if missed_at is None:
            return cls(of_solo, volatile=lost)
        shown = missed_at({recording.instant_ns(one.cut) for one in (*of_solo, *of_others)})
        of_solo, of_others = (
            [one._replace(shows=shown[recording.instant_ns(one.cut)]) for one in replies]
            for replies in (of_solo, of_others)
        )
        return cls(of_solo, of_others, lost)

    def after(self, cut: int) -> Sequence[Operation]:
        """Return the solo operations whose counterfactual state is the directed state of a cut."""
        return self._after.get(cut, ())


def in_pairs(keys: Sequence[Hashable], shows: Sequence[Set[Hashable]]) -> Iterator[int]:
    """Yield all places in a sequence of keys, each once, those first that together show most.

    The pair of a place are this place and the one before it. First comes a pair of each key, then the places that show
    what no earlier one shows, the greatest number first, then a second pair of each key, and so on. Places without a
    key, which only ``shows`` has, are yielded only if they show what no earlier one shows.
    """
    order = _Order(keys, shows)
    yield from order.pairs(1)
    yield from order.showing()
    for number in range(2, len(keys)):
        yield from order.pairs(number)
    # A single key has no pair.
    yield from order.take(range(len(keys)))


class _Order:
    """The places that have been taken so far."""

    def __init__(self, keys: Sequence[Hashable], shows: Sequence[Set[Hashable]]) -> None:
        self._shows = shows
        self._pairs: dict[Hashable, list[int]] = defaultdict(list)
        for place, key in enumerate(keys[1:], start=1):
            self._pairs[key].append(place)
        self._rare_first = sorted(self._pairs, key=lambda key: (len(self._pairs[key]), str(key)))
        self._taken: set[int] = set()
        self._shown: set[Hashable] = set()

    def take(self, places: Iterable[int]) -> Iterator[int]:
        """Take places, and yield those that had not been taken."""
        for place in places:
            if place not in self._taken:
                self._taken.add(place)
                self._shown |= self._shows[place]
                yield place

    def pairs(self, number: int) -> Iterator[int]:
        """Take one more pair of each key that has fewer than ``number``; the rarest key comes first."""
        for key in self._rare_first:
            incomplete = [place for place in self._pairs[key] if not {place - 1, place} <= self._taken]
            if incomplete and len(self._pairs[key]) - len(incomplete) < number:
                best = max(incomplete, key=self._worth)
                yield from self.take((best - 1, best))

    def _worth(self, place: int) -> tuple[int, int, int]:
        """Return what a pair is worth: what it shows, less its new places; and the neighbours that have been taken."""
        new = [one for one in (place - 1, place) if one not in self._taken]
        shown = set().union(*(self._shows[one] for one in new)) - self._shown
        return len(shown) - len(new), len({place - 1, place, place + 1} & self._taken), -place

    def showing(self) -> Iterator[int]:
        """Take the places that show something new; this is the greedy algorithm for the set cover (Chvatal 1979)."""
        heap = [(-len(shows), place) for place, shows in enumerate(self._shows) if shows]
        heapify(heap)
        while heap:
            known, place = heappop(heap)
            new = len(self._shows[place] - self._shown)
            # What a place adds only decreases: it is the greatest if it is not less than it was.
            if new == -known:
                yield from self.take([place])
            elif new:
                heappush(heap, (-new, place))


NONE_DIRECTED = Directed(())
"""No directed states."""
