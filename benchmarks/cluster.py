"""Measures what a cluster costs beside its checks: many workers whose checks sleep as long as measured ones took.

The program takes the durations of checks, and the recording, from a stored exploration. Client, scheduler and workers
of Dask are real, and run in processes of this host; only the machines are replaced. Some workers are slow, and some
end. Run it as `python -m benchmarks.cluster RUN CYCLE --workers 200 --states 100000`.
"""

import argparse
import asyncio
import logging
import resource
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import dask
import psutil

from benchmarks.figures import load, row
from raidproof.cluster import tasks
from raidproof.cluster.campaign import Campaign
from raidproof.cluster.checkers import ClusterCheckers
from raidproof.cluster.connection import require_dask
from raidproof.core.log import progress
from raidproof.core.waiting import now_ns
from raidproof.crash.checker_worker import CheckResult
from raidproof.crash.checkers import Answer, Request
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Journal, lines_of
from raidproof.crash.stats import ExplorationStats
from raidproof.record import RunStore
from raidproof.record.exploration import Observation
from raidproof.record.results.names import JOURNAL
from raidproof.run.crash_states import Options, begun_of, chosen
from raidproof.run.source import STEM, Source, source_of
from raidproof.verdict.oracle import Judgement

STRAGGLERS, SLOWER = 0.05, 3.0
"""Share of the workers that are slow, and the factor of their durations."""
PROCESSES = 4
"""Number of processes that have the workers."""
DEATH_S = 20.0
"""Interval in seconds at which workers end, from their first check on."""
QUIET = {
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.tick.interval": "60s",
    "distributed.worker.profile.enabled": False,
}
"""Configuration of Dask without what it measures many times a second in each worker."""
_SPAWN = get_context("spawn")


class Seen(NamedTuple):
    """A recorded exploration, whose checks the workers repeat."""

    seconds: list[float]
    """Duration in seconds of each check."""
    cuts: list[int]
    """Cuts of the checked states, in order."""
    observations: list[Observation]
    """What was observed in these states."""
    judgement: Judgement


SEEN: dict[str, Seen] = {}
"""The recorded exploration in a process with workers."""
BEGUN: set[str] = set()
"""Names of the workers of this process that have begun a check."""


class SleepingSeats:
    """The checkers of one worker: checks and proofs sleep, and return the result of a recorded check."""

    def __init__(self, _: object, name: str) -> None:
        self.name = name
        self.draw = Random(name)  # noqa: S311  a seeded choice, no secret
        self.factor = SLOWER if self.draw.random() < STRAGGLERS else 1.0

    def _sleep(self, checks: int) -> None:
        BEGUN.add(self.name)
        time.sleep(sum(self.draw.choices(SEEN["all"].seconds, k=checks)) * self.factor)

    def check(self, requests: Sequence[Request]) -> list[Answer]:
        """Sleep as long as recorded checks took."""
        self._sleep(len(requests))
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer:
        seen = SEEN["all"]
        above = bisect_left(seen.cuts, request.state.cut)
        places = range(max(0, above - 1), min(above + 1, len(seen.cuts)))
        nearest = seen.observations[min(places, key=lambda place: abs(seen.cuts[place] - request.state.cut))]
        return Answer(request, CheckResult(nearest, None), seen.judgement, self.name)

    def prove_all(self) -> None:
        """Sleep as long as the two checks of a proof."""
        self._sleep(2)

    def end(self) -> None:
        """End nothing."""


@dataclass(frozen=True)
class NoFiles:
    """A campaign without files."""

    digest: str = "recorded"


def run_scheduler(address: Any) -> None:
    """Run a scheduler; put its address into a queue."""
    distributed = require_dask()

    async def run() -> None:
        async with distributed.Scheduler(host="127.0.0.1", dashboard_address="127.0.0.1:0") as scheduler:
            address.put(scheduler.address)
            await scheduler.finished()

    asyncio.run(run())


def run_workers(address: str, numbers: Sequence[int], seen: Seen, deaths: int) -> None:
    """Run workers; those with the first ``deaths`` numbers end after a while."""
    distributed = require_dask()
    # All workers are on this host: what Dask measures of its processes is left out, or measured once a minute.
    dask.config.set(QUIET)
    logging.getLogger("distributed").setLevel(logging.WARNING)
    vars(tasks)["Seats"], SEEN["all"] = SleepingSeats, seen

    async def one(number: int) -> None:
        options = {"nthreads": 1, "resources": {"checker": 1.0}, "memory_limit": 0, "name": str(number)}
        async with distributed.Worker(address, dashboard_address="127.0.0.1:0", **options) as worker:
            if number < deaths:
                while str(number) not in BEGUN:
                    await asyncio.sleep(1)
                await asyncio.sleep(DEATH_S * (number + 1))
            else:
                await worker.finished()

    async def run() -> None:
        await asyncio.gather(*map(one, numbers))

    asyncio.run(run())


@contextmanager
def cluster(workers: int, seen: Seen, deaths: int) -> Iterator[tuple[Any, psutil.Process]]:
    """Return a client of a new cluster, and the process of its scheduler."""
    address = _SPAWN.Queue()
    parts = [_SPAWN.Process(target=run_scheduler, args=(address,))]
    parts[0].start()
    at = address.get()
    for first in range(PROCESSES):
        parts.append(_SPAWN.Process(target=run_workers, args=(at, range(first, workers, PROCESSES), seen, deaths)))
        parts[-1].start()
    try:
        with require_dask().Client(at, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=120)
            yield client, psutil.Process(parts[0].pid)
    finally:
        for part in reversed(parts):
            part.kill()
            part.join()


def explored(source: Source, client: Any, states: int, seed: int, folder: Path) -> Exploration:
    """Explore on the cluster, with a journal in ``folder``."""
    options = Options(Budget(states), seed=seed)
    choices = chosen(source, options)
    folder.mkdir()
    journal = Journal(folder / JOURNAL, begun_of(source, options))
    checkers = ClusterCheckers(client, cast("Campaign", NoFiles()), source.recording)
    exploration = Exploration(choices, source.oracle, journal, lambda _: checkers)
    with closing(journal), exploration:
        exploration.run(options.budget)
    return exploration


def seen_in(source: Source) -> Seen:
    """Return the checks of the stored exploration of a crash test."""
    lines = lines_of(source.store.path / f"{STEM}{source.cycle.name}" / JOURNAL)
    checked = [(line.crash, line.observation) for line in lines if line.observation and line.observation.found]
    checked.sort(key=lambda one: one[0].cut)
    state, last = checked[-1]
    judgement = ExplorationStats(source.recording, source.oracle).judge(state, last)
    seconds = [sum(seen.ms.values()) / 1e3 for _, seen in checked]
    # Each has a result of fsck: otherwise a state that a wrong observation breaks would be checked again.
    clean = next(seen.filesystem for _, seen in checked if seen.filesystem is not None)
    observations = [seen.model_copy(update={"filesystem": clean}) for _, seen in checked]
    return Seen(seconds, [one.cut for one, _ in checked], observations, judgement)


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main(words: Sequence[str] | None = None) -> None:
    """Explore, and print the rate beside the ideal one, and the CPU time and the memory of client and scheduler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("cycle")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--deaths", type=int, default=4, help="workers that end during the exploration")
    given = parser.parse_args(words)
    source = source_of(RunStore.find(given.run, given.results), given.cycle)
    seen = seen_in(source)
    print(load())
    with (
        TemporaryDirectory() as folder,
        progress("starting workers"),
        cluster(given.workers, seen, given.deaths) as (client, scheduler),
    ):
        begun, here, there = now_ns(), time.process_time(), cpu_s(scheduler)
        done = explored(source, client, given.states, 1, Path(folder) / "exploration")
        whole_s, here, there = (now_ns() - begun) / 1e9, time.process_time() - here, cpu_s(scheduler) - there
        checked = done.stats.checked
        sent = max(1, cast("ClusterCheckers", done.checkers).sent)
        mean_s = sum(seen.seconds) / len(seen.seconds)
        # A slow worker does a third of the work of another one.
        speed = given.workers * (1 - STRAGGLERS + STRAGGLERS / SLOWER)
        ideal_s = checked * mean_s / speed
        memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(row("states judged", [done.stats.judged]))
        print(row("states checked", [checked]))
        print(row("broken", [done.stats.broken]))
        print(row("elapsed, with the begin", [whole_s], "s"))
        print(row("exploration", [done.seconds], "s"))
        print(row("states checked each second", [checked / done.seconds]))
        print(row("share of the ideal rate", [ideal_s / done.seconds], bar="at least 0.9"))
        print(row("CPU of the client a state", [here / checked * 1e3], "ms"))
        print(row("CPU of the scheduler a task", [there / sent * 1e3], "ms"))
        print(row("states a task", [checked / sent]))
        print(row("greatest memory of the client", [memory_mib], "MiB", "at most 2,048"))
        print(row("memory of the scheduler", [scheduler.memory_info().rss / 2**20], "MiB"))


if __name__ == "__main__":
    main()
