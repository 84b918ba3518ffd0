from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.crash.shrink import Trials, absent, earliest, lacking, minimise, only
from raidproof.crash.states import CrashState, Survivor
from raidproof.disk.writelog import Kind
from tests.crash.conftest import Did

BIG = 10_000
Predicate = Callable[[Sequence[int]], bool]


def of(*requests: int) -> CrashState:
    return CrashState(10, tuple(map(Survivor, requests)))


def requests(state: CrashState) -> list[int]:
    return [one.request for one in state.survivors]


class Counted:
    """Counts how often it is really asked."""

    def __init__(self, holds: Predicate) -> None:
        self.asked: list[CrashState] = []
        self._holds = holds

    def __call__(self, state: CrashState) -> bool:
        self.asked.append(state)
        return self._holds(requests(state))


def minimal(found: Sequence[int], holds: Predicate) -> bool:
    return holds(found) and not any(holds([*found[:at], *found[at + 1 :]]) for at in range(len(found)))


@given(st.integers(1, 40), st.sets(st.integers(0, 39)))
def test_monotone_failures_shrink_to_exactly_what_they_need(count: int, wanted: set[int]) -> None:
    needed = {one for one in wanted if one < count}
    fails = Counted(lambda some: needed <= set(some))
    assert set(requests(Trials(fails, BIG).shrink(of(*range(count))))) == needed
    assert len(fails.asked) == len(set(fails.asked)) <= count * count + 3 * count + 2


@given(st.integers(1, 12), st.sets(st.integers(0, (1 << 12) - 1)))
def test_any_failure_shrinks_to_a_1_minimal_one(count: int, sets: set[int]) -> None:
    everything = (1 << count) - 1

    def holds(some: Sequence[int]) -> bool:
        mask = sum(1 << one for one in some)
        return mask == everything or mask in sets

    fails = Counted(holds)
    found = requests(Trials(fails, BIG).shrink(of(*range(count))))
    assert minimal(found, holds) or (not found and holds(()))
    assert found == sorted(found)
    assert len(fails.asked) == len(set(fails.asked)) <= count * count + 3 * count + 2


@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.data())
def test_missing_is_1_minimal_too(count: int, wanted: set[int], data: st.DataObject) -> None:
    lacking = {one for one in wanted if one < count}
    more = data.draw(st.sets(st.integers(0, count - 1)))
    state = of(*(one for one in range(count) if one not in lacking | more))
    fails = Counted(lambda some: not lacking & set(some))
    found = Trials(fails, BIG).missing(state, range(count))
    assert set(absent(found, range(count))) == lacking
    assert len(fails.asked) == len(set(fails.asked)) <= count * count + 3 * count + 2


@given(st.integers(2, 40), st.integers(1, 30))
def test_the_budget_holds_and_the_result_still_fails(count: int, budget: int) -> None:
    fails = Counted(lambda some: {0, count - 1} <= set(some))
    trials = Trials(fails, budget)
    found = trials.shrink(of(*range(count)))
    assert {0, count - 1} <= set(requests(found))
    assert trials.checks == len(fails.asked) <= budget
    assert trials.spent or requests(found) == [0, count - 1]


@given(st.integers(2, 40), st.integers(1, 30))
def test_what_comes_too_late_is_not_asked_and_not_counted(count: int, asked: int) -> None:
    fails = Counted(lambda some: {0, count - 1} <= set(some))
    trials = Trials(fails, BIG, lambda: len(fails.asked) >= asked)
    found = trials.shrink(of(*range(count)))
    assert {0, count - 1} <= set(requests(found))
    assert trials.checks == len(fails.asked) <= asked


def test_a_failure_that_needs_no_survivor_has_none() -> None:
    assert Trials(lambda _: True, BIG).shrink(of(1, 2, 3)) == of()
    assert Trials(lambda _: True, BIG).missing(of(), (1, 2, 3)) == of(1, 2, 3)


def test_what_does_not_fail_is_refused() -> None:
    with pytest.raises(RequestError, match="does not fail"):
        Trials(lambda _: False, BIG).shrink(of(1))
    with pytest.raises(RequestError, match="does not fail"):
        Trials(lambda _: False, BIG).shrink(of())
    with pytest.raises(RequestError, match="does not fail"):
        Trials(lambda _: False, BIG).missing(of(), (1, 2))


def test_the_same_questions_are_asked_in_the_same_order() -> None:
    def asked() -> list[CrashState]:
        fails = Counted(lambda some: {3, 11} <= set(some))
        Trials(fails, BIG).shrink(of(*range(20)))
        return fails.asked

    assert asked() == asked()


def test_torn_writes_are_taken_apart() -> None:
    torn = CrashState(4, (Survivor(1), Survivor(2, ((0, 512), (1024, 1536), (2048, 2560))), Survivor(3, ((0, 512),))))

    def fails(state: CrashState) -> bool:
        return any(one.request == 2 and {(0, 512), (2048, 2560)} <= set(one.spans or ()) for one in state.survivors)

    assert Trials(fails, BIG).shrink(torn) == CrashState(4, (Survivor(2, ((0, 512), (2048, 2560))),))


def test_missing_keeps_a_torn_write_torn_if_that_is_enough() -> None:
    half = Survivor(2, ((0, 512),))
    torn = CrashState(4, (half,))
    found = Trials(lambda state: Survivor(2) not in state.survivors, BIG).missing(torn, (1, 2, 3))
    assert found == CrashState(4, (Survivor(1), half, Survivor(3)))
    assert absent(found, (1, 2, 3)) == (2,)


def test_minimise_takes_anything() -> None:
    assert minimise("axbyc", lambda some: "x" in some and "y" in some) == ["x", "y"]


Cuts = st.lists(st.integers(0, 500), min_size=1, max_size=60, unique=True).map(sorted)


@given(Cuts, st.integers(0, 500))
def test_of_a_failure_that_stays_the_very_first_cut_is_found(cuts: list[int], since: int) -> None:
    since = min(since, cuts[-1])
    asked: list[int] = []

    def fails(cut: int) -> bool:
        asked.append(cut)
        return cut >= since

    place = next(at for at, cut in enumerate(cuts) if cut >= since)
    assert earliest(cuts, fails, 10) == (cuts[place], cuts[place - 1] if place else None)
    assert len(asked) == len(set(asked)) <= 10
    assert len(asked) <= 1 or place


@given(Cuts, st.sets(st.integers(0, 500)), st.integers(0, 10))
def test_of_any_failure_a_cut_that_fails_is_found_and_not_the_one_before_it(
    cuts: list[int], failing: set[int], most_checks: int
) -> None:
    asked: list[int] = []

    def fails(cut: int) -> bool:
        asked.append(cut)
        return cut in failing

    found, before = earliest(cuts, fails, most_checks)
    assert found in {*failing, cuts[-1]}
    assert cuts[-1] not in asked
    assert len(asked) <= most_checks
    assert before is None or (before < found and before in asked and before not in failing)
    # Nothing that was tried lies between them.
    assert not any((before if before is not None else -1) < cut < found for cut in asked)


def test_a_cut_that_is_first_needs_no_check() -> None:
    assert earliest([4], lambda _: False, 10) == (4, None)


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_at_another_cut_the_same_is_lost_and_the_same_is_there(
    gone: set[int], there: set[int], before: set[int]
) -> None:
    late, all_open = of(*sorted(there - gone)), sorted(before)
    assert set(requests(lacking(gone, late, 5, all_open))) == before - gone
    assert set(requests(only(late, 5, all_open))) == before & there - gone
    assert lacking(gone, late, 5, all_open).cut == only(late, 5, all_open).cut == 5


def test_what_is_lost_in_part_keeps_that_part_at_another_cut() -> None:
    half = Survivor(2, ((0, 512),))
    late = CrashState(9, (Survivor(1), half))
    assert lacking([2], late, 5, (1, 2, 3)) == CrashState(5, (Survivor(1), half, Survivor(3)))
    assert only(late, 5, (2, 3)) == CrashState(5, (half,))


WRITES = [Did(Kind.WRITE, offset=4096 * place) for place in range(6)]
FLUSH = Did(Kind.FLUSH)
