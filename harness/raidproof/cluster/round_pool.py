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
from raidproof.cluster.tasks import Refusal
from raidproof.cluster.workers import ATTEMPTS, CONTINUES, POLL_S, WAIT_S, NoResult, Workers
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
        self._waiting: list[Task[R]] = []
        """Tasks that are sent again when the workers have been counted."""
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self.workers = Workers(client, LAB, wait_s)

    def __enter__(self) -> Self:
        self.workers.wait()
        self._client.register_plugin(RoundsPlugin(self._plugin, version(), self._maker), name=self._plugin)
        self._scatter()
        self.workers.count()
        return self

    def _scatter(self) -> None:
        self._data = self._client.scatter(self._job, broadcast=True, hash=False)

    def __exit__(self, *error: object) -> None:
        if self._tasks and self._client.status == "running":
            self._client.cancel(list(self._tasks), force=True)
        # The labs of this plan.
        self.workers.end_plugin(self._plugin)
        self._tasks.clear()
        self._waiting.clear()

    def results(self, requests: Iterable[R]) -> Iterator[Done[R, M]]:
        """Have requests carried out, and yield each once, as it ends. A request is taken when a slot is free.

        Raises:
            RigError: `ATTEMPTS` workers refused a request, the scheduler is gone, or no worker is left.
        """
        left = iter(requests)
        more = True
        while more or self._tasks or self._waiting:
            while more and not self._waiting and len(self._tasks) < self.workers.slots:
                if (request := next(left, None)) is None:
                    more = False
                else:
                    self._send(Task(request))
            if (self._tasks or self._waiting) and (done := self._collected()) is not None:
                yield done

    def _send(self, task: Task[R]) -> None:
        future = self._client.submit(
            make, self._data, self._plugin, task.request, resources={LAB: 1}, pure=False, retries=0
        )
        self._tasks[future] = task
        future.add_done_callback(self._ended.put)

    def _collected(self) -> Done[R, M] | None:
        """Return the next result; None if there is none within `POLL_S`."""
        if self.workers.poll() and self.workers.addresses:
            self._send_again()
        try:
            future = self._ended.get(timeout=POLL_S)
        except Empty:
            return None
        task = self._tasks.pop(future, None)
        if task is None:
            return None  # it was taken already
        found = self.workers.fetch(future)
        if isinstance(found, NoResult):
            logger.warning("%s on the cluster ended without a result: %s", task.request.label, found.reason)
            self._again(task, found.reason)
            return None
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
        self._waiting.append(task)

    def _send_again(self) -> None:
        if self._waiting and self._data.status != "finished":
            # All workers that had the job are gone.
            self._scatter()
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._send(task)
