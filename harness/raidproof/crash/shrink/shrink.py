"""The least that a failure needs: which surviving writes, which missing ones, and how much of the history.

Delta debugging: the algorithm ``ddmin`` of Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
Input", IEEE Transactions on Software Engineering 28(2), 2002, section 3. What it returns is 1-minimal: without any
single one of its elements there is no failure. Nothing is drawn: the same answers give the same result.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

from raidproof.core.errors import RequestError
from raidproof.crash.states.state import CrashState, Survivor

T = TypeVar("T")
Fails = Callable[[CrashState], bool]
"""Whether a state shows the failure that is looked at."""


class Trials:
    """Asks whether states fail: each of them once, no more than the budget has, and none once it is ``late``."""

    def __init__(self, fails: Fails, budget: int, late: Callable[[], bool] = lambda: False) -> None:
        self._fails = fails
        self._late = late
        self._known: dict[CrashState, bool] = {}
        self.budget = budget

    @property
    def checks(self) -> int:
        """How many states were looked at."""
        return len(self._known)

    @property
    def spent(self) -> bool:
        """Whether budget or time is used up: then a result fails, and is perhaps not the smallest."""
        return self.checks >= self.budget or self._late()

    def __call__(self, state: CrashState) -> bool:
        """Return whether a state fails; one that nobody may look at any more counts as if it did not."""
        if state not in self._known:
            if self.spent:
                return False
            self._known[state] = self._fails(state)
        return self._known[state]

    def shrink(self, state: CrashState) -> CrashState:
        """Return a state with a 1-minimal set of survivors that still fails, torn ones taken apart.

        None left means that the failure needs none: then `missing` says what it lacks.

        Raises:
            RequestError: the state does not fail, or the budget does not allow a look at it.
        """
        few = minimise(state.survivors, lambda kept: self(CrashState(state.cut, tuple(kept))))
        # Only now, because each part is one more element.
        parts = [part for one in few for part in _parts(one)]
        return CrashState(state.cut, _joined(minimise(parts, lambda kept: self(CrashState(state.cut, _joined(kept))))))

    def missing(self, state: CrashState, all_open: Sequence[int]) -> CrashState:
        """Return a state from which a 1-minimal set of writes is missing and which still fails: the dual of `shrink`.

        It begins with everything kept. ``all_open`` are the requests that may or may not be there at the cut; `absent`
        names those that the result lacks, or has in part. None means that it fails even with everything kept.

        Raises:
            RequestError: the state does not fail, or the budget does not allow a look at it.
        """

        def without(some: Sequence[int]) -> CrashState:
            return lacking(some, state, state.cut, all_open)

        return without(minimise(absent(state, all_open), lambda some: self(without(some))))


def absent(state: CrashState, all_open: Iterable[int]) -> tuple[int, ...]:
    """Return the requests that are not there as a whole."""
    whole = {one.request for one in state.survivors if one.spans is None}
    return tuple(number for number in all_open if number not in whole)


def lacking(some: Iterable[int], state: CrashState, cut: int, all_open: Iterable[int]) -> CrashState:
    """Return the state of a cut in which everything open there survives, but of these requests what ``state`` has.

    What completed after the cut, and what nobody had asked for by then, is not in it, whatever ``state`` has of it.
    """
    left, kept = set(some), {one.request: one for one in state.survivors}
    made = (kept.get(number) if number in left else Survivor(number) for number in all_open)
    return CrashState(cut, tuple(one for one in made if one is not None))


def only(state: CrashState, cut: int, all_open: Iterable[int]) -> CrashState:
    """Return the state of a cut in which nothing survives but what ``state`` has of the requests open there."""
    known = set(all_open)
    return CrashState(cut, tuple(one for one in state.survivors if one.request in known))


def earliest(cuts: Sequence[int], fails: Callable[[int], bool], looks: int) -> tuple[int, int | None]:
    """Return an early cut that fails, and the last one before it that was tried and does not; None without any.

    ``cuts`` are in order; the last is known to fail, and is not asked again. The first is asked first: most failures
    need no more than it. Else the rest is halved, ``looks`` in all. A cut that fails may have later ones that do not,
    so the result need not be the earliest of all: it fails, and the one tried before it does not.
    """
    if len(cuts) == 1 or looks < 1:
        return cuts[-1], None
    if fails(cuts[0]):
        return cuts[0], None
    low, high = 0, len(cuts) - 1
    for _ in range(1, looks):
        if high - low == 1:
            break
        middle = (low + high) // 2
        if fails(cuts[middle]):
            high = middle
        else:
            low = middle
    return cuts[high], cuts[low]


def minimise(elements: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return a 1-minimal part of some elements, in their order, that still fails.

    Raises:
        RequestError: all of them do not fail.
    """
    if not fails(elements):
        raise RequestError("there is nothing to shrink: it does not fail")
    if elements and fails(()):
        return ()
    pieces = 2
    while len(elements) > 1:
        size = -(-len(elements) // pieces)
        starts = range(0, len(elements), size)
        subsets = [elements[at : at + size] for at in starts]
        complements = [[*elements[:at], *elements[at + size :]] for at in starts] if pieces > 2 else []
        if (subset := next((one for one in subsets if fails(one)), None)) is not None:
            elements, pieces = subset, 2
        elif (rest := next((one for one in complements if fails(one)), None)) is not None:
            elements, pieces = rest, max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(2 * pieces, len(elements))
    return elements


def _parts(survivor: Survivor) -> Iterable[Survivor]:
    if survivor.spans is None:
        return [survivor]
    return [Survivor(survivor.request, (span,)) for span in survivor.spans]


def _joined(parts: Sequence[Survivor]) -> tuple[Survivor, ...]:
    """Make one survivor again of the parts of each."""
    joined: list[Survivor] = []
    for request, some in groupby(parts, key=lambda one: one.request):
        group = list(some)
        if any(one.spans is None for one in group):
            joined.append(Survivor(request))
        else:
            joined.append(Survivor(request, tuple(span for one in group for span in one.spans or ())))
    return tuple(joined)
