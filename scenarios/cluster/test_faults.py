"""Explorations on workers in network namespaces of their own: equal results, and faults that change nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.core.errors import Status
from raidproof.core.waiting import Deadline, wait_until
from raidproof.crash.exploration import Budget
from raidproof.crash.verdicts import VERDICTS
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record import RunStore
from raidproof.record.exploration import ExplorationRecord
from raidproof.run.crash_states import Options
from raidproof.run.exploration import STEM, explore_cycle, source_of
from raidproof.run.run import Run
from scenarios.cluster.machines import Machines, Worker, ended, machines

pytestmark = [pytest.mark.exhaustive]

STATES = 60
DEADLINE_S = 400.0


class Recorded:
    """A crash test whose states the tests explore, and the verdicts that this host finds without a cluster."""

    def __init__(self, run: Path, cycle: str) -> None:
        self.run = run
        self.cycle = cycle
        self.expected = self.table(f"{STEM}{cycle}")

    def table(self, stem: str) -> bytes:
        return (self.run / stem / VERDICTS).read_bytes()

    def newest(self) -> tuple[ExplorationRecord, bytes]:
        """Return the record and the verdicts of the exploration that has just ended."""
        path = max(self.run.glob(f"{STEM}{self.cycle}-*.json"), key=lambda one: one.stat().st_mtime_ns)
        stem = path.stem
        return ExplorationRecord.model_validate(json.loads((self.run / f"{stem}.json").read_text())), self.table(stem)


@pytest.fixture(scope="module")
def recorded(current_run: Run) -> Recorded:
    ended_cycle = CrashTestRunner(current_run, "cluster")(stack_of()).must_pass()
    source = source_of(current_run.store, ended_cycle.record.name)
    explore_cycle(source, Options(Budget(STATES)))
    current_run.discard_lab()
    return Recorded(current_run.store.path, ended_cycle.record.name)


@pytest.fixture
def cluster() -> Iterator[Machines]:
    with machines() as made:
        yield made


def three(cluster: Machines, *plants: str) -> list[Worker]:
    defects = (*plants, "", "", "")[:3]
    return [cluster.worker(f"worker{number}", plant=plant) for number, plant in enumerate(defects, start=1)]


def states_judged(cluster: Machines) -> bool:
    return "crash states: " in cluster.output("client")


def finished(cluster: Machines, client: object) -> None:
    assert ended(client, DEADLINE_S) == Status.PASS, cluster.output("client")  # type: ignore[arg-type]


def test_unsound_workers_are_left_out(cluster: Machines, recorded: Recorded) -> None:
    three(cluster, "stale", "kernel")
    finished(cluster, cluster.explore(recorded.run, recorded.cycle, "--states", str(STATES)))
    record, verdicts = recorded.newest()
    assert verdicts == recorded.expected
    left_out = {one.name: one.left_out or "" for one in record.workers}
    assert any(said in left_out["worker1"] for said in ("not found", "not clean", "operations are missing"))
    assert "kernel or image differs" in left_out["worker2"]
    assert not left_out["worker3"]
    assert {one.name for one in record.workers if one.done} == {"worker3"}


def test_workers_that_die_or_are_cut_off_change_no_verdict(cluster: Machines, recorded: Recorded) -> None:
    first, second, _ = three(cluster)
    client = cluster.explore(recorded.run, recorded.cycle, "--states", str(STATES))
    first.wait_for_lab()
    first.process.kill()
    first.wait_for_no_lab()
    second.wait_for_lab()
    cluster.link(second, up=False)
    second.wait_for_no_lab()
    cluster.link(second, up=True)
    finished(cluster, client)
    record, verdicts = recorded.newest()
    assert verdicts == recorded.expected
    assert sum(one.done for one in record.workers) == record.checked


def test_a_worker_without_disk_space_is_left_out(cluster: Machines, recorded: Recorded) -> None:
    cluster.worker("worker1", room="128k")
    cluster.worker("worker2")
    finished(cluster, cluster.explore(recorded.run, recorded.cycle, "--states", str(STATES)))
    record, verdicts = recorded.newest()
    assert verdicts == recorded.expected
    assert [one.name for one in record.workers if one.left_out] == ["worker1"]


def test_an_exploration_survives_its_scheduler(cluster: Machines, recorded: Recorded) -> None:
    workers = three(cluster)
    client = cluster.explore(recorded.run, recorded.cycle, "--states", str(STATES))
    wait_until(lambda: states_judged(cluster), Deadline.after(DEADLINE_S), "the first verdicts")
    cluster.scheduler.kill()
    assert ended(client, DEADLINE_S) == Status.ERROR
    assert "scheduler is lost" in cluster.output("client")
    for worker in workers:
        worker.wait_for_no_lab()
    source = source_of(_store(recorded), recorded.cycle)
    explore_cycle(source, Options(Budget(STATES), resume=True))
    _, verdicts = recorded.newest()
    assert verdicts == recorded.expected


def _store(recorded: Recorded) -> RunStore:
    return RunStore(recorded.run)
