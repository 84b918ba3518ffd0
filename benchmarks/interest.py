"""Compares the two orders of a sample of crash states: by interest, and uniform.

For each stored crash test with a planted defect, the program explores the same number of states in both orders on
machines, with the same seeds, and prints how many of 100 states are broken, how many distinct failures they show, and
the number of states up to the first broken one. The stored run is not changed. With ``--stored`` it boots no machine:
it weights the judged states of the run's stored uniform exploration by their interest, and estimates the broken states
of 100. Run it as `python -m benchmarks.interest RUN:CYCLE ... --states 100 --seeds 2`.
"""

import argparse
from collections import defaultdict
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from raidproof.core.log import progress
from raidproof.crash.checkers import LocalCheckers
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Journal, lines_of
from raidproof.crash.sampler import Choice, Interest, Policy
from raidproof.crash.stats import ExplorationStats
from raidproof.provider.registry import prepare
from raidproof.record import RunStore
from raidproof.record.results.names import JOURNAL
from raidproof.run.crash_states import Options, begun_of, chosen
from raidproof.run.source import Source, source_of


class Shown(NamedTuple):
    """What an exploration showed of a planted defect."""

    broken: float
    """Number of broken states of 100; excused losses included, as a lie of a control's disk is planted too."""
    failures: int
    """Number of distinct failures."""
    first: int | None
    """Number of states up to the first broken one; None without one."""


def explored(source: Source, states: int, seed: int, *, uniform: bool) -> Shown:
    """Explore a crash test on machines, in files of its own."""
    options = Options(Budget(states), seed=seed, uniform=uniform)
    choices = chosen(source, options)
    with TemporaryDirectory() as folder:
        path = Path(folder) / JOURNAL
        journal = Journal(path, begun_of(source, options))
        here = partial(LocalCheckers, source.recording, source.boots(Path(folder)))
        with closing(journal), Exploration(choices, source.oracle, journal, here) as exploration:
            exploration.run(options.budget)
        stats = exploration.stats
        names = {mark.name for mark in stats.marks if mark.broken}
        broken = {line.choice for line in lines_of(path) if line.crash.name in names}
    order = choices.order[:states]
    first = next((place for place, one in enumerate(order, start=1) if one in broken), None)
    return Shown(100 * len(broken) / len(order), len(stats.groups), first)


def estimated(source: Source) -> tuple[int, float, float]:
    """Return the number of stored states, and the estimated broken ones of 100: uniform, and by interest.

    The share is estimated for each policy, because both orders take the policies in turn.
    """
    lines = list(lines_of(source.store.path / f"explore-{source.cycle.name}" / JOURNAL))
    stats, seen = ExplorationStats(source.recording, source.oracle), {}
    interest = Interest(source.recording, chain(*source.acknowledged_ns.values()))
    weights = interest.weights(line.crash.cut for line in lines)
    judged: list[tuple[Choice, bool]] = []
    for line in lines:
        if line.observation is not None:
            seen[line.digest] = line.observation
        judgement = stats.judge(line.crash, seen[line.digest])
        judged.append((line.choice, judgement.broken or judgement.excused))
    shares = []
    for by_interest in (False, True):
        of_policy: dict[Policy, list[tuple[int, bool]]] = defaultdict(list)
        for choice, broken in judged:
            of_policy[choice.policy].append((weights[choice.cut] if by_interest else 1, broken))
        of_each = [sum(w for w, bad in one if bad) / sum(w for w, _ in one) for one in of_policy.values()]
        shares.append(100 * sum(of_each) / len(of_each))
    return len(judged), shares[0], shares[1]


def main() -> None:
    """Print a line for each crash test, seed and order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN:CYCLE", help="directory of a run, and a crash test in it")
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--stored", action="store_true", help="estimate from stored explorations, without machines")
    parser.add_argument("--starts-dirty", action="store_true")
    asked = parser.parse_args()
    for one in asked.runs:
        run, _, cycle = one.rpartition(":")
        source = source_of(RunStore(Path(run)), cycle, starts_dirty=asked.starts_dirty)
        if asked.stored:
            states, *shares = estimated(source)
            said = f"broken of 100: uniform {shares[0]:.1f}, by interest {shares[1]:.1f}"
            print(f"{cycle}: {states} stored states, {said}")
            continue
        with progress("preparing kernel and image"):
            prepare(source.topology)
            for seed in range(1, asked.seeds + 1):
                for uniform in (True, False):
                    shown = explored(source, asked.states, seed, uniform=uniform)
                    order = "uniform" if uniform else "interest"
                    first = shown.first or "none"
                    said = f"{shown.broken:.1f} of 100 broken, {shown.failures} failures, first broken: {first}"
                    print(f"{cycle}, {order}, seed {seed}: {said}", flush=True)


if __name__ == "__main__":
    main()
