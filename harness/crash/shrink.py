"""The least that a failure needs: which surviving writes, and which missing ones.

Delta debugging: the algorithm ``ddmin`` of Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
Input", IEEE Transactions on Software Engineering 28(2), 2002, section 3. What it returns is 1-minimal: without any
single one of its elements there is no failure. Nothing is drawn: the same answers give the same result.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

from harness.crash.state import CrashState, Survivor
from harness.errors import RequestError

T = TypeVar("T")
Fails = Callable[[CrashState], bool]
"""Whether a state shows the failure that is looked at."""


class Trials:
    """Asks whether states fail: each of them once, and no more of them than the budget has."""

    def __init__(self, fails: Fails, budget: int) -> None:
        self._fails = fails
        self._known: dict[CrashState, bool] = {}
        self.budget = budget

    @property
    def checks(self) -> int:
        """How many states were looked at."""
        return len(self._known)

    @property
    def spent(self) -> bool:
        """Whether the budget is used up: then a result fails, and is perhaps not the smallest."""
        return self.checks >= self.budget

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
        kept = {one.request: one for one in state.survivors}

        def without(some: Sequence[int]) -> CrashState:
            lacking = set(some)
            made = [Survivor(number) if number not in lacking else kept.get(number) for number in all_open]
            return CrashState(state.cut, tuple(one for one in made if one is not None))

        return without(minimise(absent(state, all_open), lambda some: self(without(some))))


def absent(state: CrashState, all_open: Iterable[int]) -> tuple[int, ...]:
    """Return the requests that are not there as a whole."""
    whole = {one.request for one in state.survivors if one.spans is None}
    return tuple(number for number in all_open if number not in whole)


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
