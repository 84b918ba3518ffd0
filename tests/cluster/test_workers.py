"""The workers of a cluster: who is counted, and who gets no task any more."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.cluster import workers as module
from raidproof.cluster.tasks import Interrupted, Refusal, TaskResult
from raidproof.cluster.workers import NoResult, Workers
from raidproof.core.errors import RigError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.record.worker import WorkerRecord
from tests.cluster.made_up_cluster import workers as cluster_of


class Client:
    """A fake client of Dask with two workers."""

    status = "running"

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.names = {"tls://1": "one", "tls://2": "two"}

    def run_on_scheduler(self, function: Any, **arguments: str) -> Any:
        if "address" in arguments:
            self.removed.append(arguments["address"])
            return None
        workers = {
            at: SimpleNamespace(address=at, name=name, resources={"lab": 2.0}) for at, name in self.names.items()
        }
        return asyncio.run(function(dask_scheduler=SimpleNamespace(workers=workers), **arguments))


def refused(session: str, name: str) -> TaskResult:
    record = WorkerRecord(name=name, host="h", cpu="c", cores=1, kernel="k", load=0.0, version="v")
    return TaskResult(record, f"tls://{session}", session, Refusal("the disk is full"))


def test_a_worker_that_was_left_out_gets_no_task_when_it_connects_again() -> None:
    client = Client()
    workers = Workers(client, "lab")
    workers.count()
    assert (workers.slots, workers.addresses) == (4, frozenset({"tls://1", "tls://2"}))
    assert workers.leave_out(refused("1", "one")) == "the disk is full"
    client.names = {"tls://3": "one", "tls://2": "two"}
    workers.count()
    assert (workers.slots, workers.addresses) == (2, frozenset({"tls://2"}))
    assert client.removed == ["tls://1", "tls://3"]
    assert workers.records["1"].left_out == "the disk is full"


def test_if_all_workers_are_left_out_the_work_ends_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)
    workers = Workers(Client(), "lab", wait_s=0.0)
    workers.leave_out(refused("1", "one"))
    assert workers.poll()
    workers.leave_out(refused("2", "two"))
    with pytest.raises(RigError, match="no worker left: one: the disk is full; two: the disk is full"):
        workers.poll()


def test_a_plugin_that_a_worker_lacks_hides_no_other_error(caplog: pytest.LogCaptureFixture) -> None:
    client: Any = Client()
    asked: list[str] = []

    def unregister(name: str) -> None:
        asked.append(name)
        raise KeyError(name)

    client.unregister_worker_plugin = unregister
    Workers(client, "lab").end_plugin("x")
    assert asked == ["x"]
    assert "could not be removed" in caplog.text
    client.status = "closed"
    Workers(client, "lab").end_plugin("y")
    assert asked == ["x"]


def test_a_scheduler_that_is_gone_ends_the_work() -> None:
    client = Client()
    client.status = "closed"
    with pytest.raises(RigError, match=r"scheduler is lost.*--resume"):
        Workers(client, "lab").poll()


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fetch end soon whose worker is gone."""
    monkeypatch.setattr(module, "FETCH_S", 0.5)
    monkeypatch.setattr(module, "POLL_S", 0.1)


def submitted(client: Any, task: Callable[..., Any], *arguments: Any) -> Any:
    future = client.submit(task, *arguments, resources={"checker": 1}, pure=False, retries=0)
    wait_until(future.done, Deadline.after(20), "the end of the task")
    return future


def end(client: Any, number: int) -> None:
    """End a worker of the cluster, with the results that it holds."""
    client.cluster.sync(client.cluster.workers[number].close, nanny=False)


def test_a_result_is_fetched_from_its_worker() -> None:
    with cluster_of(1) as client:
        workers, future = Workers(client, "checker"), submitted(client, refused, "1", "one")
        workers.wait_for(future)
        assert workers.fetch(future) == refused("1", "one")


def test_results_are_fetched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_of(2) as client:
        futures = [submitted(client, refused, str(number), "one") for number in range(3)]
        monkeypatch.setattr(Workers, "fetch", lambda *_: pytest.fail("a result was fetched alone"))
        assert Workers(client, "checker").fetch_all(futures) == [refused(str(number), "one") for number in range(3)]
        assert Workers(client, "checker").fetch_all([]) == []


@pytest.mark.usefixtures("_soon")
def test_beside_a_failed_and_a_lost_result_the_others_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_of(1) as client:
        failed, lost = submitted(client, int, "x"), submitted(client, refused, "1", "one")
        gather = client.gather

        def without_worker(*arguments: Any, **options: Any) -> Any:
            client.loop.add_callback(client.cluster.workers[0].close, nanny=False)
            return gather(*arguments, **options)

        monkeypatch.setattr(client, "gather", without_worker)
        first, second = Workers(client, "checker").fetch_all([failed, lost])
        assert isinstance(first, NoResult)
        assert first.raised
        assert second == refused("1", "one") or (isinstance(second, NoResult) and not second.raised)


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("during", [False, True])
def test_a_worker_that_ends_before_its_result_is_fetched_has_no_result(
    *, during: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster_of(1) as client:
        future = submitted(client, refused, "1", "one")
        fetch = future.result

        def result(timeout: float) -> Any:
            end(client, 0)
            return fetch(timeout=timeout)

        if during:
            # The client does not know yet that the worker has ended.
            monkeypatch.setattr(future, "result", result)
        else:
            end(client, 0)
            wait_until(lambda: future.status == "lost", Deadline.after(20), "the loss of the result")
        found = Workers(client, "checker").fetch(future)
        assert isinstance(found, NoResult)
        assert not found.raised
        assert future.cancelled()


def test_a_task_that_raises_has_no_result_and_a_reason() -> None:
    with cluster_of(1) as client:
        found = Workers(client, "checker").fetch(submitted(client, int, "x"))
        assert isinstance(found, NoResult)
        assert found.raised
        assert "invalid literal" in found.reason


def test_a_task_whose_worker_ended_its_machines_has_no_result() -> None:
    with cluster_of(1) as client:
        workers, interrupted = Workers(client, "checker"), replace(refused("1", "one"), result=Interrupted())
        found = workers.fetch(submitted(client, lambda: interrupted))
        assert isinstance(found, NoResult)
        assert not found.raised
        assert "worker one ended its machines" in found.reason
        assert not workers.left_out


@pytest.mark.usefixtures("_soon")
def test_a_cancelled_task_has_no_result() -> None:
    with cluster_of(1) as client:
        future = submitted(client, refused, "1", "one")
        client.cancel([future], force=True)
        found = Workers(client, "checker").fetch(future)
        assert isinstance(found, NoResult)
        assert not found.raised


@pytest.mark.usefixtures("_soon")
def test_no_result_is_fetched_without_a_scheduler() -> None:
    with cluster_of(1) as client:
        workers, future = Workers(client, "checker"), submitted(client, refused, "1", "one")
        client.close()
        with pytest.raises(RigError, match="scheduler is lost"):
            workers.fetch(future)


@pytest.mark.usefixtures("_soon")
def test_waiting_for_a_task_ends_when_no_worker_is_left() -> None:
    with cluster_of(1) as client:
        workers = Workers(client, "checker", wait_s=0.5)
        workers.count()
        future = client.submit(asyncio.sleep, 600, resources={"checker": 1})
        end(client, 0)
        with pytest.raises(RigError, match="no worker left"):
            workers.wait_for(future)


def test_no_profiler_of_dask_runs_in_a_worker() -> None:
    with cluster_of(1) as client:
        assert not [name for name in client.cluster.workers[0].periodic_callbacks if "profile" in name]
