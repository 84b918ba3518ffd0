"""Which of the server's replies acknowledged which operation. A stamp may be late and never early."""

from harness.cycle.replies import replied, summary
from harness.monitor.replies import Reply
from harness.workload.agent import GROUPS
from harness.workload.history import Ended, Operation, WorkerSpec

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


def test_the_summary_says_how_many_and_how_much_later_the_reports_came() -> None:
    operations = [operation(ended=1_000_000), operation(sequence=1, ended=5_000_000), operation(sequence=2)]
    said = summary(operations, {(0, 0): 500_000, (0, 1): 1_000_000})
    assert (said["dated"], said["of"]) == (2, 3)
    assert said["reported_later_ms"] == {"least": 0.5, "median": 2.25, "most": 4.0}
    assert summary(operations, {}) == {"dated": 0, "of": 3}
