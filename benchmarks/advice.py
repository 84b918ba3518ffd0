"""Simulate the search of `raidproof advise`: by how much the chosen configuration is slower than the best one.

python benchmarks/advice.py [--seeds 200] [--noise 0.05]
"""

import argparse
import math
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from raidproof.record.advice import RungRecord
from raidproof.run.advise.search import Candidate, Result, Search

SIZES = (4, 3, 3, 3, 2, 2)
"""Numbers of values of the axes: 432 candidates."""
REPETITIONS = (40, 100, 200)
"""Budgets in repetitions; 200 are about 40 minutes of 10 s each, less the time for power cuts."""


class World(NamedTuple):
    """A table of true speeds, and what the model expects."""

    true: Mapping[tuple[int, ...], float]
    expected: Mapping[tuple[int, ...], float | None]


def effects(source: random.Random, spread: float) -> dict[tuple[int, ...], float]:
    """Return speeds that are products of an effect of each value and of each pair of values of the first axes."""
    single = [[source.lognormvariate(0, spread) for _ in range(size)] for size in SIZES]
    pairs = {
        (one, other): [[source.lognormvariate(0, spread / 2) for _ in range(SIZES[other])] for _ in range(SIZES[one])]
        for one, other in ((0, 1), (0, 2), (1, 3))
    }
    return {
        places: 100
        * math.prod(single[axis][place] for axis, place in enumerate(places))
        * math.prod(table[places[one]][places[other]] for (one, other), table in pairs.items())
        for places in product(*map(range, SIZES))
    }


def limits(source: random.Random) -> dict[tuple[int, ...], float]:
    """Return speeds that are the least of three limits, as of a network, disks and a processor: many are equal."""
    tables = [effects(source, 0.4) for _ in range(3)]
    return {places: min(table[places] for table in tables) for places in product(*map(range, SIZES))}


def right(source: random.Random) -> World:
    """Return a world whose model is right within 10 %."""
    true = effects(source, 0.2)
    return World(true, {places: speed * source.lognormvariate(0, 0.1) for places, speed in true.items()})


def wrong(source: random.Random) -> World:
    """Return a world whose model expects the fast configurations to be slow."""
    true = effects(source, 0.2)
    return World(true, {places: 1e4 / speed * source.lognormvariate(0, 0.1) for places, speed in true.items()})


def without(source: random.Random) -> World:
    """Return a world without a model."""
    true = effects(source, 0.2)
    return World(true, dict.fromkeys(true))


def bounded(source: random.Random) -> World:
    """Return a world of three limits, of which the model has only one."""
    true = limits(source)
    known = effects(random.Random(source.random()), 0.4)  # noqa: S311  no cryptography
    return World(true, {places: min(known[places], 3 * speed) for places, speed in true.items()})


WORLDS: dict[str, Callable[[random.Random], World]] = {
    "model right": right,
    "model wrong": wrong,
    "no model": without,
    "limits": bounded,
}


def regret(world: World, seed: int, repetitions: int, noise: float) -> float:
    """Return the share by which the leader of a search is slower than the best candidate."""
    source = random.Random(f"{seed}/noise")  # noqa: S311  no cryptography
    names = {str(places): places for places in world.true}
    candidates = [Candidate(name, places, world.expected[places]) for name, places in names.items()]
    search = Search(candidates, base=str((0,) * len(SIZES)), seed=seed)
    rungs: list[RungRecord] = []
    results: list[Result] = []
    while (rung := search.next_rung(rungs, results, repetitions - len(results))) is not None:
        rungs.append(rung)
        drift = source.lognormvariate(0, noise)
        results += [
            Result(name, rung.round, world.true[names[name]] * drift * source.lognormvariate(0, noise))
            for name in rung.names
        ]
    leader = search.leaders(rungs, results)[0]
    return 1 - world.true[names[leader]] / max(world.true.values())


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    """Print the distribution of the regret for each world and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.05)
    asked = parser.parse_args()
    print(f"{math.prod(SIZES)} candidates on {len(SIZES)} axes; noise {asked.noise:.0%}; {asked.seeds} seeds")
    print("world | repetitions | regret: median | 95 % below | greatest | above 10 %")
    for name, make in WORLDS.items():
        for repetitions in REPETITIONS:
            found = [
                regret(make(random.Random(seed)), seed, repetitions, asked.noise)  # noqa: S311  no cryptography
                for seed in range(asked.seeds)
            ]
            over = sum(one > 0.1 for one in found) / len(found)
            print(
                f"{name} | {repetitions} | {quantile(found, 0.5):.1%} | {quantile(found, 0.95):.1%} | "
                f"{max(found):.1%} | {over:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
