"""Measures what a cluster costs beside its checks: many workers whose checks sleep as long as measured ones took.

The program takes the durations of checks, and the recording, from a stored exploration. Client, scheduler and workers
of Dask are real, and run on this host; only the machines are replaced. Some workers are slow, and some end. Run it as
`python -m benchmarks.cluster RUN CYCLE --workers 200 --states 100000`.
"""

import argparse
import resource
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

import distributed

from benchmarks.figures import load, row
from raidproof.cluster import tasks
from raidproof.cluster.campaign import Campaign
from raidproof.cluster.checkers import TASK_S, ClusterCheckers
from raidproof.core.log import progress
from raidproof.core.waiting import now_ns
from raidproof.crash.checker_worker import CheckResult
from raidproof.crash.checkers import Answer, Request
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Journal, digest_of, read
from raidproof.crash.stats import ExplorationStats
from raidproof.record import RunStore
from raidproof.record.results.names import JOURNAL
from raidproof.run.crash_states import Options, begun_of, chosen
from raidproof.run.exploration import STEM, Source, source_of

dask: Any = distributed
"""The package without its types: its functions have none."""
STRAGGLERS, SLOWER = 0.05, 3.0
"""Share of the workers that are slow, and the factor of their durations."""
SEEN: dict[str, Any] = {}
"""The recorded exploration, which all workers of this process read."""


class SleepingSeats:
    """The checkers of one worker: checks and proofs sleep, and return the result of a recorded check."""

    def __init__(self, _: object, name: str) -> None:
        self.name = name
        self.draw = Random(name)  # noqa: S311  a seeded choice, no secret
        self.factor = SLOWER if self.draw.random() < STRAGGLERS else 1.0

    def _sleep(self, checks: int) -> None:
        time.sleep(sum(self.draw.choices(SEEN["seconds"], k=checks)) * self.factor)

    def check(self, requests: Sequence[Request]) -> list[Answer]:
        """Sleep as long as recorded checks took."""
        self._sleep(len(requests))
        result = CheckResult(SEEN["observation"], None)
        return [Answer(request, result, SEEN["judgement"], self.name) for request in requests]

    def prove_all(self) -> None:
        """Sleep as long as the two checks of a proof."""
        self._sleep(2)

    def end(self) -> None:
        """End nothing."""


@dataclass(frozen=True)
class NoFiles:
    """A campaign without files."""

    digest: str = "recorded"


def explored(source: Source, client: Any, states: int, seed: int, folder: Path) -> Exploration:
    """Explore on the cluster, with a journal in ``folder``."""
    options = Options(Budget(states), seed=seed)
    choices, stats = chosen(source, options), ExplorationStats(source.recording, source.oracle)
    folder.mkdir()
    journal = Journal(folder / JOURNAL, begun_of(source, options, digest_of(source.log)))
    checkers = ClusterCheckers(client, cast("Campaign", NoFiles()), source.recording)
    exploration = Exploration(choices, stats, journal, checkers)
    with closing(journal), exploration:
        exploration.run(options.budget)
    return exploration


def main(words: Sequence[str] | None = None) -> None:
    """Explore, and print the rate beside the ideal one, the memory of the process, and its CPU time for each state."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("cycle")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--deaths", type=int, default=4, help="workers that end during the exploration")
    given = parser.parse_args(words)
    source = source_of(RunStore.find(given.run, given.results), given.cycle)
    lines = read(source.store.path / f"{STEM}{given.cycle}" / JOURNAL).lines
    seen = [line.observation for line in lines if line.observation is not None and line.observation.found is not None]
    seconds = [sum(one.ms.values()) / 1e3 for one in seen]
    stats = ExplorationStats(source.recording, source.oracle)
    last = next(line for line in reversed(lines) if line.observation is not None)
    assert last.observation is not None  # noqa: S101  for the type checker
    SEEN.update(seconds=seconds, observation=last.observation, judgement=stats.judge(last.crash, last.observation))
    vars(tasks)["Seats"] = SleepingSeats
    print(load())
    with (
        TemporaryDirectory() as folder,
        progress("starting workers"),
        dask.LocalCluster(
            n_workers=given.workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            resources={"checker": 1.0},
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        dask.Client(cluster, set_as_default=False) as client,
    ):
        begun, cpu = now_ns(), time.process_time()
        for number in range(given.deaths):
            cluster.loop.call_later(20.0 * (number + 1), cluster.workers[number].close, nanny=False)
        done = explored(source, client, given.states, 1, Path(folder) / "exploration")
        elapsed_s, cpu_s = (now_ns() - begun) / 1e9, time.process_time() - cpu
        checked = done.stats.checked
        mean_s = sum(seconds) / len(seconds)
        # A slow worker does a third of the work of another one.
        speed = given.workers * (1 - STRAGGLERS + STRAGGLERS / SLOWER)
        ideal_s = checked * mean_s / speed
        rate = [checked / elapsed_s]
        memory_mib = [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]
        print(row("states judged", [done.stats.judged]))
        print(row("states checked", [checked]))
        print(row("elapsed", [elapsed_s], "s"))
        print(row("states checked each second", rate))
        print(row("share of the ideal rate", [ideal_s / elapsed_s], bar="at least 0.9"))
        print(row("CPU of client, scheduler and workers a state", [cpu_s / checked * 1e3], "ms"))
        print(row("CPU of the scheduler's process a task", [cpu_s / tasks_of(done) * 1e3], "ms"))
        print(row("greatest memory of the process", memory_mib, "MiB", "at most 2,048"))


def tasks_of(done: Exploration) -> float:
    """Return the number of tasks of an exploration, from the number of states that a task of full length has."""
    mean_s = sum(SEEN["seconds"]) / len(SEEN["seconds"])
    return max(1.0, float(done.stats.checked * mean_s / TASK_S))


if __name__ == "__main__":
    main()
