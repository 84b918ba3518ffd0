"""Requests with labs on a worker: they end when the scheduler does not answer, and later ones are carried out."""

import asyncio
import time
from collections.abc import Callable, Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.cluster import tasks
from raidproof.cluster.identity import version
from raidproof.cluster.round_tasks import RoundsPlugin, make
from raidproof.cluster.tasks import Interrupted
from raidproof.core.errors import RigError
from raidproof.core.waiting import Deadline, wait_until
from tests.cluster.made_up_plan import labs

PLUGIN = "raidproof-plan-test"
LONG, SHORT = "long", "short"
WITHIN_S = 20.0


class Maker:
    """What the worker does: a long request lasts as long as it is wanted."""

    started = Event()

    def __call__(self, _job: object, request: str, wanted: Callable[[], bool]) -> str:
        """Return what happened to the request."""
        if request == LONG:
            self.started.set()
            while wanted():
                time.sleep(0.01)
        if not wanted():
            raise RigError("the process ended")
        return "carried out"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(tasks, "ASK_EVERY_S", 0.05)
    Maker.started.clear()
    with labs(1) as made:
        made.register_plugin(RoundsPlugin(PLUGIN, version(), Maker()), name=PLUGIN)
        yield made


def requested(client: Any, request: str) -> Any:
    return client.submit(make, None, PLUGIN, request, resources={"lab": 1}, pure=False)


async def silent(**_: object) -> None:
    await asyncio.sleep(600)


async def late(**_: object) -> None:
    await asyncio.sleep(0.05)


async def gone(**_: object) -> None:
    raise OSError


async def stopped(answer: Callable[..., Any], for_s: float) -> bool:
    """Return whether a scheduler answers while this process is stopped for some time."""
    asyncio.get_running_loop().call_later(0.01, time.sleep, for_s)
    return await tasks.answers(SimpleNamespace(identity=answer))


def test_a_worker_that_was_stopped_itself_does_not_miss_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "ANSWER_S", 1.0)
    assert asyncio.run(stopped(late, 0.6))
    assert not asyncio.run(stopped(silent, 0.0))
    assert not asyncio.run(stopped(gone, 0.0))


def test_without_an_answer_of_the_scheduler_a_request_ends_and_a_later_one_is_carried_out(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = requested(client, LONG)
    assert Maker.started.wait(WITHIN_S)
    with monkeypatch.context() as unanswered:
        unanswered.setattr(tasks, "ANSWER_S", 0.2)
        unanswered.setitem(client.cluster.scheduler.handlers, "identity", silent)
        before = running.result(timeout=WITHIN_S)
    assert before.result == Interrupted()
    after = requested(client, SHORT).result(timeout=WITHIN_S)
    assert after.result == "carried out"
    assert after.session != before.session


def test_as_long_as_the_scheduler_answers_a_request_continues(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running = requested(client, LONG)
    assert Maker.started.wait(WITHIN_S)
    answers: list[object] = []
    identity = client.cluster.scheduler.handlers["identity"]

    def answered(**options: Any) -> Any:
        answers.append(options)
        return identity(**options)

    monkeypatch.setitem(client.cluster.scheduler.handlers, "identity", answered)
    wait_until(lambda: len(answers) > 3, Deadline.after(WITHIN_S), "the questions of the worker")
    assert not running.done()
    running.cancel(force=True)
