import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB, KIB, MIB
from raidproof.workload.workload import parse_tool_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4k", 4096),
        ("128K", 128 * KIB),
        ("4g", 4 * GIB),
        ("1M", MIB),
        ("64KiB", 64 * KIB),
        ("64kB", 64_000),
        (512, 512),
    ],
)
def test_a_bare_letter_is_binary_as_fio_and_dd_have_it(text: str | int, size: int) -> None:
    assert parse_tool_size(text) == size


@given(st.integers(0, 2**40))
def test_a_number_is_itself(size: int) -> None:
    assert parse_tool_size(size) == parse_tool_size(str(size)) == size


@pytest.mark.parametrize("text", ["4q", "50%", "", "-4k"])
def test_no_size(text: str) -> None:
    with pytest.raises(RequestError, match="not a size"):
        parse_tool_size(text)
