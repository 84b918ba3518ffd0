"""Parsing and formatting of sizes, rates and durations with units."""

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, ByteSize, TypeAdapter, WithJsonSchema

from raidproof.core.errors import RequestError

SECTOR = 512
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_byte_size = TypeAdapter(ByteSize)


def parse_size(text: str | int) -> int:
    """Return a size in bytes, written as ``"64KiB"``, ``"1MiB"`` or a plain number of bytes.

    Raises:
        RequestError: the text is not a size.
    """
    try:
        return int(_byte_size.validate_python(text))
    except ValueError as error:
        raise RequestError(f"not a size: {text!r}", remedy="write for example 64KiB or 1MiB") from error


def format_size(size_bytes: int) -> str:
    """Return a size as text in the largest binary unit that divides it exactly."""
    return _in_largest_unit(size_bytes, {"GiB": GIB, "MiB": MIB, "KiB": KIB, "B": 1})


def _schema(letters: str, example: str) -> dict[str, Any]:
    pattern = rf"^\s*[0-9.]+\s*[{letters}]*\s*$"
    return {"type": ["integer", "string"], "minimum": 0, "pattern": pattern, "examples": [example]}


SIZE_SCHEMA = _schema("A-Za-z", "64KiB")
RATE_SCHEMA = _schema("A-Za-z/", "1Gbit")
DURATION_SCHEMA = _schema("A-Za-z\N{MICRO SIGN}\N{GREEK SMALL LETTER MU}", "100us")
"""JSON Schemas of the texts and numbers that `parse_size`, `parse_rate` and `parse_duration` accept."""
Size = Annotated[int, BeforeValidator(parse_size), WithJsonSchema(SIZE_SCHEMA, mode="validation")]
"""Type of a pydantic field in bytes, which also accepts text such as ``"64KiB"``."""


def _in_largest_unit(number: int, factors: dict[str, int]) -> str:
    """Return a number of the smallest unit as text in the largest unit of ``factors`` that divides it exactly."""
    *_, smallest = factors
    name = next((name for name, factor in factors.items() if number and number % factor == 0), smallest)
    return f"{number // factors[name]}{name}"


_BITS = {"bit": 1, "bps": 1, "bit/s": 1, "b/s": 8}
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": KIB, "mi": MIB, "gi": GIB}
_NANOSECONDS = {"ns": 1, "us": 10**3, "\N{MICRO SIGN}s": 10**3, "ms": 10**6, "s": 10**9}


def _scaled(text: str, factors: dict[str, int]) -> int | None:
    """Return text such as ``1.5ms`` as a whole number of the smallest unit; None if this is impossible.

    ``factors`` maps the name of each unit, in lower case, to its size in the smallest unit.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(\S+)", text.strip())
    if match is None or (factor := factors.get(match.group(2).lower())) is None:
        return None
    scaled = Decimal(match.group(1)) * factor
    return int(scaled) if scaled == int(scaled) else None


def _number(value: object, smallest: str, factors: dict[str, int]) -> int | None:
    """Return a number, or text such as ``1.5ms``, as a whole number of the smallest unit; None for other values."""
    if isinstance(value, str):
        return _scaled(f"{value}{smallest}" if value.isdecimal() else value, factors)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parse(value: object, what: str, smallest: str, factors: dict[str, int], examples: str) -> int:
    """Return the result of `_number`; if it is None or negative, raise RequestError with ``what`` and ``examples``."""
    number = _number(value, smallest, factors)
    if number is None or number < 0:
        raise RequestError(f"not a {what}: {value!r}", remedy=f"write for example {examples}")
    return number


_RATES = {prefix + unit: factor * bits for prefix, factor in _PREFIXES.items() for unit, bits in _BITS.items()}


def parse_rate(text: str | int) -> int:
    """Return a rate in bits per second, written as ``"1Gbit"``, ``"100Mbit/s"``, ``"300MB/s"`` or a plain number.

    Raises:
        RequestError: the text is not a rate.
    """
    return _parse(text, "rate", "bit", _RATES, "1Gbit or 300MB/s")


def format_rate(bits_per_s: int) -> str:
    """Return a rate as text in the largest decimal unit that divides it exactly."""
    return _in_largest_unit(bits_per_s, {"Gbit": 10**9, "Mbit": 10**6, "kbit": 10**3, "bit": 1})


Rate = Annotated[int, BeforeValidator(parse_rate), WithJsonSchema(RATE_SCHEMA, mode="validation")]
"""Type of a pydantic field in bits per second, which also accepts text such as ``"1Gbit"``."""


def parse_duration(text: str | int) -> int:
    """Return a duration in nanoseconds, written as ``"100us"``, ``"5ms"``, ``"1.5s"`` or a plain number.

    Raises:
        RequestError: the text is not a duration.
    """
    return _parse(text, "duration", "ns", _NANOSECONDS, "100us or 5ms")


def format_duration(nanoseconds: int) -> str:
    """Return a duration as text in the largest unit that divides it exactly."""
    return _in_largest_unit(nanoseconds, {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1})


Duration = Annotated[int, BeforeValidator(parse_duration), WithJsonSchema(DURATION_SCHEMA, mode="validation")]
"""Type of a pydantic field in nanoseconds, which also accepts text such as ``"100us"``."""
