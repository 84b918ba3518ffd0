"""Simulate histories of a cell: how often the test shows a change without a step, and finds a step of -10 %.

python benchmarks/change_points.py [--histories 200] [--variation 0.05]
"""

import argparse
import random
from collections.abc import Sequence

from raidproof.verdict.change_point import find_changes

STEP = 0.9
RUNS = ((10, 10), (15, 15), (20, 20), (40, 40), (30, 5))
"""Numbers of runs before and after the step."""
NEAR = 3
"""Greatest distance in runs of a found change from the step."""


def history(seed: int, before: int, after: int, step: float, variation: float) -> list[float]:
    """Return the medians of runs: log-normal, independent, with a step."""
    source = random.Random(seed)  # noqa: S311  no cryptography
    levels = [1.0] * before + [step] * after
    return [100 * level * source.lognormvariate(0, variation) for level in levels]


def shares(before: int, after: int, seeds: Sequence[int], variation: float) -> tuple[float, float, float]:
    """Return the shares of histories with a change that has no step, with a step that is found, and found near it."""
    without = sum(bool(find_changes(history(seed, before, after, 1.0, variation))) for seed in seeds)
    found = [find_changes(history(seed, before, after, STEP, variation)) for seed in seeds]
    near = sum(any(abs(one.index - before) <= NEAR for one in changes) for changes in found)
    return without / len(seeds), sum(map(bool, found)) / len(seeds), near / len(seeds)


def main() -> None:
    """Print the shares for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--variation", type=float, default=0.05)
    asked = parser.parse_args()
    print("runs before + after | without a step: shown | with a step: found | near the step")
    for before, after in RUNS:
        without, found, near = shares(before, after, range(asked.histories), asked.variation)
        print(f"{before} + {after} | {without:.1%} | {found:.1%} | {near:.1%}")


if __name__ == "__main__":
    main()
