"""Directed crash states: those at the replies to solo operations, with everything volatile lost.

After the reply to a solo operation (`raidproof.workload.solo`), no other operation makes its data durable: if the
stack has left out a flush, this state shows it.

The state at the reply to one solo operation is also the counterfactual state of the next one: it lacks all requests
between the two replies, as if the stack had dropped them. The next operation must be missing in it. A check that does
not miss the operation would not notice its loss.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import count, pairwise
from typing import Self

from raidproof.crash.states import Recording
from raidproof.workload.history import Operation


class Directed:
    """The cuts of directed states, in the order in which they are checked.

    ``replies``: the solo operations in the order in which they began, each with the cut at the instant of its reply.
    """

    def __init__(self, replies: Sequence[tuple[int, Operation]]) -> None:
        self._after: dict[int, list[Operation]] = defaultdict(list)
        for (before, _), (cut, following) in pairwise(replies):
            # Without a request between the two replies, both have the same state.
            if before < cut:
                self._after[before].append(following)
        places = in_pairs([one.kind for _, one in replies])
        self.cuts: tuple[int, ...] = tuple(dict.fromkeys(replies[place][0] for place in places))

    @classmethod
    def of(cls, recording: Recording, solo: Iterable[Operation], *, first: int = 0) -> Self:
        """Return the directed states of a recording; ``first``: the first cut of the exploration."""
        dated = [(one.promised_ns, one) for one in solo if one.promised_ns is not None]
        # A reply counts at a cut if it precedes the cut's latest instant, 1 ns before the next request's effect.
        known = [(recording.place(at_ns + 2), one) for at_ns, one in dated if at_ns < recording.end_ns]
        return cls([(cut, one) for cut, one in known if cut >= first])

    def after(self, cut: int) -> Sequence[Operation]:
        """Return the solo operations whose counterfactual state is the directed state of a cut."""
        return self._after.get(cut, ())


def in_pairs(keys: Sequence[Hashable]) -> Iterator[int]:
    """Yield all places in a sequence of keys, each once, so that the first few places have a pair of each key.

    The pair of a place are this place and the one before it. After the first pair of each key follows a second one of
    each, and so on. Of the pairs of a key, the first is one of which most neighbours have come before: a place that
    belongs to two pairs serves both.
    """
    pairs: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys[1:], start=1):
        pairs[key].append(place)
    rare_first = sorted(pairs, key=lambda key: (len(pairs[key]), str(key)))
    taken: set[int] = set()
    for number in count(1):
        if all(len(pairs[key]) < number for key in rare_first):
            break
        for key in rare_first:
            whole = sum({place - 1, place} <= taken for place in pairs[key])
            if whole >= min(number, len(pairs[key])):
                continue
            incomplete = [place for place in pairs[key] if not {place - 1, place} <= taken]
            best = max(incomplete, key=lambda place: (len({place - 1, place, place + 1} & taken), -place))
            new = [place for place in (best - 1, best) if place not in taken]
            taken.update(new)
            yield from new
    # A single key has no pair.
    yield from (place for place in range(len(keys)) if place not in taken)


NONE_DIRECTED = Directed(())
"""No directed states."""
