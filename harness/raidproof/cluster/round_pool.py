"""The workers of a cluster that make the rounds and power cuts of a plan."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Self
from uuid import uuid4

from raidproof.cluster.identity import version
from raidproof.cluster.round_process import made_in_process
from raidproof.cluster.round_tasks import Maker, RoundsPlugin, make
from raidproof.cluster.rounds import Made, PlanJob, Request
from raidproof.cluster.slots import LAB
from raidproof.cluster.tasks import Refusal, TaskResult
from raidproof.core.errors import RigError
from raidproof.core.log import logger, say, step
from raidproof.core.waiting import now_ns
from raidproof.record.worker import WorkerRecord

POLL_S = 2.0
"""Interval in seconds at which the workers are counted."""
WITHOUT_WORKERS_S = 120.0
"""Time in seconds without any worker after which the run ends."""
ATTEMPTS = 3
"""Number of workers that may refuse the same request before the run ends."""
CONTINUES = "the same command with --resume continues, on any cluster or without one"


class Done(NamedTuple):
    """A request that a worker has carried out."""

    request: Request
    made: Made
    worker: WorkerRecord
    """The worker; equal for all results of one process."""
    session: str
    """Identifier of the worker's process."""


@dataclass(eq=False)
class Task:
    """A request that was sent to the cluster."""

    request: Request
    refused: list[str] = field(default_factory=list)
    """Why workers refused it."""


class RoundPool:
    """The workers of a cluster, as a context manager that sends the job to them, and in the end ends all labs."""

    def __init__(self, client: Any, job: PlanJob, maker: Maker = made_in_process) -> None:
        self._client = client
        self._job = job
        self._maker = maker
        self._plugin = f"raidproof-plan-{uuid4().hex}"
        self._data: Any = None
        self._tasks: dict[Any, Task] = {}
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self.records: dict[str, WorkerRecord] = {}
        """The workers that have carried out or refused a request, by identifier of the process."""
        self.slots = 1
        """Number of requests that the cluster can carry out at the same time."""
        self._polled_ns = self._alive_ns = now_ns()

    def __enter__(self) -> Self:
        step("waiting for a worker of the cluster")
        try:
            self._client.wait_for_workers(1, timeout=WITHOUT_WORKERS_S)
        except TimeoutError as error:
            raise RigError(f"the cluster has no worker after {WITHOUT_WORKERS_S:.0f} s") from error
        self._client.register_plugin(RoundsPlugin(self._plugin, version(), self._maker), name=self._plugin)
        self._data = self._client.scatter(self._job, broadcast=True, hash=False)
        self._count_slots()
        return self

    def __exit__(self, *error: object) -> None:
        if self._client.status == "running":
            if self._tasks:
                self._client.cancel(list(self._tasks), force=True)
            # Ends the labs of this plan on all workers.
            self._client.unregister_worker_plugin(self._plugin)
        self._tasks.clear()

    def _count_slots(self) -> int:
        """Count the slots for labs; return their number, which is 0 without a worker."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        found = int(sum(one["resources"].get(LAB, 0) for one in workers))
        self.slots = max(1, found)
        return found

    def results(self, requests: Iterable[Request]) -> Iterator[Done]:
        """Have requests carried out, and yield each once, as it ends. A request is taken when a slot is free.

        Raises:
            RigError: `ATTEMPTS` workers refused a request, the scheduler is gone, or no worker is left.
        """
        left = iter(requests)
        more = True
        while more or self._tasks:
            while more and len(self._tasks) < self.slots:
                if (request := next(left, None)) is None:
                    more = False
                else:
                    self._send(Task(request))
            if self._tasks and (done := self._collected()) is not None:
                yield done

    def _send(self, task: Task) -> None:
        future = self._client.submit(
            make, self._data, self._plugin, task.request, resources={LAB: 1}, pure=False, retries=0
        )
        self._tasks[future] = task
        future.add_done_callback(self._ended.put)

    def _collected(self) -> Done | None:
        """Return the next result; None if there is none within `POLL_S`."""
        if now_ns() - self._polled_ns > POLL_S * 1e9:
            self._polled_ns = now_ns()
            self._require_workers()
        try:
            future = self._ended.get(timeout=POLL_S)
        except Empty:
            return None
        task = self._tasks.pop(future, None)
        if task is None:
            return None  # it was taken already
        if future.status != "finished":
            self._require_scheduler()
            error = future.exception() if future.status == "error" else None
            logger.warning("%s on the cluster ended %s: %s", task.request.label, future.status, error)
            self._again(task, f"{future.status}: {error}")
            return None
        found: TaskResult = future.result()
        worker = self.records.setdefault(found.session, found.worker.model_copy())
        if isinstance(found.result, Refusal):
            self._leave_out(found, task)
            return None
        return Done(task.request, found.result, worker, found.session)

    def _again(self, task: Task, why: str) -> None:
        task.refused.append(why)
        if len(task.refused) >= ATTEMPTS:
            reasons = "; ".join(dict.fromkeys(task.refused))
            raise RigError(f"{ATTEMPTS} workers could not carry out {task.request.label}: {reasons}", remedy=CONTINUES)
        self._send(task)

    def _leave_out(self, found: TaskResult, task: Task) -> None:
        reason = found.result.reason
        self.records[found.session].left_out = reason
        say(f"worker {found.worker.name} on {found.worker.host} is left out: {reason}")
        # Before the request is sent again, so that this worker does not get it again.
        self._client.retire_workers([found.address], close_workers=True, remove=True)
        self._again(task, f"worker {found.worker.name}: {reason}")

    def _require_scheduler(self) -> None:
        if self._client.status != "running":
            raise RigError("the connection to the cluster's scheduler is lost", remedy=CONTINUES)

    def _require_workers(self) -> None:
        """Verify that the cluster has a worker with a slot for a lab, or had one less than `WITHOUT_WORKERS_S` ago.

        Raises:
            RigError: the scheduler is gone, or there has been no such worker for this time.
        """
        self._require_scheduler()
        if self._count_slots():
            self._alive_ns = now_ns()
        elif now_ns() - self._alive_ns > WITHOUT_WORKERS_S * 1e9:
            reasons = "; ".join(f"{one.name}: {one.left_out}" for one in self.records.values() if one.left_out)
            raise RigError(
                f"the cluster has no worker left that runs labs{': ' if reasons else ''}{reasons}", remedy=CONTINUES
            )
