"""Numbers in a sentence: two or three digits, and their unit."""

from raidproof.core.units import KIB, MIB


def percent(share: float) -> str:
    """Write a share."""
    return f"{share * 100:.0f} %"


def size(number: float) -> str:
    """Write a number of bytes, which need not be round."""
    if number >= MIB:
        return f"{number / MIB:.3g} MiB"
    return f"{number / KIB:.3g} KiB" if number >= KIB else f"{number:.0f} bytes"


def milliseconds(number: float) -> str:
    """Write a time."""
    return f"{number:.0f} ms" if number >= 10 else f"{number:.1f} ms"


def count(number: float) -> str:
    """Write how many, roughly."""
    return f"{number:.0f}" if number >= 1 else f"{number:.2g}"
