"""The checkers of a worker: who uses them, how they prove themselves, and when their machines end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.cluster import seats as module
from raidproof.cluster.campaign import Campaign
from raidproof.cluster.proof import Unsound
from raidproof.cluster.seats import Seats
from raidproof.core.waiting import Deadline, wait_until
from raidproof.crash.checkers import Request
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.sampler import Choices
from tests.crash.made_up import FakeChecker, MadeUp, told, written


class Worker:
    """A worker without Dask, whose machines are counted."""

    def __init__(self, folder: Path) -> None:
        self.made_up = MadeUp(folder, written(lies_from=4), told())
        self.running: list[FakeChecker] = []
        self.booted = 0
        source = SimpleNamespace(
            recording=self.made_up.recording, oracle=self.made_up.oracle, boots=lambda _: self._boot
        )
        self.seats = Seats(cast("Campaign", SimpleNamespace(prepared=lambda: source)), "worker")

    @contextmanager
    def _boot(self, _: int) -> Iterator[FakeChecker]:
        checker = FakeChecker()
        self.running.append(checker)
        self.booted += 1
        try:
            yield checker
        finally:
            self.running.remove(checker)

    def requests(self, count: int) -> list[Request]:
        choices, window = Choices(self.made_up.recording, 1), DiskStates(self.made_up.recording)
        made = []
        for choice in sorted(choices.order)[:count]:
            window.move(choice.cut)
            state = choices.state(choice, window.open)
            made.append(Request(choice, state, window.digest(state)))
        return made


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path / "run")
    yield made
    made.seats.end()
    assert not made.running


def test_answers_have_verdicts_and_the_name_of_the_worker(worker: Worker) -> None:
    requests = worker.requests(5)
    answers = worker.seats.check(requests)
    assert [answer.request for answer in answers] == requests
    assert {answer.worker for answer in answers} == {"worker"}
    assert all(answer.judgement is not None for answer in answers)


def test_a_seat_serves_one_task_after_the_other(worker: Worker) -> None:
    for _ in range(3):
        worker.seats.check(worker.requests(2))
    assert worker.booted == 1


def test_two_tasks_at_once_have_two_seats_and_both_are_proved(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs: list[Any] = []
    monkeypatch.setattr(module, "prove", lambda machine, *_: proofs.append(machine))
    with worker.seats.borrowed(), worker.seats.borrowed():
        pass
    assert len({*proofs}) == len(proofs) == 2
    worker.seats.prove_all()
    assert len({*proofs}) == 2
    assert len(proofs) == 4
    worker.seats.prove_all()
    assert len(proofs) == 4, "no state was checked since the last proof"


def test_seats_prove_themselves_at_the_same_time(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "prove", lambda *_: None)
    with worker.seats.borrowed(), worker.seats.borrowed():
        pass
    both = threading.Barrier(2, timeout=10)
    monkeypatch.setattr(module, "prove", lambda *_: both.wait())
    worker.seats.prove_all()


def test_a_proof_waits_for_a_seat_in_use(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs: list[Any] = []
    monkeypatch.setattr(module, "prove", lambda machine, *_: proofs.append(machine))
    with worker.seats.borrowed():
        proving = threading.Thread(target=worker.seats.prove_all)
        proving.start()
        proving.join(0.05)
        assert proving.is_alive()
        assert len(proofs) == 1
    proving.join(10)
    assert len(proofs) == 2


def test_a_machine_that_ended_before_its_proof_is_unsound(worker: Worker) -> None:
    worker.seats.check(worker.requests(2))
    worker.seats.end_machines()
    assert not worker.running
    with pytest.raises(Unsound, match="ended before it could prove itself"):
        worker.seats.prove_all()


def test_a_machine_that_ended_after_its_proof_leaves_the_worker_sound(worker: Worker) -> None:
    worker.seats.check(worker.requests(2))
    worker.seats.prove_all()
    worker.seats.end_machines()
    worker.seats.prove_all()
    assert len(worker.seats.check(worker.requests(2))) == 2


def test_machines_without_work_end(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    worker.seats.check(worker.requests(2))
    wait_until(lambda: not worker.running, Deadline.after(10), "the end of the machines")


def test_another_content_is_unsound(worker: Worker) -> None:
    (request,) = worker.requests(1)
    with pytest.raises(Unsound, match="differs from the client's"):
        worker.seats.check([request._replace(digest="another")])


def test_a_worker_that_ends_takes_no_task(worker: Worker) -> None:
    worker.seats.end()
    with pytest.raises(Unsound, match="is ending"):
        worker.seats.check(worker.requests(1))
