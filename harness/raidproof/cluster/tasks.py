"""What runs on a worker: the tasks of an exploration, and the plugin of Dask that holds the worker's machines."""

import asyncio
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from distributed import get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from raidproof.cluster.campaign import Campaign
from raidproof.cluster.identity import this_machine, version
from raidproof.cluster.proof import Unsound
from raidproof.cluster.seats import Seats, packed
from raidproof.cluster.slots import slots_of
from raidproof.core.errors import RaidproofError
from raidproof.core.log import be_silent, logger
from raidproof.core.waiting import now_ns
from raidproof.crash.checkers import Request
from raidproof.crash.stats import Group
from raidproof.record.worker import WorkerRecord
from raidproof.verdict.damage import Damage

ASK_EVERY_S = 1.0
ANSWER_S = 5.0
"""Intervals in seconds: a worker asks whether its scheduler is there, and waits for the answer.

Without a scheduler, machines continue for at most the sum; their end takes seconds, and all together at most 10 s."""


async def answers(scheduler: Any) -> bool:
    """Return whether the scheduler answers within `ANSWER_S`.

    The time limit is in two parts: if this process was stopped during the first one, the answer that has arrived
    meanwhile is read in the second one.
    """
    question = asyncio.ensure_future(scheduler.identity(n_workers=0))
    try:
        for _ in range(2):
            await asyncio.wait({question}, timeout=ANSWER_S / 2)
        if not question.done():
            return False
    finally:
        question.cancel()
    return not isinstance(question.exception(), OSError)


@dataclass(frozen=True)
class Refusal:
    """A worker cannot do a task; the client leaves the worker out."""

    reason: str


@dataclass(frozen=True)
class Interrupted:
    """A task ended early, because the machines of its worker ended; any worker can carry it out."""


@dataclass(frozen=True)
class TaskResult:
    """The result of a task."""

    worker: WorkerRecord
    address: str
    """Address of the worker in Dask."""
    session: str
    """Identifier of the worker's process; another one after each time that the worker lost the scheduler."""
    result: Any
    """What the task returns, or a `Refusal`, or `Interrupted`."""
    seconds: float = 0.0


class RaidproofPlugin(WorkerPlugin):
    """Holds the machines of one campaign on each worker, and ends them with the worker or with the campaign."""

    def __init__(self, name: str, version_of_client: str) -> None:
        self.name = name
        self.version_of_client = version_of_client
        self.seats: Seats | None = None
        self.session = ""
        self.record: WorkerRecord | None = None
        self.address = ""
        self._watch: asyncio.Task[None] | None = None

    async def _end_without_scheduler(self, worker: Any) -> None:
        """End the machines when the scheduler has not answered for `ANSWER_S`; Dask gives it up later."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            if not await answers(worker.scheduler):
                logger.warning("the scheduler does not answer: the machines of this worker end")
                await asyncio.to_thread(self.end_machines)

    def end_machines(self) -> None:
        """End the machines of all tasks, and begin a new session: a later task boots new ones."""
        seats, self.seats, self.session = self.seats, None, uuid4().hex
        if seats is not None:
            seats.end()

    async def setup(self, worker: Any) -> None:
        """Note the worker; declare its slots, unless its command line has declared them."""
        self.session, self.address = uuid4().hex, worker.address
        if worker.nanny is not None:
            # Another process started this one, and shows its own progress. Ctrl-C also reaches workers on the client's
            # terminal; the client ends them after the machines. A handler, as an ignored signal would be inherited.
            be_silent()
            signal.signal(signal.SIGINT, lambda *_: None)
        self.record = this_machine(str(worker.name))
        if not worker.state.total_resources:
            await worker.set_resources(**slots_of())
        self._watch = asyncio.create_task(self._end_without_scheduler(worker))

    async def teardown(self, worker: Any) -> None:  # noqa: ARG002
        """End the machines of the campaign."""
        if self._watch is not None:
            self._watch.cancel()
        if self.seats is not None:
            await asyncio.to_thread(self.seats.end)

    def seats_of(self, campaign: Campaign) -> Seats:
        """Return the checkers of the campaign.

        Raises:
            Unsound: the worker's version of raidproof is not that of the client.
        """
        if version() != self.version_of_client:
            raise Unsound(f"raidproof {version()} is not the client's {self.version_of_client}")
        if self.seats is None:
            self.seats = Seats(campaign, self.record.name if self.record else "")
        return self.seats

    def carried_out(self, task: Callable[[], Any]) -> TaskResult:
        """Carry out a task; an error becomes a `Refusal`, so that the client carries it out elsewhere.

        If the machines have ended meanwhile (`end_machines`), it becomes `Interrupted`.
        """
        begun, session = now_ns(), self.session
        try:
            result = task()
        except (Unsound, RaidproofError, OSError, MemoryError, RuntimeError) as error:
            # RuntimeError: the machine was ended while it worked.
            ended = session != self.session
            result = Interrupted() if ended else Refusal(str(error) or type(error).__name__)
        assert self.record is not None  # noqa: S101  `setup` has run
        return TaskResult(self.record, self.address, session, result, (now_ns() - begun) / 1e9)


def plugin_of(name: str) -> RaidproofPlugin:
    """Return the plugin of a campaign in the worker that carries out the current task."""
    plugin = get_worker().plugins[name]
    assert isinstance(plugin, RaidproofPlugin)  # noqa: S101  it has the name of a campaign
    return plugin


def dumped(requests: Sequence[Request]) -> bytes:
    """Return requests as bytes: Dask looks into lists for futures, which costs more than the rest of a task."""
    return pickle.dumps(requests)


def check(campaign: Campaign, plugin: str, requests: bytes) -> TaskResult:
    """Check states of a campaign, see `dumped`; the result's `TaskResult.result` is that of `packed`."""
    mine = plugin_of(plugin)
    wanted: list[Request] = pickle.loads(requests)  # noqa: S301  the client is trusted, see docs/cluster.md
    return mine.carried_out(lambda: packed(mine.seats_of(campaign).check(wanted)))


def prove_worker(campaign: Campaign, plugin: str) -> TaskResult:
    """Prove all checkers of a worker; `TaskResult.result` is None if they are sound."""
    mine = plugin_of(plugin)
    return mine.carried_out(lambda: mine.seats_of(campaign).prove_all())


def explain(
    campaign: Campaign,
    plugin: str,
    groups: Mapping[Damage, Group],
    replay: Callable[[str], list[str]],
    most: int,
    until_s: float | None,
) -> TaskResult:
    """Repeat and shrink ``most`` failures on a checker; `TaskResult.result` is an `Explained`."""
    mine = plugin_of(plugin)
    return mine.carried_out(lambda: mine.seats_of(campaign).explain(groups, replay, most, until_s))
