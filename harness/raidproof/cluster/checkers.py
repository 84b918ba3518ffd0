"""The checkers of an exploration on the workers of a cluster.

A task is a range of states, about `TASK_S` long. Its results count when its worker has proved itself after it; the
results of a worker that fails a proof, refuses a task or disappears are thrown away, and its states go to others.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Self

from raidproof.cluster.campaign import Campaign
from raidproof.cluster.identity import version
from raidproof.cluster.seats import Explained, unpacked
from raidproof.cluster.slots import CHECKER
from raidproof.cluster.tasks import RaidproofPlugin, Refusal, TaskResult, check, dumped, explain, prove_worker
from raidproof.cluster.workers import ATTEMPTS, CONTINUES, POLL_S, WAIT_S, NoResult, Workers
from raidproof.core.errors import RigError
from raidproof.core.log import logger, step
from raidproof.core.waiting import Deadline
from raidproof.crash.checkers import Answer, Request
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.states import Recording
from raidproof.crash.stats import ExplorationStats
from raidproof.record.failure import FailureRecord
from raidproof.record.worker import WorkerRecord

STATES_EACH = 1000
"""Number of states for each slot in one pass through the recording: a worker moves forward in it, and starts anew for
each pass. A pass takes seconds; an exploration that a time limit ends within a pass has not checked the last cuts."""
TASK_S = 5.0
"""Duration in seconds of a task: long beside the costs of a task, short beside the exploration."""
FIRST_TASK = 8
"""Number of states of the first tasks, before the duration of a check is known."""
MOST_STATES = 200
"""Limit of the states of one task."""
SENT = 3
"""Number of tasks for each slot of the cluster that are sent: one runs, the others wait on the worker."""
AHEAD = 3
"""Number of further tasks for each slot whose states are requested before results are collected."""
COPIES = 8
"""Number of workers that get the write log in the beginning; the others get it from them with their first tasks.

Dask takes more than half a minute to copy something to all of 200 workers."""
PROOF_EVERY = 20
"""Number of tasks of a worker after which it proves itself again; before the first proof, see `first_proof_after`.

All workers begin at the same time: without different first numbers, the results of all would count at the same time,
and the client would have to judge tens of thousands of states while the workers wait for tasks."""


@dataclass(eq=False)
class Task:
    """A range of states that was sent to the cluster; without a state, the task boots a checker."""

    requests: list[Request]
    refused: set[str] = field(default_factory=set)
    """Names of the workers that refused it: a worker that was left out may connect again."""


@dataclass(eq=False)
class Unproved:
    """The results of one worker process since its last proof."""

    session: str
    """Identifier of the worker's process."""
    worker: WorkerRecord
    address: str
    finished: list[tuple[Task, bytes]] = field(default_factory=list)
    proof: Any = None
    """The future of the proof that the worker is making."""
    covered: int = 0
    """Number of results, from the first on, that this proof covers."""


def first_proof_after(known: int) -> int:
    """Return the number of tasks before the first proof of a worker; ``known``: number of workers before it."""
    return PROOF_EVERY - known % PROOF_EVERY


class ClusterCheckers:
    """The workers of a cluster of Dask, which check crash states of one campaign."""

    def __init__(self, client: Any, campaign: Campaign, recording: Recording, *, wait_s: float = WAIT_S) -> None:
        """``wait_s``: time in seconds for which the cluster may be without any worker."""
        self._client = client
        self._workers = Workers(client, CHECKER, wait_s)
        self._campaign = campaign
        self._plugin = f"raidproof-{campaign.digest}"
        self._window = DiskStates(recording)
        self._recording = recording
        self._data: Any = None
        self._buffer: list[Request] = []
        self._open = 0
        """Number of requests whose answers have not been collected."""
        self.sent = 0
        """Number of tasks that were sent."""
        self._tasks: dict[Any, Task] = {}
        self._waiting: list[Task] = []
        """Tasks that are sent again when the workers have been counted."""
        self._unproved: dict[str, Unproved] = {}
        self._proof_after: dict[str, int] = {}
        """Number of tasks after which a worker's process proves itself, by session."""
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._proved: deque[tuple[Task, bytes]] = deque()
        """Results that count and have not been collected; compressed, as the caller may judge them more slowly."""
        self._booted = False
        """Whether a worker has booted a checker."""
        self._seconds_each: float | None = None

    @property
    def batch(self) -> int:
        """See `Checkers.batch`."""
        return STATES_EACH * self._workers.slots

    @property
    def workers(self) -> Sequence[WorkerRecord]:
        """See `Checkers.workers`."""
        return sorted(self._workers.records.values(), key=lambda one: one.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()
        if self._data is not None:
            # The machines of this campaign.
            self._workers.end_plugin(self._plugin)
            self._data = None

    def boot(self) -> None:
        """Send the files of the crash test to the workers, which boot checkers; wait for the first checker.

        Raises:
            RigError: the cluster has no worker, or several workers cannot boot a checker.
        """
        if self._data is not None:
            return
        self._workers.wait()
        self._client.register_plugin(RaidproofPlugin(self._plugin, version()), name=self._plugin)
        step("sending the write log to the workers")
        self._scatter()
        self._workers.count()
        step("booting checker machines on the workers")
        for _ in range(self._workers.slots):
            self._send(Task([]))
        while not self._booted:
            self._take_ended()

    def _scatter(self) -> None:
        self._data = self._client.scatter(self._campaign, hash=False)
        self._client.replicate([self._data], n=COPIES)

    def at(self, cut: int) -> DiskStates:
        """See `Checkers.at`."""
        if cut < self._window.cut:
            self._window = DiskStates(self._recording)
        self._window.move(cut)
        return self._window

    @property
    def full(self) -> bool:
        """See `Checkers.full`: answers that are there are collected first, as they need memory."""
        return bool(self._proved) or self._is_ahead

    @property
    def _is_ahead(self) -> bool:
        return len(self._buffer) >= AHEAD * self._workers.slots * self._states_of_task()

    @property
    def open(self) -> int:
        """See `Checkers.open`."""
        return self._open

    @property
    def unproved(self) -> int:
        """See `Checkers.unproved`."""
        return sum(len(task.requests) for one in self._unproved.values() for task, _ in one.finished)

    def submit(self, request: Request) -> None:
        """See `Checkers.submit`."""
        self._buffer.append(request)
        self._open += 1
        if self._ended.qsize() >= self._workers.slots:
            self._take_ended()
        if self._has_room and len(self._buffer) >= (size := self._states_of_task()):
            self._send_buffer(size)

    def _states_of_task(self) -> int:
        if self._seconds_each is None:
            return FIRST_TASK
        return max(1, min(MOST_STATES, round(TASK_S / self._seconds_each)))

    @property
    def _has_room(self) -> bool:
        return len(self._tasks) < SENT * self._workers.slots

    def _send_buffer(self, size: int) -> None:
        requests, self._buffer = self._buffer[:size], self._buffer[size:]
        self._send(Task(requests))

    def _send_last(self) -> None:
        """Send the states that are left as tasks that become shorter, so that all slots end at about the same time."""
        while self._buffer and self._has_room:
            share = len(self._buffer) // (2 * self._workers.slots)
            self._send_buffer(max(1, min(self._states_of_task(), share)))

    def _send(self, task: Task) -> None:
        future = self._client.submit(
            check, self._data, self._plugin, dumped(task.requests), resources={CHECKER: 1}, pure=False, retries=0
        )
        self.sent += 1
        self._tasks[future] = task
        future.add_done_callback(self._ended.put)

    def collect(self) -> Sequence[Answer]:
        """See `Checkers.collect`; the result is empty if no worker has proved itself within `POLL_S`."""
        if not self._proved:
            self._send_what_waits()
            self._take_ended()
        if not self._proved:
            return ()
        task, result = self._proved.popleft()
        self._open -= len(task.requests)
        return unpacked(result, task.requests)

    def _send_what_waits(self) -> None:
        if self._is_ahead:
            while self._is_ahead and self._has_room:
                self._send_buffer(self._states_of_task())
        else:
            # The caller waits for the answers of everything that it has requested.
            self._send_last()
        if not self._buffer and len(self._tasks) < self._workers.slots:
            # A slot is idle: its worker proves itself while the last tasks run. What they check is proved after them.
            for one in self._unproved.values():
                self._request_proof(one)

    def _take_ended(self) -> None:
        """Take the results of tasks and proofs that have ended; wait for one of them up to `POLL_S`."""
        with suppress(Empty):
            ended = [self._ended.get(timeout=POLL_S)]
            while not self._ended.empty():
                ended.append(self._ended.get())
            proofs = [one.proof for one in self._unproved.values()]
            # Others were cancelled, or their workers are gone.
            awaited = [one for one in dict.fromkeys(ended) if one in self._tasks or one in proofs]
            for future, done in zip(awaited, self._workers.fetch_all(awaited), strict=True):
                self._take(future, done)
        if self._workers.poll():
            self._find_lost()

    def end_batch(self) -> bool:
        """Return False: each worker has its own position in the recording."""
        return False

    def cancel(self) -> None:
        """See `Checkers.cancel`."""
        proofs = [one.proof for one in self._unproved.values() if one.proof is not None]
        if (futures := [*self._tasks, *proofs]) and self._client.status == "running":
            self._client.cancel(futures, force=True)
        self._tasks.clear()
        self._waiting.clear()
        self._unproved.clear()
        self._buffer.clear()
        self._proved.clear()
        self._open = 0

    def _take(self, future: Any, done: TaskResult | NoResult) -> None:
        """Take the result of a task or of a proof."""
        proof = next((one for one in self._unproved.values() if one.proof is future), None)
        task = self._tasks.pop(future, None)
        if task is None and proof is None:
            return  # its worker was left out meanwhile
        if isinstance(done, NoResult):
            self._take_error(future.key, done, task, proof)
            return
        worker = self._workers.record_of(done)
        if isinstance(done.result, Refusal):
            self._leave_out(done, task)
        elif proof is None and worker.left_out is not None:
            # The result was on its way when its worker was left out: no proof can follow it.
            self._waiting += [task] if task is not None else []
        elif proof is not None and done.session != proof.session:
            self._workers.records[proof.session].left_out = "it ended its machines: the scheduler did not answer"
            self._throw_away(proof)
        elif proof is not None:
            self._confirm(proof)
        elif task is not None:
            self._booted = True
            self._add(done, task)

    def _add(self, done: TaskResult, task: Task) -> None:
        """Add the results of a task to those of its worker that a proof must follow."""
        if task.requests:
            each = done.seconds / len(task.requests)
            self._seconds_each = each if self._seconds_each is None else 0.8 * self._seconds_each + 0.2 * each
            mine = self._unproved.setdefault(done.session, Unproved(done.session, done.worker, done.address))
            mine.finished.append((task, done.result))
            first = first_proof_after(len(self._proof_after))
            if len(mine.finished) >= self._proof_after.setdefault(done.session, first):
                self._request_proof(mine)

    def _take_error(self, key: str, error: NoResult, task: Task | None, proof: Unproved | None) -> None:
        logger.warning("a task of the cluster ended without a result: %s", error.reason)
        if proof is not None:
            self._throw_away(proof)
        if task is not None and error.raised:
            self._again(task, key, error.reason)
        elif task is not None:
            self._waiting.append(task)

    def _again(self, task: Task, worker: str, why: str) -> None:
        task.refused.add(worker)
        if len(task.refused) >= ATTEMPTS:
            raise RigError(f"{ATTEMPTS} workers could not check the same states: {why}")
        self._waiting.append(task)

    def _request_proof(self, one: Unproved) -> None:
        if one.proof is None and one.finished:
            one.covered = len(one.finished)
            one.proof = self._client.submit(
                prove_worker,
                self._data,
                self._plugin,
                workers=[one.address],
                resources={CHECKER: 1},
                pure=False,
                priority=10,
            )
            one.proof.add_done_callback(self._ended.put)

    def _confirm(self, proved: Unproved) -> None:
        done, proved.finished = proved.finished[: proved.covered], proved.finished[proved.covered :]
        proved.proof, proved.covered = None, 0
        self._proof_after[proved.session] = PROOF_EVERY
        record = self._workers.records[proved.session]
        record.proofs += 1
        record.done += sum(len(task.requests) for task, _ in done)
        self._proved += done
        if not proved.finished:
            del self._unproved[proved.session]

    def _leave_out(self, done: TaskResult, task: Task | None) -> None:
        reason = self._workers.leave_out(done)
        if (one := self._unproved.get(done.session)) is not None:
            self._throw_away(one)
        if task is not None:
            self._again(task, done.worker.name, reason)

    def _throw_away(self, one: Unproved) -> None:
        """Throw the results since the last proof away, and send their states again."""
        del self._unproved[one.session]
        if one.finished:
            logger.warning("worker %s: %d results without a proof are thrown away", one.worker.name, len(one.finished))
        self._waiting += [task for task, _ in one.finished]
        one.finished = []

    def _find_lost(self) -> None:
        """Throw the results of workers away that are gone, and send the waiting tasks to those that are there."""
        for one in [*self._unproved.values()]:
            if one.address not in self._workers.addresses:
                self._workers.records[one.session].left_out = "it is gone"
                if one.proof is not None:
                    self._client.cancel([one.proof], force=True)
                self._throw_away(one)
        if self._workers.addresses:
            self._send_again()

    def _send_again(self) -> None:
        if self._waiting:
            self._keep_data()
        tasks, self._waiting = self._waiting, []
        for task in tasks:
            self._send(task)

    def _keep_data(self) -> None:
        if self._data.status != "finished":
            # All workers that had the write log are gone.
            self._workers.wait()
            self._scatter()

    def explain(
        self,
        failures: list[FailureRecord],
        stats: ExplorationStats,
        replay: Callable[[str], list[str]],
        most: int,
        until: Deadline | None,
    ) -> None:
        """See `Checkers.explain`. One worker shrinks all failures; if it disappears, another one begins anew."""
        if not stats.groups:
            return
        step("shrinking failing states on a worker of the cluster")
        for _ in range(ATTEMPTS):
            self._keep_data()
            future = self._client.submit(
                explain,
                self._data,
                self._plugin,
                stats.groups,
                replay,
                most,
                None if until is None else until.remaining_s,
                resources={CHECKER: 1},
                pure=False,
            )
            self._workers.wait_for(future)
            done = self._workers.fetch(future)
            if isinstance(done, NoResult):
                why = done.reason
                continue
            self._workers.record_of(done)
            if not isinstance(done.result, Refusal):
                break
            why = done.result.reason
            self._leave_out(done, None)
        else:
            raise RigError(f"{ATTEMPTS} workers could not shrink the failures: {why}", remedy=CONTINUES)
        found: Explained = done.result
        failures += found.failures
        stats.absorb(found.groups, found.cold, found.hung, found.broken)
