"""Solo operations: one operation of one worker at a time, while all other workers pause."""

import time
from collections import Counter
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.guest.ledger_format import CONTINUE, ONE, PAUSE
from raidproof.machine.machine import Machine
from raidproof.workload import solo
from raidproof.workload.history import Ended, History, WorkerSpec
from raidproof.workload.ledger import AckListener, Ledger, LedgerSpec
from raidproof.workload.ledger_receiver import Receiver
from raidproof.workload.solo import LEAST, Share, SoloOperations, shares_at, shares_of
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

    def all_began_since(instant_ns: int) -> bool:
        begun_ns = receiver_of(ledger).begun_ns
        return all(begun_ns.get(one.number, 0) > instant_ns for one in ledger.workers)

    with pytest.MonkeyPatch.context() as patch, ledger.running():
        # A stall of this host must not look like an operation that does not return.
        patch.setattr(solo, "OPERATION_DEADLINE_S", 30.0)
        ledger.work(0.2)
        wait_until(lambda: all_began_since(0), Deadline.after(30), "the first operation of each worker")
        begun_ns = now_ns()
        with ledger.solo(0.5, lambda: 0, 30.0):
            ended_ns = now_ns()
            time.sleep(0.3)
            continued_ns = now_ns()
        wait_until(lambda: all_began_since(continued_ns), Deadline.after(30), "each worker to continue")
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
    assert len(alone) >= 2
    for before, after in pairwise(alone):
        assert (by_begin[before].ended_ns or after) <= after
    assert all(by_begin[one].ended is Ended.OK for one in alone)


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


class Workers:
    """A fake receiver with workers that do at once what is requested of them."""

    def __init__(
        self,
        *,
        busy: tuple[int, ...] = (),
        stuck: int | None = None,
        ends: int | None = None,
        ended: tuple[int, ...] = (),
        late: tuple[int, ...] = (),
        most: int | None = None,
    ) -> None:
        """``busy``: workers that do not pause; ``stuck``, ``ends``: one whose operation hangs, or is its last.

        ``late``: workers that have not reported yet at the first request, so that no connection is known. ``most``:
        number of operations after which no worker is connected.
        """
        self.pausing: set[int] = set()
        self.done = {*ended}
        self.pauses: Counter[int] = Counter()
        self.alone: list[int] = []
        self.last_ended: dict[int, tuple[str, int]] = {}
        self.continued: list[int] = []
        self.specs: dict[int, WorkerSpec] = {}
        """The workers whose operations end."""
        self._busy, self._stuck, self._ends, self._most = busy, stuck, ends, most
        self._late = {*late}

    def request(self, worker: int, request: bytes) -> bool:
        if worker in self._late:
            self._late.remove(worker)
            return False
        if worker in self.done or (request == ONE and len(self.alone) == self._most):
            return False
        if request == PAUSE and worker not in self._busy:
            self.pausing.add(worker)
        elif request == CONTINUE:
            self.continued.append(worker)
        elif request == ONE:
            self.alone.append(worker)
            if worker == self._ends:
                self.done.add(worker)
                self.pausing.discard(worker)
            elif worker != self._stuck:
                self.pauses[worker] += 1
                self._end_one(worker)
        return True

    def _end_one(self, worker: int) -> None:
        if spec := self.specs.get(worker):
            turn = self.alone.count(worker) - 1
            kinds = [piece.kind for piece in spec.pieces] or spec.kinds
            self.last_ended[worker] = kinds[turn % len(kinds)], turn % len(kinds)

    def wait_until(self, met: Callable[[], bool], seconds: float) -> bool:
        return met() or met()


def solo_of(workers: Workers, kinds: tuple[str, ...]) -> SoloOperations:
    mine = LedgerSpec(kinds=kinds, omit=()).workers(["client1"])
    return SoloOperations(cast("Receiver", workers), mine, lambda: 0)


def ended_by(workers: Workers) -> Counter[Share]:
    """Return how many solo operations ended of each kind and class of sizes, counted from the requests."""
    turns: Counter[int] = Counter()
    ended: Counter[Share] = Counter()
    for number in workers.alone:
        spec = workers.specs[number]
        kinds = [piece.kind for piece in spec.pieces] or spec.kinds
        place = turns[number] % len(kinds)
        ended.update(shares_at(spec, kinds[place], place))
        turns[number] += 1
    return ended


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solo, "pause", lambda _seconds: None)


@pytest.mark.usefixtures("no_pause")
def test_workers_with_more_kinds_of_operation_are_due_more_often() -> None:
    workers = Workers(most=400)
    solo_of(workers, ("fsync", "sizes", "locks", "removed", "metadata", "extents")).run(60.0)
    done = Counter(workers.alone)
    assert workers.pausing == {*range(6)}, "all pause, also those that carry out no solo operation"
    assert {*done} == {0, 1, 4, 5}, "workers that only hold locks and files have no operations"
    assert done[1] > 2 * done[0]
    specs = LedgerSpec(kinds=("fsync", "sizes", "locks", "removed", "metadata", "extents"), omit=()).workers(
        ["client1"]
    )
    shares = [done[number] / len(specs[number].kinds) for number in (0, 1)]
    assert max(shares) - min(shares) <= 1
    assert abs(done[0] + done[1] - done[4] - done[5]) <= 1


@pytest.mark.usefixtures("no_pause")
def test_nothing_is_done_alone_unless_all_workers_pause() -> None:
    for workers in (Workers(busy=(1,)), Workers(ended=(0, 1))):
        solo_of(workers, ("fsync", "o_sync")).run(60.0)
        assert workers.alone == []


@pytest.mark.usefixtures("no_pause")
def test_a_worker_that_reports_late_is_requested_to_pause_then() -> None:
    workers = Workers(late=(1,), most=8)
    one = solo_of(workers, ("fsync", "o_sync"))
    one.run(60.0)
    assert workers.pausing == {0, 1}
    assert {*workers.alone} == {0, 1}
    one.end()
    assert workers.continued == [0, 1]


@pytest.mark.usefixtures("no_pause")
@given(
    st.lists(
        st.sampled_from(("fsync", "o_sync", "metadata", "names", "extents", "sizes", "locks")), min_size=1, max_size=6
    )
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_time_is_extended_until_each_client_has_enough_of_each_kind(kinds: list[str]) -> None:
    mine = LedgerSpec(kinds=tuple(kinds), omit=()).workers(["client1", "client2"])
    workers = Workers()
    workers.specs = {one.number: one for one in mine}
    operations = SoloOperations(cast("Receiver", workers), mine, lambda: 0)
    operations.run(0.0, 60.0)
    wanted = {share for one in mine for share in shares_of(one)}
    ended = ended_by(workers)
    assert all(ended[one] >= LEAST for one in wanted)
    assert operations.lacking == []
    # No operation of the extended time is for nothing: the last one was the third of its kind or class.
    if workers.alone:
        last = workers.alone[-1]
        assert LEAST in {ended[one] for one in shares_at(workers.specs[last], *workers.last_ended[last])}


@pytest.mark.usefixtures("no_pause")
def test_the_extension_is_bounded_and_what_is_lacking_is_named() -> None:
    workers = Workers(stuck=1)
    mine = LedgerSpec(kinds=("fsync", "o_sync"), omit=()).workers(["client1"])
    workers.specs = {one.number: one for one in mine}
    operations = SoloOperations(cast("Receiver", workers), mine, lambda: 0)
    operations.run(0.0, 0.0)
    assert workers.alone == []
    assert operations.lacking == ["fsync on client1", "o_sync on client1"]
    operations.run(0.0, 60.0)
    assert workers.alone[-1] == 1, "the operation that does not return ends the extension"
    assert "o_sync on client1" in operations.lacking


def test_classes_of_sizes_are_shares_of_the_worker_that_has_several() -> None:
    (sizes,) = LedgerSpec(kinds=("sizes",), omit=()).workers(["client1"])
    named = [str(one) for one in shares_of(sizes)]
    assert {"sizes from 1 bytes on client1", "sizes from 65,536 bytes on client1", "msync on client1"} <= {*named}
    assert len(named) == len({*named})
    (fsync,) = LedgerSpec(kinds=("fsync",), omit=()).workers(["client1"])
    assert shares_of(fsync) == shares_at(fsync, "fsync", 7) == [Share("client1", "fsync")]


def test_a_worker_whose_first_report_is_late_pauses_too(tmp_path: Path) -> None:
    # A worker whose first report is late: until then, the harness does not know which connection is the worker's.
    defect = (
        "import socket, time\n_send, _from = socket.socket.sendall, time.monotonic() + 0.7\n"
        "socket.socket.sendall = lambda to, data: "
        "(time.sleep(max(0.0, _from - time.monotonic())), _send(to, data))[1]\n"
    )
    ledger = ledger_in(tmp_path, defect=defect)
    with ledger.running(), ledger.solo(0.3, lambda: 0):
        assert receiver_of(ledger).pausing == {one.number for one in ledger.workers}
        stop(ledger)


@pytest.mark.usefixtures("no_pause")
def test_workers_that_have_ended_do_not_count_as_working() -> None:
    workers = Workers(ends=0, most=8)
    solo_of(workers, ("fsync", "o_sync")).run(60.0)
    assert workers.alone.count(0) == 1
    assert workers.alone.count(1) > 1
    # A worker that ended before the others paused.
    late = Workers(ended=(0,), most=8)
    solo_of(late, ("fsync", "o_sync")).run(60.0)
    assert {*late.alone} == {1}


@pytest.mark.usefixtures("no_pause")
def test_after_an_operation_that_does_not_return_nothing_more_is_done_alone() -> None:
    workers = Workers(stuck=1)
    operations = solo_of(workers, ("fsync", "o_sync"))
    operations.run(5.0)
    assert workers.alone == [0, 1]
    operations.end()
    assert workers.continued == [0, 1]


def test_the_next_operation_waits_until_the_disks_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, counted = Workers(stuck=1), [5, 7, 8, 8]
    pauses: list[float] = []
    monkeypatch.setattr(solo, "pause", pauses.append)
    left = iter([*counted, *counted])
    mine = LedgerSpec(kinds=("fsync", "o_sync"), omit=()).workers(["client1"])
    SoloOperations(cast("Receiver", workers), mine, lambda: next(left)).run(60.0)
    assert workers.alone == [0, 1]
    assert pauses == [solo.QUIET_S] * 6
    assert list(left) == []


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
    with ledger.running(), ledger.solo(0.0, lambda: next(requests), 30.0) as lacking:
        stop(ledger)
    assert not lacking


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


@pytest.mark.usefixtures("no_pause")
def test_two_operations_in_a_row_are_of_two_workers_if_there_are_two() -> None:
    mine = LedgerSpec(kinds=("fsync", "metadata", "metadata", "names"), omit=()).workers(["client1"])
    workers = Workers()
    workers.specs = {one.number: one for one in mine}
    SoloOperations(cast("Receiver", workers), mine, lambda: 0).run(0.0, 60.0)
    same = sum(before == after for before, after in pairwise(workers.alone))
    # At the end only one worker may have a kind that is lacking.
    assert same <= len(workers.alone) // 4
    assert same < sum(workers.alone.count(one.number) for one in mine if one.kind == "metadata") // 2
