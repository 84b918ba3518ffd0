"""The workers of a cluster that have slots of one kind: which are there, and which are left out."""

from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from raidproof.cluster.tasks import Interrupted, Refusal, TaskResult
from raidproof.core.errors import RigError
from raidproof.core.log import logger, say, step
from raidproof.core.waiting import now_ns
from raidproof.record.worker import WorkerRecord

POLL_S = 2.0
"""Interval in seconds at which the workers are counted."""
WAIT_S = 120.0
"""Default of the time in seconds for which the cluster may be without any worker."""
FETCH_S = 30.0
"""Time limit in seconds for fetching the result of a task from its worker."""
ATTEMPTS = 3
"""Number of workers that may refuse the same task before the work ends."""
CONTINUES = "the same command with --resume continues, on any cluster or without one"


async def _remove(address: str, dask_scheduler: Any) -> None:
    """Remove a worker from the cluster, and end it; runs in the scheduler."""
    await dask_scheduler.remove_worker(address=address, stimulus_id="raidproof-left-out", expected=True, close=True)


async def _slots(slot: str, dask_scheduler: Any) -> dict[str, tuple[str, int]]:
    """Return the name and the number of slots of each worker by its address; runs in the scheduler.

    Dask's own description of 200 workers takes a third of a second.
    """
    workers = dask_scheduler.workers.values()
    return {one.address: (str(one.name), int(one.resources.get(slot, 0))) for one in workers}


@dataclass(frozen=True)
class NoResult:
    """A task that ended without a result."""

    reason: str
    raised: bool
    """Whether the task raised an error, which may occur again on another worker.

    Otherwise its worker is gone, or has ended its machines."""


class Workers:
    """The workers of a connected `distributed.Client`."""

    def __init__(self, client: Any, slot: str, wait_s: float = WAIT_S) -> None:
        """``slot``: the resource of Dask that a task takes; ``wait_s``: see `WAIT_S`."""
        self._client = client
        self._slot = slot
        self._wait_s = wait_s
        self.records: dict[str, WorkerRecord] = {}
        """The workers that have carried out or refused a task, by identifier of their process."""
        self.addresses: frozenset[str] = frozenset()
        """Addresses of the workers with slots, when they were counted last."""
        self.left_out: set[str] = set()
        """Names of the workers that refused a task; they may connect again, and get no task then."""
        self.slots = 1
        """Number of tasks that the cluster can carry out at the same time; at least 1."""
        self._polled_ns = self._alive_ns = now_ns()

    def wait(self) -> None:
        """Wait until the cluster has a worker.

        Raises:
            RigError: it has none in time.
        """
        step("waiting for a worker of the cluster")
        try:
            self._client.wait_for_workers(1, timeout=self._wait_s)
        except TimeoutError as error:
            raise RigError(f"the cluster has no worker after {self._wait_s:.0f} s") from error

    def count(self) -> None:
        """Count the workers and their slots."""
        workers: dict[str, tuple[str, int]] = self._client.run_on_scheduler(_slots, slot=self._slot)
        for address, (name, _) in workers.items():
            if name in self.left_out:
                self._client.run_on_scheduler(_remove, address=address)
        slots = {address: count for address, (name, count) in workers.items() if name not in self.left_out}
        self.addresses = frozenset(address for address, count in slots.items() if count)
        self.slots = max(1, sum(slots.values()))

    def poll(self) -> bool:
        """Count the workers, unless they were counted less than `POLL_S` ago; return whether they were counted.

        Raises:
            RigError: the scheduler is gone, or the cluster has had no worker for too long.
        """
        self.require_scheduler()
        if now_ns() - self._polled_ns <= POLL_S * 1e9:
            return False
        self._polled_ns = now_ns()
        self.count()
        if self.addresses:
            self._alive_ns = now_ns()
        elif now_ns() - self._alive_ns > self._wait_s * 1e9:
            reasons = "; ".join(f"{one.name}: {one.left_out}" for one in self.records.values() if one.left_out)
            raise RigError(f"the cluster has no worker left{': ' if reasons else ''}{reasons}", remedy=CONTINUES)
        return True

    def require_scheduler(self) -> None:
        """Verify that the client is connected.

        Raises:
            RigError: the scheduler is gone.
        """
        if self._client.status != "running":
            raise RigError("the connection to the cluster's scheduler is lost", remedy=CONTINUES)

    def wait_for(self, future: Any) -> None:
        """Wait for the end of a task.

        Raises:
            RigError: as for `poll`.
        """
        ended: SimpleQueue[Any] = SimpleQueue()
        future.add_done_callback(ended.put)
        while not future.done():
            self.poll()
            with suppress(Empty):
                ended.get(timeout=POLL_S)

    def fetch_all(self, futures: Sequence[Any]) -> list[TaskResult | NoResult]:
        """Fetch the results of tasks that have ended, in one exchange with the scheduler if no worker is gone.

        Raises:
            RigError: the scheduler is gone.
        """
        finished = [one for one in futures if one.status == "finished"]
        results: dict[Any, TaskResult] = {}
        # If one result is lost, or fails when another worker computes it again, each is fetched alone.
        with suppress(Exception, CancelledError):
            gathered = self._client.sync(
                lambda: self._client.gather(finished, asynchronous=True), callback_timeout=FETCH_S
            )
            results = dict(zip(finished, gathered, strict=True))
        return [self._usable(results[one]) if one in results else self.fetch(one) for one in futures]

    def fetch(self, future: Any) -> TaskResult | NoResult:
        """Fetch the result of a task that has ended from its worker, which may be gone by now.

        Raises:
            RigError: the scheduler is gone.
        """
        if future.status == "finished":
            # Among the errors is TimeoutError: no worker is there that computes the lost result again.
            with suppress(OSError, CancelledError):
                return self._usable(future.result(timeout=FETCH_S))
        self.require_scheduler()
        if future.status == "error":
            return NoResult(f"a task failed: {future.exception()}", raised=True)
        self._client.cancel([future], force=True)
        return NoResult("a worker has left before its result was fetched", raised=False)

    @staticmethod
    def _usable(found: TaskResult) -> TaskResult | NoResult:
        if isinstance(found.result, Interrupted):
            reason = f"worker {found.worker.name} ended its machines: the scheduler did not answer"
            return NoResult(reason, raised=False)
        return found

    def end_plugin(self, name: str) -> None:
        """End what a plugin of Dask holds on all workers; a worker that is gone, or new, holds nothing."""
        if self._client.status != "running":
            return
        try:
            self._client.unregister_worker_plugin(name)
        except (KeyError, OSError, CancelledError) as error:
            logger.warning("the plugin %s could not be removed from all workers: %r", name, error)

    def record_of(self, done: TaskResult) -> WorkerRecord:
        """Return the record of the worker that carried out a task, which lasts as long as its process."""
        return self.records.setdefault(done.session, done.worker.model_copy())

    def leave_out(self, done: TaskResult) -> str:
        """Remove the worker that refused a task from the cluster; return its reason."""
        refusal = done.result
        assert isinstance(refusal, Refusal)  # noqa: S101  the caller has tested it
        record = self.record_of(done)
        if record.left_out is None:
            record.left_out = refusal.reason
            self.left_out.add(record.name)
            say(f"worker {record.name} on {record.host} is left out: {refusal.reason}")
            # Dask's retirement of a worker fails if it has the only copy of some data.
            self._client.run_on_scheduler(_remove, address=done.address)
        return refusal.reason
