"""Parsing and formatting of sizes, rates and durations with units."""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, TypeAdapter

from raidproof.core.errors import RequestError

SECTOR = 512
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_byte_size = TypeAdapter(ByteSize)


def parse_size(text: str | int) -> int:
    """Return a size in bytes, written as ``"64KiB"``, ``"1MiB"`` or a plain number of bytes.

    Raises:
        RequestError: the text is no size.
    """
    try:
        return int(_byte_size.validate_python(text))
    except ValueError as error:
        raise RequestError(f"not a size: {text!r}", remedy="write for example 64KiB or 1MiB") from error


def format_size(size_bytes: int) -> str:
    """Return a size as text in the largest binary unit that divides it exactly."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return f"{size_bytes}B"


Size = Annotated[int, BeforeValidator(parse_size)]
"""A pydantic field in bytes that also accepts ``"64KiB"``."""

_BITS = {"bit": 1, "bps": 1, "bit/s": 1, "b/s": 8}
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": KIB, "mi": MIB, "gi": GIB}
_NANOSECONDS = {"ns": 1, "us": 10**3, "\N{MICRO SIGN}s": 10**3, "ms": 10**6, "s": 10**9}


def _scaled(text: str, factors: dict[str, int]) -> int | None:
    """Return a number with a unit as a whole number of the smallest unit; None if the text is no such number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(\S+)", text.strip())
    if match is None or (factor := factors.get(match.group(2).lower())) is None:
        return None
    scaled = Decimal(match.group(1)) * factor
    return int(scaled) if scaled == int(scaled) else None


def _number(value: object, smallest: str, factors: dict[str, int]) -> int | None:
    """Return a plain number or text with a unit as a whole number of the smallest unit; None for other values."""
    if isinstance(value, str):
        return _scaled(f"{value}{smallest}" if value.isdecimal() else value, factors)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_RATES = {prefix + unit: factor * bits for prefix, factor in _PREFIXES.items() for unit, bits in _BITS.items()}


def parse_rate(text: str | int) -> int:
    """Return a rate in bits per second, written as ``"1Gbit"``, ``"100Mbit/s"``, ``"300MB/s"`` or a plain number.

    Raises:
        RequestError: the text is no rate.
    """
    rate = _number(text, "bit", _RATES)
    if rate is None or rate < 0:
        raise RequestError(f"not a rate: {text!r}", remedy="write for example 1Gbit or 300MB/s")
    return rate


def format_rate(bits_per_s: int) -> str:
    """Return a rate as text in the largest decimal unit that divides it exactly."""
    for unit, name in ((10**9, "Gbit"), (10**6, "Mbit"), (10**3, "kbit")):
        if bits_per_s and bits_per_s % unit == 0:
            return f"{bits_per_s // unit}{name}"
    return f"{bits_per_s}bit"


Rate = Annotated[int, BeforeValidator(parse_rate)]
"""A pydantic field in bits per second that also accepts ``"1Gbit"``."""


def parse_duration(text: str | int) -> int:
    """Return a duration in nanoseconds, written as ``"100us"``, ``"5ms"``, ``"1.5s"`` or a plain number.

    Raises:
        RequestError: the text is no duration.
    """
    duration = _number(text, "ns", _NANOSECONDS)
    if duration is None or duration < 0:
        raise RequestError(f"not a duration: {text!r}", remedy="write for example 100us or 5ms")
    return duration


def format_duration(nanoseconds: int) -> str:
    """Return a duration as text in the largest unit that divides it exactly."""
    for unit, name in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if nanoseconds and nanoseconds % unit == 0:
            return f"{nanoseconds // unit}{name}"
    return f"{nanoseconds}ns"


Duration = Annotated[int, BeforeValidator(parse_duration)]
"""A pydantic field in nanoseconds that also accepts ``"100us"``."""
