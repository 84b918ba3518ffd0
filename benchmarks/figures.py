"""Output of the benchmarks: median and range of values, and the load of this host."""

import os
import statistics
from collections.abc import Sequence


def row(what: str, values: Sequence[float], unit: str = "", bar: str = "") -> str:
    """Return one line of a table: name, median, range, and the bar (the least or greatest accepted value)."""
    if not values:
        return f"{what:44} nothing measured"
    spread = f"{min(values):,.2f} to {max(values):,.2f}"
    return f"{what:44}{statistics.median(values):>11,.2f} {unit:6}{spread:>24}  {bar}".rstrip()


def load() -> str:
    """Return this host's number of CPUs and load average as text."""
    averages = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} CPUs, load average {averages}"
