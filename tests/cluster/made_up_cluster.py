"""A cluster in this process, and the made-up exploration that its workers check."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import distributed
import pytest

from raidproof.cluster.campaign import Campaign
from raidproof.cluster.checkers import ClusterCheckers
from raidproof.cluster.connection import require_dask
from raidproof.cluster.workers import Workers
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Begun, Journal
from raidproof.crash.sampler import Choices
from tests.crash.made_up import MadeUp

dask: Any = distributed
"""The package without its types: its functions have none."""
CAMPAIGNS: dict[str, "MadeUpRun"] = {}


class MadeUpRun:
    """What the workers check, and how single workers misbehave."""

    def __init__(self, made_up: MadeUp) -> None:
        self.made_up = made_up
        self.planted: dict[str, Callable[[MadeUp], None]] = {}
        """For workers by name: a change of the checkers."""
        self.prepared: list[str] = []
        """Names of the workers that prepared themselves."""

    def source(self, worker: str) -> Any:
        self.prepared.append(worker)
        mine = MadeUp.__new__(MadeUp)
        mine.__dict__.update(self.made_up.__dict__)
        if worker in self.planted:
            self.planted[worker](mine)
        return SimpleNamespace(
            recording=self.made_up.recording, oracle=self.made_up.oracle, boots=lambda _: mine.boots()
        )


@dataclass(frozen=True)
class MadeUpCampaign:
    """A campaign whose files are in this process."""

    digest: str

    def prepared(self) -> Any:
        return CAMPAIGNS[self.digest].source(str(dask.get_worker().name))


class Twice(SimpleQueue[Any]):
    """A queue in which everything arrives twice."""

    doubled = 0
    """Number of items that were put into all such queues."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put an item twice."""
        Twice.doubled += 1
        super().put(item, block, timeout)
        super().put(item, block, timeout)


def ending_before_fetch(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let one worker end between the end of its task and the fetch of the result; the returned list gets its name."""
    fetch, fetch_all, ended = Workers.fetch, Workers.fetch_all, list[str]()

    def end_holder(future: Any) -> None:
        if not ended and (holders := client.who_has([future])[future.key]):
            worker = next(one for one in client.cluster.workers.values() if one.address in holders)
            ended.append(str(worker.name))
            client.cluster.sync(worker.close, nanny=False, executor_wait=False)

    def end_first(of: Workers, future: Any) -> Any:
        end_holder(future)
        return fetch(of, future)

    def end_first_of_all(of: Workers, futures: Any) -> Any:
        for future in futures:
            end_holder(future)
        return fetch_all(of, futures)

    monkeypatch.setattr(Workers, "fetch", end_first)
    monkeypatch.setattr(Workers, "fetch_all", end_first_of_all)
    return ended


@contextmanager
def workers(count: int, slots: int = 1) -> Iterator[Any]:
    """Return the client of a cluster with so many workers in this process, with raidproof's settings."""
    require_dask()
    with (
        dask.LocalCluster(
            n_workers=count,
            threads_per_worker=slots,
            processes=False,
            dashboard_address="127.0.0.1:0",
            resources={"checker": float(slots)},
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        dask.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def checkers_of(run: MadeUpRun, client: Any, wait_s: float = 20.0) -> ClusterCheckers:
    """Return the checkers of a made-up exploration."""
    digest = str(run.made_up.folder)
    CAMPAIGNS[digest] = run
    return ClusterCheckers(client, cast("Campaign", MadeUpCampaign(digest)), run.made_up.recording, wait_s=wait_s)


def explored(
    run: MadeUpRun,
    client: Any,
    states: int | None = None,
    *,
    wait_s: float = 20.0,
    then: Callable[[Exploration], None] = lambda _: None,
) -> Exploration:
    """Explore on a cluster, do ``then``, and return the exploration after its end."""
    made_up = run.made_up
    begun = Begun(cycle="made-up", log_digest="0", seed=1, tear=512)
    journal = Journal(made_up.folder / "states.jsonl", begun)
    choices = Choices(made_up.recording, 1)
    exploration = Exploration(choices, made_up.oracle, journal, lambda _: checkers_of(run, client, wait_s))
    with closing(journal), exploration:
        exploration.run(Budget(states))
        then(exploration)
    return exploration
