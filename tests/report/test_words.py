import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.report.words import UNKNOWN, count, data, number, plural


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, UNKNOWN),
        (0.0, "0"),
        (0.0004, "<0.001"),
        (0.41234, "0.412"),
        (2.0, "2.00"),
        (12.345, "12.3"),
        (99.96, "100"),
        (128.42, "128"),
        (5871.6, "5,870"),
        (-2.947, "-2.95"),
    ],
)
def test_number(value: float | None, written: str) -> None:
    assert number(value) == written


@given(st.floats(min_value=0.001, max_value=1e12))
def test_a_written_number_is_within_half_a_percent(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_counts_are_exact_and_unknown_is_no_zero() -> None:
    assert (count(20047), count(0), count(None)) == ("20,047", "0", UNKNOWN)
    assert (data(82112512), data(4096), data(0), data(None)) == ("78.3 MiB", "4.00 KiB", "0 B", UNKNOWN)
    assert (plural(1, "file"), plural(2, "file")) == ("1 file", "2 files")
