"""The interface makes one transfer after the other."""

from hypothesis import given
from hypothesis import strategies as st

from raidproof.disk.timing.request import Interface


def test_transfers_wait_for_each_other() -> None:
    path = Interface(100.0)  # 10 ns a byte
    assert path.pass_through(1000, 0) == 10_000
    assert path.pass_through(1000, 2_000) == 20_000
    assert path.pass_through(1000, 50_000) == 60_000


def test_a_path_without_a_limit_takes_no_time() -> None:
    assert Interface(None).pass_through(1 << 30, 7) == 7


def test_each_command_has_an_overhead_independent_of_its_length() -> None:
    path = Interface(100.0, transfers_s=1e5)  # 10 us each
    assert [path.pass_through(0, 0), path.pass_through(500, 0), path.pass_through(2000, 0)] == [10_000, 20_000, 40_000]


def test_what_came_while_it_was_read_is_there_at_once_unless_others_passed() -> None:
    path = Interface(100.0)
    assert path.trail(1000, 50_000) == 50_000
    assert path.trail(1000, 50_000) == 60_000
    assert path.trail(1000, 65_000) == 70_000


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1 << 20), st.integers(0, 10**7)), min_size=1))
def test_never_faster_than_its_rate_and_never_before_the_data(
    transfers: list[tuple[bool, int, int]],
) -> None:
    path, now, passed, total = Interface(100.0), 0, 0, 0
    for trails, length, later in transfers:
        now += later
        before, passed = passed, (path.trail if trails else path.pass_through)(length, now)
        total += length * 10
        assert passed >= max(now, before, total)
