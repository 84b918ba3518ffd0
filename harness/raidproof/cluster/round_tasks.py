"""The tasks with labs on a worker: a round of a plan, power cuts of some configurations, or a file of scenarios."""

import asyncio
from collections.abc import Callable
from typing import Any

from distributed import get_worker

from raidproof.cluster.identity import version
from raidproof.cluster.proof import Unsound
from raidproof.cluster.tasks import RaidproofPlugin, TaskResult, plugin_of
from raidproof.core.waiting import Deadline

Maker = Callable[[Any, Any, Callable[[], bool]], Any]
"""A function that carries out a request of a job as long as its last argument returns True."""
END_S = 60.0
"""Time limit in seconds for the end of all labs of a worker that ends."""
POLL_S = 0.1


class RoundsPlugin(RaidproofPlugin):
    """Ends the labs of a plan with the worker, or with the plan."""

    def __init__(self, name: str, version_of_client: str, maker: Maker) -> None:
        super().__init__(name, version_of_client)
        self.maker = maker
        self.ending = False
        self.running = 0
        """Number of requests that are being carried out."""

    async def teardown(self, worker: Any) -> None:
        """End the labs, and wait for their end."""
        self.ending = True
        deadline = Deadline.after(END_S)
        while self.running and not deadline.passed:
            await asyncio.sleep(POLL_S)
        await super().teardown(worker)

    def made(self, job: Any, request: Any, wanted: Callable[[], bool]) -> Any:
        """Carry out a request; it ends early with its labs if the worker ends, or begins a new session.

        Raises:
            Unsound: the worker's version of raidproof is not that of the client.
            RigError: the request could not be carried out.
        """
        if version() != self.version_of_client:
            raise Unsound(f"raidproof {version()} is not the client's {self.version_of_client}")
        self.running += 1
        session = self.session
        try:
            return self.maker(job, request, lambda: not self.ending and self.session == session and wanted())
        finally:
            self.running -= 1


def make(job: Any, plugin: str, request: Any) -> TaskResult:
    """Carry out a request; `TaskResult.result` is what the job makes of it.

    The request ends early if the client cancels it, or is gone.
    """
    mine, worker = plugin_of(plugin), get_worker()
    assert isinstance(mine, RoundsPlugin)  # noqa: S101  it has the name of a plan's job
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    return mine.carried_out(lambda: mine.made(job, request, wanted))
