"""What a comparison can find, before it is measured."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raidproof.record.comparison import ERROR_RATE
from raidproof.record.run import RunRecord
from raidproof.verdict.change import statistics

ASSUMED_VARIATION = 0.05
"""The variation of cells that no stored run measured: standard deviation of the values divided by their mean."""


@dataclass(frozen=True)
class Foresight:
    """The smallest changes that a comparison finds with a probability of 95 %."""

    cells: int
    repetitions: int
    """Number of repetitions of each side."""
    fewest: int
    """The fewest repetitions of each side with which the test can find any change."""
    least: float | None
    """The smallest change in the cell with the median variation, as a share; None if no change can be found."""
    worst: float | None
    """The smallest change in the cell with the greatest variation, as a share; None if no change can be found."""
    variation: float
    """The median variation of the cells."""
    runs: int
    """Number of stored runs that measured the variation; 0: it is assumed."""

    def __str__(self) -> str:
        source = f"measured in {self.runs} earlier run{'' if self.runs == 1 else 's'}" if self.runs else "assumed"
        noise = f"at a variation of {self.variation:.1%}, {source}"
        if self.repetitions < self.fewest:
            return (
                f"{self.repetitions} repetitions of each side can find no change, however great: "
                f"with {self.cells} cells the test needs {self.fewest}"
            )
        if self.least is None:
            return f"{self.repetitions} repetitions of each side cannot find a factor of 100 ({noise})"
        worst = self.worst is None or self.worst > self.least
        widest = "more than a factor of 100" if self.worst is None else f"{self.worst:.1%}"
        most = f"; {widest} in the cell that varies most" if worst else ""
        return (
            f"{self.repetitions} repetitions of each side find a change by {self.least:.1%} in 95 % of cases "
            f"({noise}){most}"
        )


def foresee(
    cells: Sequence[str], repetitions: int, stored: Iterable[RunRecord], *, looks: int = 1, on_workers: bool = False
) -> Foresight:
    """Return what a comparison of cells with these names can find.

    ``stored``: earlier runs; those without any of these cells do not count. ``looks``: as for `compare`.
    ``on_workers``: workers of a cluster measure; then it is the least that can be found: each round by another worker.
    """
    level = ERROR_RATE / looks / len(cells)
    samples: dict[str, list[list[float]]] = {}
    runs = 0
    for run in stored:
        found = [(cell.name, values) for cell in run.cells if cell.name in cells for values in cell.by_worker.values()]
        kept = [(name, values) for name, values in found if len(values) > 1 and min(values) > 0]
        runs += bool(kept)
        for name, values in kept:
            samples.setdefault(name, []).append(values)
    blocks = [1] * repetitions if on_workers else None
    spreads = sorted(statistics.variation(each) for each in samples.values()) or [ASSUMED_VARIATION]
    middle = spreads[len(spreads) // 2]
    return Foresight(
        cells=len(cells),
        repetitions=repetitions,
        fewest=statistics.least_repetitions(level, paired=on_workers),
        least=statistics.least_change(middle, repetitions, level, blocks=blocks),
        worst=statistics.least_change(spreads[-1], repetitions, level, blocks=blocks),
        variation=middle,
        runs=runs,
    )


def looks_of(first: int, most: int) -> list[int]:
    """Return the numbers of repetitions after which undecided cells are judged: each half as many more, up to most."""
    numbers = [first]
    while numbers[-1] < most:
        numbers.append(min(most, math.ceil(1.5 * numbers[-1])))
    return numbers
