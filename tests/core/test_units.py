import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from raidproof.core.errors import RequestError
from raidproof.core.units import (
    GIB,
    KIB,
    MIB,
    Duration,
    Rate,
    Size,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


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


@given(st.integers(min_value=0, max_value=2**50))
def test_rates_and_durations_are_read_back(number: int) -> None:
    assert parse_rate(format_rate(number)) == number
    assert parse_duration(format_duration(number)) == number


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1Gbit", 10**9),
        ("100Mbit/s", 10**8),
        ("2.5 Gbps", 2_500_000_000),
        ("300MB/s", 2_400_000_000),
        ("1MiB/s", 8 * MIB),
        ("1000", 1000),
        (7, 7),
    ],
)
def test_rates(text: str | int, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "nanoseconds"), [("100us", 10**5), ("1.5ms", 1_500_000), ("2s", 2 * 10**9), ("70", 70), (7, 7)]
)
def test_durations(text: str | int, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "fast", "1Gb", "-1Gbit", "1.5", "0.3bit", -1, 0.0, 1e9, True])
def test_no_rate(text: str | int) -> None:
    with pytest.raises(RequestError, match="not a rate"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["", "soon", "5m", "-1ms", "0.5ns", -1, 0.0, 1.5, False])
def test_no_duration(text: str | int) -> None:
    with pytest.raises(RequestError, match="not a duration"):
        parse_duration(text)


def test_fields_of_rate_and_duration() -> None:
    class Wire(BaseModel):
        rate: Rate
        delay: Duration | None = None

    assert Wire.model_validate({"rate": "1Gbit", "delay": "100us"}).model_dump() == {"rate": 10**9, "delay": 10**5}
