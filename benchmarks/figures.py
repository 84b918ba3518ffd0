"""How the benchmarks write what they measured: always the median and the range, and how busy the machine was."""

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
    """Return how busy this machine is: figures of a machine that others use too only compare within one run."""
    averages = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} CPUs, load average {averages}"
