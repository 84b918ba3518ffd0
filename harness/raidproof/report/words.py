"""Formatting of values for reports: three significant digits, exact counts, and `-` for unknown values."""

from collections.abc import Sequence

from raidproof.core.units import GIB, KIB, MIB

UNKNOWN = "-"
"""Text for a value that is not known."""


def number(value: float | None) -> str:
    """Return a measured value as text with three significant digits."""
    if value is None:
        return UNKNOWN
    if 0 < abs(value) < 0.001:
        return "<0.001"
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    text = f"{value:#.3g}"
    return "0" if value == 0 else text.rstrip(".")


def count(value: int | None) -> str:
    """Return a count as text with all its digits."""
    return UNKNOWN if value is None else f"{value:,}"


def data(size_bytes: int | None) -> str:
    """Return an amount of data as text in binary units, such as ``4.00 MiB``."""
    if size_bytes is None:
        return UNKNOWN
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            return f"{number(size_bytes / unit)} {name}"
    return f"{size_bytes} B"


def plural(value: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun; ``one``: the singular, ``many``: the plural if it does not end with s."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def titled(what: str, unit: str) -> str:
    """Return a measured quantity with its unit as text: ``write [MB/s]``."""
    return f"{what} [{unit}]" if unit else what


def span(ends: tuple[float, float] | None) -> str:
    """Return a range as text; ``ends``: the least and the greatest value."""
    return UNKNOWN if ends is None else f"{number(ends[0])}-{number(ends[1])}"


def some(names: Sequence[str], most: int, separator: str = "; ") -> str:
    """Return the first ``most`` names as text, and the number of the other names."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return separator.join(names[:most]) + more
