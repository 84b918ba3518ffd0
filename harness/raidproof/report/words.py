"""How values are written for people: three significant digits, counts exact, and `-` for what is not known."""

import re

from raidproof.core.units import GIB, KIB, MIB

UNKNOWN = "-"
# What a terminal would obey or XML 1.0 forbids: controls but tab and newline, half characters, non-characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def number(value: float | None) -> str:
    """Write a measured value with three significant digits."""
    if value is None:
        return UNKNOWN
    if 0 < abs(value) < 0.001:
        return "<0.001"
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    text = f"{value:#.3g}"
    return "0" if value == 0 else text.rstrip(".")


def count(value: int | None) -> str:
    """Write a number of things, exactly."""
    return UNKNOWN if value is None else f"{value:,}"


def data(size_bytes: int | None) -> str:
    """Write an amount of data in binary units."""
    if size_bytes is None:
        return UNKNOWN
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            return f"{number(size_bytes / unit)} {name}"
    return f"{size_bytes} B"


def plural(value: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Return the text with everything made visible that a terminal would obey or that XML forbids."""
    return _UNPRINTABLE.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
