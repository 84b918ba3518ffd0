"""Solo operations: one operation of one worker at a time, while all other workers pause."""

import time
from itertools import count, pairwise
from pathlib import Path
from typing import cast

import pytest

from raidproof.core.waiting import Deadline, now_ns
from raidproof.guest.ledger_format import CONTINUE, ONE, PAUSE
from raidproof.machine.machine import Machine
from raidproof.workload import solo
from raidproof.workload.history import Ended, History
from raidproof.workload.ledger import AckListener, Ledger, LedgerSpec
from raidproof.workload.ledger_receiver import Receiver
from tests.workload.local_clients import Client, Host

SPEC = LedgerSpec(kinds=("fsync", "fsync", "o_sync", "msync", "metadata", "names"), omit=("mknod", "chown"), blocks=4)


def ledger_in(folder: Path, spec: LedgerSpec = SPEC, defect: str = "") -> Ledger:
    root = folder / "root"
    root.mkdir()
    clients = [cast("Machine", Client(name, folder / name, defect)) for name in ("client1", "client2")]
    return Ledger(spec, clients, cast("AckListener", Host()), str(root), folder / "history")


def stop(ledger: Ledger) -> None:
    ledger.stop(Deadline.after(30))


def receiver_of(ledger: Ledger) -> Receiver:
    assert ledger._receiver is not None
    return ledger._receiver


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ledger, History, tuple[int, int, int]]:
    """Return a ledger with its history, and the begin of its solo operations, their end, and the end of the pause."""
    ledger = ledger_in(tmp_path_factory.mktemp("solo"))
    with ledger.running():
        ledger.work(0.2)
        begun_ns = now_ns()
        with ledger.solo(1.0, lambda: 0):
            ended_ns = now_ns()
            time.sleep(0.3)
            continued_ns = now_ns()
        ledger.work(0.2)
        stop(ledger)
    return ledger, ledger.history(), (begun_ns, ended_ns, continued_ns)


def paused_from(history: History, workers: int) -> int:
    """Return the instant at which all workers paused for the first time."""
    first: dict[int, int] = {}
    for one in history.steps:
        if one.kind == "pause":
            first.setdefault(one.worker, one.issued_ns)
    assert len(first) == workers
    return max(first.values())


def test_solo_operations_do_not_overlap(ran: tuple[Ledger, History, tuple[int, int, int]]) -> None:
    ledger, history, (_, ended_ns, _) = ran
    paused_ns = paused_from(history, len(ledger.workers))
    alone = sorted(one.issued_ns for one in history.operations if paused_ns <= one.issued_ns <= ended_ns)
    by_begin = {one.issued_ns: one for one in history.operations}
    assert len(alone) >= len(ledger.workers)
    for before, after in pairwise(alone):
        assert (by_begin[before].ended_ns or after) <= after
    assert all(by_begin[one].ended is Ended.OK for one in alone)


def test_every_worker_carries_out_solo_operations(ran: tuple[Ledger, History, tuple[int, int, int]]) -> None:
    ledger, history, (_, ended_ns, _) = ran
    paused_ns = paused_from(history, len(ledger.workers))
    done = [one.worker for one in history.operations if paused_ns <= one.issued_ns <= ended_ns]
    assert {*done} == {one.number for one in ledger.workers}
    names = {one.number for one in ledger.workers if one.rounds}
    of_names = sum(worker in names for worker in done)
    assert abs(of_names - (len(done) - of_names)) <= 1, "every second operation changes names"


def test_no_worker_does_anything_until_all_continue(ran: tuple[Ledger, History, tuple[int, int, int]]) -> None:
    ledger, history, (begun_ns, ended_ns, continued_ns) = ran
    assert not [one for one in history.operations if ended_ns < one.issued_ns < continued_ns]
    before = {one.worker for one in history.operations if one.issued_ns < begun_ns}
    after = {one.worker for one in history.operations if one.issued_ns >= continued_ns}
    assert before == after == {one.number for one in ledger.workers}


def test_a_pausing_worker_has_reported_the_end_of_its_operation(
    ran: tuple[Ledger, History, tuple[int, int, int]],
) -> None:
    _, history, (_, ended_ns, _) = ran
    before = [one for one in history.operations if one.issued_ns <= ended_ns]
    assert all(one.ended_ns is not None and one.ended_ns <= ended_ns for one in before)


def test_pausing_workers_can_be_stopped(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    with ledger.running():
        ledger.work(0.1)
        with ledger.solo(0.1, lambda: 0):
            stop(ledger)
    assert len(ledger.history().ends) == len(ledger.workers)


def test_an_operation_that_does_not_return_ends_the_solo_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solo, "OPERATION_DEADLINE_S", 0.2)
    # The second fsync that client1 calls takes long.
    defect = (
        "import os, time, itertools\n_fsync, _calls = os.fsync, itertools.count()\n"
        "os.fsync = lambda fd: (time.sleep(2.0) if next(_calls) == 1 else None, _fsync(fd))[1]\n"
    )
    ledger = ledger_in(tmp_path, LedgerSpec(kinds=("fsync",), omit=(), blocks=4), defect)
    with ledger.running():
        receiver = receiver_of(ledger)
        assert receiver.wait_until(lambda: len(receiver.begun_ns) == 2, 10)
        began = now_ns()
        monkeypatch.setattr(solo, "PAUSE_DEADLINE_S", 0.2)
        with ledger.solo(30.0, lambda: 0):
            seconds = (now_ns() - began) / 1e9
        stop(ledger)
    assert seconds < 15
    assert all(one.ended is Ended.OK for one in ledger.history().operations)


def test_disks_that_stay_busy_do_not_end_the_solo_operations(tmp_path: Path) -> None:
    ledger, requests = ledger_in(tmp_path, LedgerSpec(kinds=("fsync",), omit=(), blocks=4)), count()
    with ledger.running(), ledger.solo(1.0, lambda: next(requests)):
        stop(ledger)
    assert len(ledger.history().operations) >= 4


def test_a_request_reaches_a_worker_only_while_it_is_connected(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, LedgerSpec(kinds=("fsync",), omit=(), blocks=4))
    with ledger.running():
        receiver = receiver_of(ledger)
        assert receiver.wait_until(lambda: len(receiver.begun_ns) == 2, 10)
        assert not receiver.request(77, PAUSE)
        assert receiver.request(0, PAUSE)
        assert receiver.wait_until(lambda: receiver.pausing == {0}, 10)
        assert receiver.request(0, ONE)
        assert receiver.wait_until(lambda: receiver.pauses[0] == 2, 10)
        assert not receiver.wait_until(lambda: receiver.pauses[0] == 3, 0.1)
        assert receiver.request(0, CONTINUE)
        assert receiver.wait_until(lambda: not receiver.pausing, 10)
        stop(ledger)
        assert receiver.wait_until(lambda: receiver.open_connections == 0, 10)
        assert not receiver.request(0, PAUSE)
