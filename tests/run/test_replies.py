"""Matching the server's replies with operations. A time stamp may be too late and is never too early."""

from ipaddress import IPv4Interface
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import create_autospec

import pytest

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.waiting import now_ns, realtime_ahead_ns
from raidproof.guest.ledger_format import ACKNOWLEDGE, FRAME, GROUPS, ISSUE
from raidproof.lab.lab import Lab
from raidproof.monitor.capture import tapping
from raidproof.monitor.reply_times import CLOCK_SET_NS, Reply
from raidproof.record.observation import RepliesSeen, ReportDelay
from raidproof.run import replies as module
from raidproof.run.replies import ReplyWatch, replied, summary
from raidproof.workload.history import Ended, Operation, Recorder, WorkerSpec, read_replies

ADDRESSES = {"client1": "10.0.0.1", "client2": "10.0.0.2"}
A = WorkerSpec(number=0, client="client1", kind="fsync", path="a", file=0)
B = WorkerSpec(number=1, client="client1", kind="fsync", path="b", file=1)
ELSEWHERE = WorkerSpec(number=2, client="client2", kind="fsync", path="a", file=0)


def operation(worker: int = 0, sequence: int = 0, issued: int = 100, ended: int = 900) -> Operation:
    return Operation(worker, sequence, "fsync", 0, 1, issued, ended, Ended.OK, 0)


def reply(at: int, worker: int | None = 0, called: int | None = None, client: str = "client1") -> Reply:
    group = None if worker is None else GROUPS + worker
    return Reply(ADDRESSES[client], at, at - 10 if called is None else called, group)


def dated(*replies: Reply, workers: tuple[WorkerSpec, ...] = (A, B, ELSEWHERE)) -> int | None:
    found = replied([operation()], workers, ADDRESSES, sorted(replies, key=lambda one: one.replied_ns))
    return found.get((0, 0))


def test_it_is_the_last_reply_before_the_report() -> None:
    assert dated(reply(300), reply(600), reply(950)) == 600


def test_a_reply_to_another_worker_is_not_it() -> None:
    assert dated(reply(300), reply(600, worker=1), reply(700, worker=2, client="client2")) == 300


def test_a_reply_to_another_client_is_not_it() -> None:
    assert dated(reply(300), reply(600, client="client2"), reply(700, worker=None, client="client2")) == 300


def test_a_reply_that_may_be_the_workers_counts_if_it_is_the_last() -> None:
    assert dated(reply(300), reply(600, worker=None)) == 600
    assert dated(reply(300), Reply(ADDRESSES["client1"], 700, 650, 0)) == 700
    assert dated(reply(300), reply(200, worker=None)) == 300


def test_a_reply_to_what_was_called_before_is_not_it() -> None:
    # As CLOSE, which a client sends by the way when close(2) has returned.
    assert dated(reply(300, called=99)) is None
    assert dated(reply(200), reply(300, called=99)) == 200


def test_nothing_that_is_certainly_the_workers_dates_nothing() -> None:
    assert dated(reply(600, worker=None)) is None
    assert dated(reply(99), reply(900)) is None


def test_workers_of_a_client_that_share_a_file_are_not_dated() -> None:
    shared = B.model_copy(update={"path": A.path})
    assert dated(reply(300), workers=(A, shared)) is None
    assert dated(reply(300), workers=(A, ELSEWHERE)) == 300


def test_only_what_ended_well_is_dated() -> None:
    failed = operation()._replace(ended=Ended.FAILED)
    assert replied([failed], [A], ADDRESSES, [reply(300)]) == {}


def test_each_operation_has_its_own() -> None:
    operations = [operation(), operation(sequence=1, issued=900, ended=1900)]
    replies = [reply(500), reply(899), reply(1000), reply(1500)]
    assert replied(operations, [A], ADDRESSES, replies) == {(0, 0): 899, (0, 1): 1500}


def test_a_reply_after_the_next_operation_began_is_not_it() -> None:
    operations = [operation(ended=1900), operation(sequence=1, issued=900, ended=1900)]
    assert replied(operations, [A], ADDRESSES, [reply(500), reply(1500)]) == {(0, 0): 500, (0, 1): 1500}


def test_the_clients_own_stamp_dates_what_was_received_together_and_ends_nothing() -> None:
    late = operation(issued=1900, ended=1900)._replace(begun_ns=100)
    following = operation(sequence=1, issued=1900, ended=1900)._replace(begun_ns=900)
    # The client's clock drifts: only the harness's stamps say when the first had ended.
    assert replied([late, following], [A], ADDRESSES, [reply(500), reply(950)]) == {(0, 0): 950, (0, 1): 950}


def test_the_summary_has_the_number_and_delay_of_the_reports() -> None:
    operations = [operation(ended=1_000_000), operation(sequence=1, ended=5_000_000), operation(sequence=2)]
    said = summary(operations, {(0, 0): 500_000, (0, 1): 1_000_000})
    assert (said.dated, said.of) == (2, 3)
    assert said.reported_later_ms == ReportDelay(least=0.5, median=2.25, most=4.0)
    assert summary(operations, {}) == RepliesSeen(dated=0, of=3)


class FakeTap:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.ahead_ns = realtime_ahead_ns()
        self.error: RigError | None = None
        self.discarded = False

    def wait_begun(self) -> None: ...

    def end(self) -> None:
        if self.error is not None:
            raise self.error

    def discard(self) -> None:
        self.discarded = True


@pytest.fixture
def tap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTap:
    one = FakeTap(tmp_path / "replies.pcapng")
    monkeypatch.setattr(module, "tapping", lambda *_: one)
    return one


@pytest.fixture
def watch(tmp_path: Path) -> ReplyWatch:
    address = SimpleNamespace(address=IPv4Interface("10.0.0.1/24"))
    lab = SimpleNamespace(clients=[SimpleNamespace(name="client1", spec=address)])
    return ReplyWatch(cast("Lab", lab), [A], tmp_path)


def record_history(path: Path, issued: int, ended: int) -> None:
    recorder = Recorder(path)
    recorder.add(0, issued, FRAME.pack(ISSUE, 0, 0, 0, 0, 1, 0, issued))
    recorder.add(0, ended, FRAME.pack(ACKNOWLEDGE, 0, 0, 0, 0, 1, 0, ended))
    recorder.close()


def test_what_clients_did_is_dated_when_they_have_ended(
    watch: ReplyWatch, tap: FakeTap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = now_ns()
    at = [(begun + later + tap.ahead_ns) for later in (1_000_000, 2_000_000)]
    stamps = [f"{one // 10**9}.{one % 10**9:09}" for one in at]
    lines = (
        f"{stamps[0]}\t10.0.0.1\t10.0.0.9\t0\t0x1\t0\t{GROUPS},0\t\t2\t\t65536\n"
        f"{stamps[1]}\t10.0.0.9\t10.0.0.1\t0\t0x1\t1\t\t\t2\t\t\n"
    )
    monkeypatch.setattr(module, "printed", lambda _: lines)
    with watch.watching(tmp_path / "history"):
        record_history(tmp_path / "history", begun, begun + 9_000_000)
    watch.finish()
    assert watch.seen.dated == watch.seen.of == 1
    assert watch.seen.writes == {"FILE_SYNC": 1}
    assert watch.found is not None
    (key, dated), *others = read_replies(watch.found).items()
    assert (key, others, tap.discarded) == ((0, 0), [], True)
    assert abs(dated - begun - 2_000_000) < CLOCK_SET_NS


def test_a_capture_that_lost_packets_dates_nothing_and_is_kept(
    watch: ReplyWatch, tap: FakeTap, tmp_path: Path
) -> None:
    tap.error = RigError("the capture lost 3 packets")
    with watch.watching(tmp_path / "history"):
        record_history(tmp_path / "history", 1, 2)
    watch.finish()
    assert (watch.found, watch.seen, tap.discarded) == (None, RepliesSeen(why_not="the capture lost 3 packets"), False)


def test_without_a_capture_clients_work_all_the_same(
    watch: ReplyWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = create_autospec(tapping, side_effect=RequirementMissing("no dumpcap"))
    monkeypatch.setattr(module, "tapping", missing)
    with watch.watching(tmp_path / "history"):
        pass
    watch.finish()
    assert (watch.found, watch.seen) == (None, RepliesSeen(why_not="no dumpcap"))


def test_a_capture_that_does_not_begin_is_ended_and_clients_work(
    watch: ReplyWatch, tap: FakeTap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTap, "wait_begun", create_autospec(FakeTap.wait_begun, side_effect=RigError("no ring")))
    with watch.watching(tmp_path / "history"):
        pass
    watch.finish()
    assert (watch.found, watch.seen, tap.discarded) == (None, RepliesSeen(why_not="no ring"), True)


def test_an_error_during_the_capture_is_reported_and_ends_it(watch: ReplyWatch, tap: FakeTap, tmp_path: Path) -> None:
    with pytest.raises(RigError, match="a client hung"), watch.watching(tmp_path / "history"):
        raise RigError("a client hung")
    watch.finish()
    assert (watch.found, tap.discarded) == (None, True)
