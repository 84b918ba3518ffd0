"""The workers of a cluster that carry out requests with labs, such as rounds of a plan."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar
from uuid import uuid4

from raidproof.cluster.identity import version
from raidproof.cluster.round_process import made_in_process
from raidproof.cluster.round_tasks import Maker, RoundsPlugin, make
from raidproof.cluster.slots import LAB
from raidproof.cluster.tasks import Refusal, TaskResult
from raidproof.cluster.workers import ATTEMPTS, CONTINUES, POLL_S, WAIT_S, Workers
from raidproof.core.errors import RigError
from raidproof.core.log import logger
from raidproof.record.worker import WorkerRecord


class Labelled(Protocol):
    """A request to the workers."""

    @property
    def label(self) -> str:
        """Name of the request, for folders and messages."""


R = TypeVar("R", bound=Labelled)
M = TypeVar("M")


class Done(NamedTuple, Generic[R, M]):
    """A request that a worker has carried out."""

    request: R
    made: M
    worker: WorkerRecord
    """The worker; equal for all results of one process."""
    session: str
    """Identifier of the worker's process."""


@dataclass(eq=False)
class Task(Generic[R]):
    """A request that was sent to the cluster."""

    request: R
    refused: list[str] = field(default_factory=list)
    """Why workers refused it."""


class RoundPool(Generic[R, M]):
    """The workers of a cluster, as a context manager that sends the job to them, and in the end ends all labs."""

    def __init__(self, client: Any, job: Any, maker: Maker = made_in_process, *, wait_s: float = WAIT_S) -> None:
        """``wait_s``: time in seconds for which the cluster may be without any worker."""
        self._client = client
        self._job = job
        self._maker = maker
        self._plugin = f"raidproof-plan-{uuid4().hex}"
        self._data: Any = None
        self._tasks: dict[Any, Task[R]] = {}
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self.workers = Workers(client, LAB, wait_s)

    def __enter__(self) -> Self:
        self.workers.wait()
        self._client.register_plugin(RoundsPlugin(self._plugin, version(), self._maker), name=self._plugin)
        self._data = self._client.scatter(self._job, broadcast=True, hash=False)
        self.workers.count()
        return self

    def __exit__(self, *error: object) -> None:
        if self._client.status == "running":
            if self._tasks:
                self._client.cancel(list(self._tasks), force=True)
            # Ends the labs of this plan on all workers.
            self._client.unregister_worker_plugin(self._plugin)
        self._tasks.clear()

    def results(self, requests: Iterable[R]) -> Iterator[Done[R, M]]:
        """Have requests carried out, and yield each once, as it ends. A request is taken when a slot is free.

        Raises:
            RigError: `ATTEMPTS` workers refused a request, the scheduler is gone, or no worker is left.
        """
        left = iter(requests)
        more = True
        while more or self._tasks:
            while more and len(self._tasks) < self.workers.slots:
                if (request := next(left, None)) is None:
                    more = False
                else:
                    self._send(Task(request))
            if self._tasks and (done := self._collected()) is not None:
                yield done

    def _send(self, task: Task[R]) -> None:
        future = self._client.submit(
            make, self._data, self._plugin, task.request, resources={LAB: 1}, pure=False, retries=0
        )
        self._tasks[future] = task
        future.add_done_callback(self._ended.put)

    def _collected(self) -> Done[R, M] | None:
        """Return the next result; None if there is none within `POLL_S`."""
        self.workers.poll()
        try:
            future = self._ended.get(timeout=POLL_S)
        except Empty:
            return None
        task = self._tasks.pop(future, None)
        if task is None:
            return None  # it was taken already
        if future.status != "finished":
            self.workers.require_scheduler()
            error = future.exception() if future.status == "error" else None
            logger.warning("%s on the cluster ended %s: %s", task.request.label, future.status, error)
            self._again(task, f"{future.status}: {error}")
            return None
        found: TaskResult = future.result()
        worker = self.workers.record_of(found)
        if isinstance(found.result, Refusal):
            # Before the request is sent again, so that this worker does not get it again.
            reason = self.workers.leave_out(found)
            self._again(task, f"worker {found.worker.name}: {reason}")
            return None
        return Done(task.request, found.result, worker, found.session)

    def _again(self, task: Task[R], why: str) -> None:
        task.refused.append(why)
        if len(task.refused) >= ATTEMPTS:
            reasons = "; ".join(dict.fromkeys(task.refused))
            raise RigError(f"{ATTEMPTS} workers could not carry out {task.request.label}: {reasons}", remedy=CONTINUES)
        self._send(task)
