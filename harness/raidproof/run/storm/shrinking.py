"""Shrinking of a failing case: fewer faults first, then shorter times, then fewer workers and members."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.fault.schedule import AfterRecovery, AfterReplies, At, ScheduledFault, strikes_of
from raidproof.run.storm.case import Case, why_not

LEAST_S = 0.5
"""Instants and durations in seconds are not made shorter than this."""
LEAST_REPLIES = 10
TENTH = 10


class Size(NamedTuple):
    """The size of a case; cases are compared by the fields in their order."""

    faults: int
    tenths: int
    """Sum of the times of all faults, in tenths of a second and in replies."""
    workers: int
    members: int


def size_of(case: Case) -> Size:
    """Return the size of a case."""
    times = sum(_tenths(one) for one in case.faults)
    return Size(len(case.faults), times, len(case.kinds), len(case.stack.array.members))


def _tenths(one: ScheduledFault) -> int:
    lasts = round((one.lasts_s or 0.0) * TENTH)
    match one.moment:
        case At(seconds) | AfterRecovery(seconds):
            return lasts + round(seconds * TENTH)
        case AfterReplies(count):
            return lasts + count
    return lasts


def candidates(case: Case, *, beyond: bool = False) -> Iterator[Case]:
    """Yield smaller legal cases, the smallest of each kind first."""
    for one in (*_with_fewer_faults(case), *_with_shorter_times(case), *_with_smaller_stacks(case)):
        if size_of(one) < size_of(case) and one.faults and why_not(one, beyond=beyond) is None:
            yield one


def _with_fewer_faults(case: Case) -> Iterator[Case]:
    """Yield the case with each half of its faults, and without each single fault."""
    number = len(case.faults)
    if number > 2:
        yield replace(case, faults=case.faults[: number // 2])
        yield replace(case, faults=_possible(case.faults[number // 2 :]))
    for place in range(number):
        yield replace(case, faults=_possible(case.faults[:place] + case.faults[place + 1 :]))


def _possible(faults: tuple[ScheduledFault, ...]) -> tuple[ScheduledFault, ...]:
    """Return the faults, those at an instant whose moment depends on a fault that is no longer there."""
    made: tuple[ScheduledFault, ...] = ()
    for one in faults:
        try:
            strikes_of([*made, one])
            made = (*made, one)
        except RequestError:
            latest_s = max((one.moment.seconds for one in made if isinstance(one.moment, At)), default=LEAST_S)
            made = (*made, replace(one, moment=At(latest_s)))
    return made


def _with_shorter_times(case: Case) -> Iterator[Case]:
    """Yield the case with all times halved."""
    yield replace(case, faults=tuple(map(_halved, case.faults)))


def _halved(one: ScheduledFault) -> ScheduledFault:
    lasts_s = None if one.lasts_s is None else _half(one.lasts_s)
    match one.moment:
        case At(seconds):
            return replace(one, moment=At(_half(seconds)), lasts_s=lasts_s)
        case AfterRecovery(seconds):
            return replace(one, moment=AfterRecovery(int(seconds * TENTH / 2) / TENTH), lasts_s=lasts_s)
        case AfterReplies(count):
            return replace(one, moment=AfterReplies(max(count // 2, min(count, LEAST_REPLIES))), lasts_s=lasts_s)
    return replace(one, lasts_s=lasts_s)


def _half(seconds: float) -> float:
    return max(int(seconds * TENTH / 2) / TENTH, min(seconds, LEAST_S))


def _with_smaller_stacks(case: Case) -> Iterator[Case]:
    """Yield the case with half of the workers, without each worker, and without the last member."""
    number = len(case.kinds)
    if number > 1:
        yield replace(case, kinds=case.kinds[: number // 2])
        yield replace(case, kinds=case.kinds[number // 2 :])
    if number > 2:
        for place in range(number):
            yield replace(case, kinds=case.kinds[:place] + case.kinds[place + 1 :])
    array = case.stack.array
    if len(array.members) > array.least_members:
        try:
            less = type(array).model_validate(array.model_dump() | {"members": array.members[:-1]})
            yield replace(case, stack=type(case.stack).model_validate(dict(case.stack) | {"array": less}))
        except RequestError:
            return


def shrunk(case: Case, fails: Callable[[Case], bool | None], *, most: int, beyond: bool = False) -> tuple[Case, int]:
    """Return the smallest case found that fails, and the number of cases that were tried, at most ``most``.

    ``fails`` returns whether a case fails as the first one does; None ends the search.
    """
    tried = 0
    seen = {case}
    smaller = True
    while smaller:
        smaller = False
        for one in candidates(case, beyond=beyond):
            if one in seen:
                continue
            if tried >= most:
                return case, tried
            seen.add(one)
            tried += 1
            failed = fails(one)
            if failed is None:
                return case, tried
            if failed:
                case, smaller = one, True
                break
    return case, tried
