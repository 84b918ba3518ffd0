import pytest

from harness.environment import count_of
from harness.record.environment import by_role


@pytest.mark.parametrize(("ranges", "count"), [("0", 1), ("0-3", 4), ("0-3,8", 5), ("0,2,4", 3)])
def test_the_kernels_lists_are_counted(ranges: str, count: int) -> None:
    assert count_of(ranges) == count


def test_what_all_machines_have_is_said_once() -> None:
    assert by_role({("server", "6.12"), ("client", "6.12")}) == "6.12"
    assert by_role({("server", "7.2"), ("client", "6.1")}) == "server 7.2, client 6.1"
