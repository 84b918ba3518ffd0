from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.crash.recording import Recording
from harness.crash.shrink import Trials, absent, earliest_cut, minimise, missing, moved, shrink
from harness.crash.state import CrashState, Survivor
from harness.disk.writelog import Kind
from harness.errors import RequestError
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
    assert set(requests(shrink(of(*range(count)), fails, BIG))) == needed
    assert len(fails.asked) == len(set(fails.asked)) <= count * count + 3 * count + 2


@given(st.integers(1, 12), st.sets(st.integers(0, (1 << 12) - 1)))
def test_any_failure_shrinks_to_a_1_minimal_one(count: int, sets: set[int]) -> None:
    everything = (1 << count) - 1

    def holds(some: Sequence[int]) -> bool:
        mask = sum(1 << one for one in some)
        return mask == everything or mask in sets

    fails = Counted(holds)
    found = requests(shrink(of(*range(count)), fails, BIG))
    assert minimal(found, holds) or (not found and holds(()))
    assert found == sorted(found)
    assert len(fails.asked) == len(set(fails.asked)) <= count * count + 3 * count + 2


@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.data())
def test_missing_is_1_minimal_too(count: int, wanted: set[int], data: st.DataObject) -> None:
    lacking = {one for one in wanted if one < count}
    more = data.draw(st.sets(st.integers(0, count - 1)))
    state = of(*(one for one in range(count) if one not in lacking | more))
    fails = Counted(lambda some: not lacking & set(some))
    found = missing(state, range(count), fails, BIG)
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


def test_a_failure_that_needs_no_survivor_has_none() -> None:
    assert shrink(of(1, 2, 3), lambda _: True, BIG) == of()
    assert missing(of(), (1, 2, 3), lambda _: True, BIG) == of(1, 2, 3)


def test_what_does_not_fail_is_refused() -> None:
    with pytest.raises(RequestError, match="does not fail"):
        shrink(of(1), lambda _: False, BIG)
    with pytest.raises(RequestError, match="does not fail"):
        shrink(of(), lambda _: False, BIG)
    with pytest.raises(RequestError, match="does not fail"):
        missing(of(), (1, 2), lambda _: False, BIG)


def test_the_same_questions_are_asked_in_the_same_order() -> None:
    def asked() -> list[CrashState]:
        fails = Counted(lambda some: {3, 11} <= set(some))
        shrink(of(*range(20)), fails, BIG)
        return fails.asked

    assert asked() == asked()


def test_torn_writes_are_taken_apart() -> None:
    torn = CrashState(4, (Survivor(1), Survivor(2, ((0, 512), (1024, 1536), (2048, 2560))), Survivor(3, ((0, 512),))))

    def fails(state: CrashState) -> bool:
        return any(one.request == 2 and {(0, 512), (2048, 2560)} <= set(one.spans or ()) for one in state.survivors)

    assert shrink(torn, fails, BIG) == CrashState(4, (Survivor(2, ((0, 512), (2048, 2560))),))


def test_missing_keeps_a_torn_write_torn_if_that_is_enough() -> None:
    half = Survivor(2, ((0, 512),))
    torn = CrashState(4, (half,))
    found = missing(torn, (1, 2, 3), lambda state: Survivor(2) not in state.survivors, BIG)
    assert found == CrashState(4, (Survivor(1), half, Survivor(3)))
    assert absent(found, (1, 2, 3)) == (2,)


def test_minimise_takes_anything() -> None:
    assert minimise("axbyc", lambda some: "x" in some and "y" in some) == ["x", "y"]


WRITES = [Did(Kind.WRITE, offset=4096 * place) for place in range(6)]
FLUSH = Did(Kind.FLUSH)


@pytest.fixture
def recording(record: Callable[..., Recording]) -> Recording:
    """Three writes, a flush that covers them, three more."""
    return record(*WRITES[:3], FLUSH, *WRITES[3:])


def test_what_is_durable_later_was_there_earlier(recording: Recording) -> None:
    state = CrashState(7, (Survivor(5),))
    assert moved(recording, state, 3).survivors[:3] == (Survivor(0), Survivor(1), Survivor(2))
    # The request 5 was in flight then, and 4 is lacking.
    assert moved(recording, state, 5) == CrashState(5, (Survivor(5),))
    assert moved(recording, state, 7) == state


def test_what_is_missing_stays_missing(recording: Recording) -> None:
    assert Survivor(2) not in moved(recording, CrashState(3, (Survivor(0), Survivor(1))), 3).survivors


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("begins", range(8))
def test_the_earliest_cut_is_found_by_halving(recording: Recording, begins: int, first: int) -> None:
    state = CrashState(7, (Survivor(4), Survivor(5)))
    asked: list[int] = []

    def fails(one: CrashState) -> bool:
        asked.append(one.cut)
        return one.cut >= begins

    found = earliest_cut(recording, state, fails, BIG, first)
    assert found.cut == min((cut for cut in (*recording.cuts, 7) if cut >= max(begins, first)), default=7)
    assert len(asked) <= len(recording.cuts).bit_length()


def test_the_earliest_cut_keeps_to_its_budget(recording: Recording) -> None:
    state = CrashState(7, (Survivor(4),))
    assert earliest_cut(recording, state, lambda _: True, 0) == state
    assert earliest_cut(recording, state, lambda _: True, 1).cut < 7
