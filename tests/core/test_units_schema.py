import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.units import (
    DURATION_SCHEMA,
    RATE_SCHEMA,
    SIZE_SCHEMA,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

KINDS = [
    (SIZE_SCHEMA, format_size, parse_size),
    (RATE_SCHEMA, format_rate, parse_rate),
    (DURATION_SCHEMA, format_duration, parse_duration),
]
TEXTS = [
    *((SIZE_SCHEMA, text, parse_size) for text in ("64KiB", "64 kB", "1.5GiB", "7", " 8 ")),
    *((RATE_SCHEMA, text, parse_rate) for text in ("1Gbit", "100 Mbit/s", "300MB/s", "7")),
    *((DURATION_SCHEMA, text, parse_duration) for text in ("100us", "100\N{MICRO SIGN}s", "1.5s", "7")),
]


@given(number=st.integers(min_value=0), kind=st.sampled_from(KINDS))
def test_each_written_value_fits_its_schema(number: int, kind: tuple) -> None:  # type: ignore[type-arg]
    schema, write, _ = kind
    assert re.search(schema["pattern"], write(number))


@pytest.mark.parametrize(("schema", "text", "read"), TEXTS)
def test_each_notation_fits_its_schema(schema: dict[str, str], text: str, read: Callable[[str], int]) -> None:
    assert read(text) > 0
    assert re.search(schema["pattern"], text)


@pytest.mark.parametrize("schema", [SIZE_SCHEMA, RATE_SCHEMA, DURATION_SCHEMA])
@pytest.mark.parametrize("text", ["", "much", "-1", "4!"])
def test_other_texts_do_not_fit(schema: dict[str, str], text: str) -> None:
    assert re.search(schema["pattern"], text) is None
