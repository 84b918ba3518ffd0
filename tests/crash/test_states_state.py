import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.crash.states import CrashState, Survivor

spans = st.none() | st.lists(st.tuples(st.integers(0, 99), st.integers(100, 999)), min_size=1).map(tuple)
states = st.builds(
    CrashState, st.integers(0, 10**6), st.lists(st.builds(Survivor, st.integers(0, 10**6), spans)).map(tuple)
)


@given(states, states)
def test_a_state_is_written_and_read(one: CrashState, other: CrashState) -> None:
    assert CrashState.load(one.dump()) == one
    assert (one.dump() == other.dump()) is (one == other)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[1, [["x", null]]]'])
def test_something_else_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="not a crash state"):
        CrashState.load(text)
