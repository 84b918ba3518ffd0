"""Simulate comparisons: how often equal cells are called, changed cells are found, and samples are called bimodal.

python benchmarks/comparison_power.py [--comparisons 200] [--repetitions 10] [--variation 0.05] [--seed 1]
"""

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.comparison import Pair, PairFinding
from raidproof.verdict.change.difference import Rules, judge_pairs
from raidproof.verdict.change.statistics import groups, least_change

CALLED = {PairFinding.FASTER, PairFinding.SLOWER}
CHANGE = 1.1
Noise = Callable[[random.Random], float]
"""Draws a random number with mean 0 and standard deviation 1."""


def outliers(source: random.Random) -> float:
    """Draw normal noise in which one value of twenty is 7 standard deviations too low."""
    return source.gauss() - 7 * (source.random() < 0.05)


def heavy_tails(source: random.Random) -> float:
    """Draw Student's t with 3 degrees of freedom, divided by its standard deviation."""
    chi = sum(source.gauss() ** 2 for _ in range(3))
    return source.gauss() / math.sqrt(chi / 3) / math.sqrt(3)


NOISES: dict[str, Noise] = {
    "normal": lambda source: source.gauss(),
    "skewed (exponential)": lambda source: 1 - source.expovariate(1),
    "outliers": outliers,
    "heavy tails (t, 3 degrees)": heavy_tails,
}


OTHERS = ((24, 0), (24, 24), (1, 1))
"""Numbers of cells, and of changed cells, of the comparisons with other than normal noise."""


@dataclass(frozen=True)
class Counts:
    """The findings of several comparisons."""

    comparisons: int
    wrong: int
    """Comparisons in which a cell without a change is called faster or slower."""
    found: float
    """Share of the changed cells that are called faster; NaN without changed cells."""
    bimodal: int
    """Comparisons in which a cell is called bimodal."""


def cell(values: Sequence[float]) -> CellRecord:
    """Return the record of a cell with these values."""
    repeats = [Repetition(round=place, value=value, limit="disks") for place, value in enumerate(values, start=1)]
    return CellRecord(name="", settings={}, workload={}, unit="mb_s", asked={}, repeats=repeats, limit="disks")


def compare_once(
    source: random.Random,
    noise: Noise,
    *,
    cells: int,
    changed: int,
    repetitions: int,
    variation: float,
    drift: float = 0.0,
    looks: int = 1,
) -> list[Pair]:
    """Return the pairs of one simulated comparison; the first ``changed`` cells are 10 % faster on new.

    ``drift``: standard deviation of the logarithm of the host's speed from round to round, as a random walk.
    """
    host = [0.0]
    for _ in range(repetitions - 1):
        host.append(host[-1] + drift * source.gauss())

    def values(factor: float) -> list[float]:
        return [factor * 100 * math.exp(speed + variation * noise(source)) for speed in host]

    both = [(cell(values(1)), cell(values(CHANGE if place < changed else 1))) for place in range(cells)]
    return judge_pairs(both, Rules(looks=looks))


def simulate(comparisons: int, seed: int, noise: Noise, **settings: float) -> Counts:
    """Return the findings of several simulated comparisons; ``settings``: see `compare_once`."""
    source = random.Random(seed)  # noqa: S311  a simulation
    changed = int(settings["changed"])
    wrong = found = bimodal = 0
    for _ in range(comparisons):
        pairs = compare_once(source, noise, **settings)  # type: ignore[arg-type]
        wrong += any(pair.finding in CALLED for pair in pairs[changed:])
        found += sum(pair.finding is PairFinding.FASTER for pair in pairs[:changed])
        bimodal += any(pair.finding is PairFinding.BIMODAL for pair in pairs)
    share = found / (comparisons * changed) if changed else math.nan
    return Counts(comparisons, wrong, share, bimodal)


def main() -> None:
    """Print the tables of the document docs/comparison.md."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--comparisons", type=int, default=200)
    options.add_argument("--repetitions", type=int, default=10)
    options.add_argument("--variation", type=float, default=0.05)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    common = {"repetitions": asked.repetitions, "variation": asked.variation}
    print(f"{asked.comparisons} comparisons each, {asked.repetitions} repetitions, variation {asked.variation:.0%}")
    print(f"{'noise':28} {'cells':>5} {'changed':>7} {'wrong':>6} {'found':>7} {'bimodal':>7}")
    for name, noise in NOISES.items():
        for cells, changed in ((24, 0), (24, 1), (24, 12), (24, 24), (6, 1), (1, 1)) if name == "normal" else OTHERS:
            counted = simulate(
                asked.comparisons * (1 if cells > 1 else 5), asked.seed, noise, cells=cells, changed=changed, **common
            )
            row = f"{counted.wrong / counted.comparisons:6.1%} {counted.found:7.1%}"
            print(f"{name:28} {cells:5} {changed:7} {row} {counted.bimodal / counted.comparisons:7.1%}", flush=True)
    for drift in (0.02, 0.05):
        for changed in (0, 24):
            counted = simulate(
                asked.comparisons, asked.seed, NOISES["normal"], cells=24, changed=changed, drift=drift, **common
            )
            name = f"normal, host drifts {drift:.0%}"
            print(f"{name:28} {24:5} {changed:7} {counted.wrong / counted.comparisons:6.1%} {counted.found:7.1%}")
    print("smallest change that is found in 95 % of cases, by the noncentral t distribution:")
    for cells in (1, 6, 24):
        least = {count: least_change(asked.variation, count, 0.05 / cells) for count in (4, 5, 7, 10, 14, 20, 40)}
        words = ", ".join(f"n={count}: {'-' if one is None else f'{one:.1%}'}" for count, one in least.items())
        print(f"  {cells:2} cells: {words}")
    print_groups(asked.seed)


def print_groups(seed: int, samples: int = 20_000) -> None:
    """Print how often samples of one group are called bimodal."""
    source = random.Random(seed)  # noqa: S311  a simulation
    print(f"samples of one group that are called bimodal, of {samples:,}:")
    kinds: dict[str, Noise] = {**NOISES, "uniform": lambda source: source.uniform(-1.7, 1.7)}
    for name, noise in kinds.items():
        for count in (8, 10, 20):
            called = sum(
                groups([math.exp(0.05 * noise(source)) for _ in range(count)], 0.03) is not None
                for _ in range(samples)
            )
            print(f"  {name:28} n={count}: {called / samples:.3%}")


if __name__ == "__main__":
    main()
