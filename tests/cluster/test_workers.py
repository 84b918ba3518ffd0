"""The workers of a cluster: who is counted, and who gets no task any more."""

from typing import Any

import pytest

from raidproof.cluster import workers as module
from raidproof.cluster.tasks import Refusal, TaskResult
from raidproof.cluster.workers import Workers
from raidproof.core.errors import RigError
from raidproof.record.worker import WorkerRecord


class Client:
    """A fake client of Dask with two workers."""

    status = "running"

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.names = {"tls://1": "one", "tls://2": "two"}

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        return {"workers": {at: {"name": name, "resources": {"lab": 2.0}} for at, name in self.names.items()}}

    def run_on_scheduler(self, _: object, address: str) -> None:
        self.removed.append(address)


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


def test_a_scheduler_that_is_gone_ends_the_work() -> None:
    client = Client()
    client.status = "closed"
    with pytest.raises(RigError, match=r"scheduler is lost.*--resume"):
        Workers(client, "lab").poll()
