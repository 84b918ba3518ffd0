import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from harness.errors import RequestError
from harness.units import GIB, KIB, MIB, Size, format_size, parse_size


@given(st.integers(min_value=0, max_value=2**50))
def test_what_is_written_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "size"), [("64KiB", 64 * KIB), ("1MiB", MIB), ("2GiB", 2 * GIB), ("512", 512), (7, 7)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


def test_largest_exact_unit() -> None:
    assert [format_size(size) for size in (0, 1536, 64 * KIB, GIB)] == ["0B", "1536B", "64KiB", "1GiB"]


@pytest.mark.parametrize("text", ["", "big", "64Kib5", "1QiB"])
def test_no_size(text: str) -> None:
    with pytest.raises(RequestError, match="not a size"):
        parse_size(text)


def test_field() -> None:
    class Spec(BaseModel):
        chunk: Size

    assert Spec.model_validate({"chunk": "64KiB"}).chunk == 64 * KIB
