"""Extents that wait to be written, compared with a set of addresses."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raidproof.disk.timing.request import Extents

ROOM = 60
spans = st.tuples(st.integers(0, ROOM - 1), st.integers(1, 12))


class AgainstASet(RuleBasedStateMachine):
    """A model: bytes held, their ages by the first write that was not taken out, and bytes in progress."""

    def __init__(self) -> None:
        super().__init__()
        self.extents = Extents()
        self.held: set[int] = set()
        self.under_way: list[list[int]] = []
        self.added = 0

    @rule(span=spans)
    def add(self, span: tuple[int, int]) -> None:
        start, length = span
        more = set(range(start, start + length)) - self.held
        assert self.extents.grows_by(start, length) == len(more)
        assert self.extents.newest == self.added
        self.extents.add(start, length)
        self.added += 1
        self.held |= more

    @rule(most=st.integers(1, 30), window=st.integers(1, 5), elevator=st.booleans(), at=st.integers(0, ROOM))
    def take(self, most: int, window: int, elevator: bool, at: int) -> None:
        runs = self.extents.near(at, window) if elevator else self.extents.oldest_runs(window)
        assert bool(runs) is bool(self.held)
        assert len(runs) <= window
        for start in runs:
            assert start in self.held
        if runs:
            oldest = self.extents.oldest
            length, numbers = self.extents.take(runs[-1], most)
            taken = set(range(runs[-1], runs[-1] + length))
            assert taken <= self.held
            self.held -= taken
            assert self.extents.oldest == oldest, "what is under way is not written"
            self.under_way.append(list(numbers))

    @rule()
    def write(self) -> None:
        if self.under_way:
            self.extents.written(self.under_way.pop(0))

    @rule(span=spans)
    def ask(self, span: tuple[int, int]) -> None:
        assert self.extents.covers(*span) is (set(range(span[0], sum(span))) <= self.held)

    @rule()
    def write_all(self) -> None:
        while runs := self.extents.oldest_runs(1):
            self.under_way.append(list(self.extents.take(runs[0], 1)[1]))
        while self.under_way:
            self.extents.written(self.under_way.pop(0))
        self.held.clear()
        assert self.extents.oldest == self.extents.newest

    @invariant()
    def counts(self) -> None:
        assert self.extents.bytes == len(self.held)
        assert bool(len(self.extents)) is bool(self.held)
        assert self.extents.oldest <= self.extents.newest
        if self.held or self.under_way:
            assert self.extents.oldest < self.extents.newest


TestAgainstASet = AgainstASet.TestCase


def test_what_overlaps_is_one_and_as_old_as_the_older() -> None:
    extents = Extents()
    extents.add(100, 10)
    extents.add(0, 10)
    extents.add(105, 10)
    assert (len(extents), extents.bytes, extents.oldest_runs(2)) == (2, 25, [100, 0])
    assert extents.take(100, 1)[0] == 15


def test_what_touches_stays_apart_and_goes_in_one_piece() -> None:
    extents = Extents()
    for start in (20, 0, 10, 40):
        extents.add(start, 10)
    assert len(extents) == 4
    assert extents.oldest_runs(4) == [0, 40]
    length, numbers = extents.take(0, 25)
    assert (length, list(numbers)) == (20, [1, 2])
    extents.written(numbers)
    assert extents.oldest == 0, "the first that was written waits still"
    extents.written(extents.take(20, 25)[1])
    assert extents.oldest == 3


@given(st.lists(spans, min_size=1), st.integers(0, ROOM))
def test_an_elevator_goes_upwards_and_round(pending: list[tuple[int, int]], at: int) -> None:
    extents = Extents()
    for start, length in pending:
        extents.add(start, length)
    runs = extents.near(at, 100)
    assert sorted(runs, key=lambda start: (start < at, start)) == runs
