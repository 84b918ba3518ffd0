"""Explorations on workers in network namespaces of their own: equal results, and faults that change nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.core.errors import Status
from raidproof.core.waiting import Deadline, wait_until
from raidproof.crash.exploration import Budget
from raidproof.record import RunStore
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.source import source_of
from scenarios.cluster.machines import Machines, Worker, ended, machines
from scenarios.cluster.recorded import ENDED, STATES, Recorded

pytestmark = [pytest.mark.exhaustive]

DEADLINE_S = 400.0
FULL_DISK = ("its kernel ended", "No space left on device", "MiB free")
"""Parts of the reasons why a worker without disk space is left out."""
PLAN = """
title = "two levels"
hardware = { disks = { count = 4, size = "512MiB" } }
axes = { level = [5, 10] }
workload = { tool = "dd", count = 64 }
run = { repeats = 1, allow_cache = true, reference = false }
"""


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
    assert ended(client, DEADLINE_S) in ENDED, cluster.output("client")  # type: ignore[arg-type]


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
    # No worker refused a task: one was killed, and one ended its machines, as long as it had no scheduler.
    assert not [one.left_out for one in record.workers if not str(one.left_out).startswith(("None", "it "))]


def test_a_worker_without_disk_space_is_left_out(cluster: Machines, recorded: Recorded) -> None:
    full = cluster.worker("worker1", room="3g")
    cluster.worker("worker2")
    client = cluster.explore(recorded.run, recorded.cycle, "--states", str(STATES))
    full.wait_for_lab()
    full.fill()
    finished(cluster, client)
    record, verdicts = recorded.newest()
    assert verdicts == recorded.expected
    reasons = {one.name: one.left_out for one in record.workers if one.left_out}
    assert [*reasons] == ["worker1"]
    # The first reason is of a machine that lost its disk, a later one of the tests of the host.
    assert any(said in str(reasons["worker1"]) for said in FULL_DISK)
    assert {one.name for one in record.workers if one.done} == {"worker2"}


def test_the_labs_of_a_worker_that_is_cut_off_end(cluster: Machines, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    cut = cluster.worker("worker1")
    client = cluster.client("run", str(plan), "--results", str(tmp_path))
    cut.wait_for_lab()
    cluster.link(cut, up=False)
    cut.wait_for_no_lab()
    assert client.status is None
    cluster.worker("worker2")
    assert ended(client, DEADLINE_S) in {Status.PASS, Status.INCONCLUSIVE}, cluster.output("client")
    (path,) = tmp_path.glob("*-plan")
    cells = RunStore(path).load().cells
    assert {repeat.worker for cell in cells for repeat in cell.repeats if repeat.value} == {"worker2"}
    assert all(len(cell.measured) == 1 for cell in cells)


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
