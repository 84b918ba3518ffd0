"""Output of the benchmarks: median and range of the values, and the load of the machine."""

import os
import statistics
from collections.abc import Sequence


def row(what: str, values: Sequence[float], unit: str = "", bar: str = "") -> str:
    """Return one line of a table: name, median, range, and the bar that holds for it."""
    if not values:
        return f"{what:44} nothing measured"
    spread = f"{min(values):,.2f} to {max(values):,.2f}"
    return f"{what:44}{statistics.median(values):>11,.2f} {unit:6}{spread:>24}  {bar}".rstrip()


def load() -> str:
    """Return the load of this machine as text; figures of a shared machine are comparable only within one run."""
    averages = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} CPUs, load average {averages}"
