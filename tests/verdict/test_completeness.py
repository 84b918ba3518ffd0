"""Whether a crash test is complete: the ends of the workers, their operations, and the observations."""

from dataclasses import replace
from errno import EIO
from signal import SIGBUS, SIGKILL
from typing import Any

import pytest

from raidproof.record.outcome import Outcome
from raidproof.verdict.balance import Balance
from raidproof.verdict.checks.ends import judge_ends
from raidproof.verdict.checks.errors import judge_errors
from raidproof.verdict.checks.work import judge_work
from raidproof.verdict.conditions import Conditions
from raidproof.workload.history import Ended, History, Operation, WorkerEnd, WorkerSpec
from raidproof.workload.ledger import LedgerSpec

WORKERS = [
    WorkerSpec(
        number=number, client=f"client{number + 1}", kind="msync", path=f"client{number + 1}-msync", file=number
    )
    for number in range(2)
]
CUT = 100
SYNC = Conditions(export_sync=True, fault_begun_ns=CUT)
WELL = WorkerEnd(200, 0)


def ended(*, lost_power: tuple[str, ...] = (), conditions: Conditions = SYNC, **ends: WorkerEnd) -> list[Outcome]:
    history = History([], {number: ends[f"of_{number}"] for number in range(2) if f"of_{number}" in ends})
    return [one.outcome for one in judge_ends(WORKERS, history, conditions, lost_power)]


def test_a_worker_whose_end_is_missing_is_an_error_of_the_rig_unless_its_machine_lost_power() -> None:
    assert ended(of_0=WELL, of_1=WELL) == []
    assert ended(of_0=WELL) == [Outcome.ERROR]
    assert ended() == [Outcome.ERROR, Outcome.ERROR]
    assert ended(of_0=WELL, lost_power=("client2",)) == []
    assert ended(of_0=WELL, lost_power=("client1",)) == [Outcome.ERROR]


def test_the_workers_of_a_client_without_an_end_are_said_together() -> None:
    workers = LedgerSpec(kinds=("fsync",) * 4).workers(["client1"])
    every, one = (judge_ends(workers, History([], {1: WELL} if few else {}), SYNC, ()) for few in (False, True))
    assert [found.reason.rpartition(": ")[2] for found in (*every, *one)] == [
        "client1-0-fsync, client1-1-fsync, client1-2-fsync and others",
        "client1-0-fsync, client1-2-fsync, client1-3-fsync",
    ]


@pytest.mark.parametrize(
    ("signal", "at_ns", "changes", "outcome"),
    [
        (SIGBUS, 200, {}, Outcome.FAIL),
        (SIGBUS, 50, {}, Outcome.FAIL),
        (SIGBUS, 200, {"allowed_by_fault": frozenset({EIO})}, Outcome.PASS),
        (SIGBUS, 50, {"allowed_by_fault": frozenset({EIO})}, Outcome.FAIL),
        (SIGBUS, 50, {"allowed_errors": frozenset({EIO})}, Outcome.PASS),
        (SIGBUS, 200, {"export_sync": False}, Outcome.PASS),
        (SIGBUS, 50, {"export_sync": False}, Outcome.FAIL),
        (SIGKILL, 200, {"allowed_errors": frozenset({EIO})}, Outcome.ERROR),
        (99, 200, {}, Outcome.ERROR),
    ],
)
def test_only_sigbus_is_an_error_of_a_client_and_judged_as_one(
    signal: int, at_ns: int, changes: dict[str, Any], outcome: Outcome
) -> None:
    killed = WorkerEnd(at_ns, -signal)
    assert ended(of_0=WELL, of_1=killed, conditions=replace(SYNC, **changes)) == [outcome]


@pytest.mark.parametrize(
    ("kind", "outcome"), [("lock", Outcome.PASS), ("unlock", Outcome.PASS), ("set-up", Outcome.FAIL)]
)
def test_who_lost_a_lock_with_its_lease_may_fail_to_take_or_to_release_it(kind: str, outcome: Outcome) -> None:
    step = Operation(0, 0, kind, 0, 0, CUT + 1, CUT + 2, Ended.FAILED, EIO)
    history = History([], {}, [step])
    assert judge_errors(history, SYNC, CUT).outcome is Outcome.FAIL
    assert judge_errors(history, replace(SYNC, lease_lost=True), CUT).outcome is outcome


def short(spec: LedgerSpec, counts: dict[str, int], lost: tuple[str, ...] = ()) -> list[str]:
    """Judge the work of two clients; ``counts``: number of judged operations by path, 3 if the path is not there."""
    workers = spec.workers(["client1", "client2"])
    parts = {}
    for worker in workers:
        name = f"{worker.client} {worker.path}"
        parts[worker.number] = part = Balance()
        part.judged[worker.kinds[0]] = next((count for key, count in counts.items() if key in name), 3)
        part.lost[worker.kinds[0]] += sum(one in name for one in lost)
        part.lost = +part.lost
    found = judge_work(workers, parts, "here")
    assert {one.outcome for one in found} <= {Outcome.INCONCLUSIVE}
    return [one.reason.partition(": ")[2].partition(";")[0] for one in found]


def test_each_client_must_have_shown_enough_by_each_kind_of_worker() -> None:
    spec = LedgerSpec(kinds=("fsync", "shared", "metadata", "metadata", "extents", "close_pages"))
    assert short(spec, {}) == []
    assert short(spec, {"client2-0-fsync": 2}) == ["2 of fsync on client2"]
    assert short(spec, {"client2 shared": 0}) == ["0 of shared on client2"]
    assert short(spec, {"client1-4-extents": 0, "client2-5-close_pages": 1}) == [
        "0 of extents on client1, 1 of close_pages on client2"
    ]
    assert short(spec, {"client2": 0}) == [
        "0 of fsync on client2, 0 of shared on client2, 0 of metadata on client2, 0 of extents on client2, "
        "0 of close_pages on client2"
    ]


def test_workers_of_one_kind_on_a_client_count_together() -> None:
    spec = LedgerSpec(kinds=("metadata", "metadata"))
    assert short(spec, {"client1-0-metadata": 0}) == []
    assert short(spec, {"client1": 1}) == ["2 of metadata on client1"]


def test_a_lost_operation_and_a_limit_of_operations_need_no_minimum() -> None:
    spec = LedgerSpec(kinds=("fsync",))
    assert short(spec, {"client2": 1}, lost=("client2",)) == []
    assert short(spec.model_copy(update={"operations": 1}), {"client": 1}) == []
    assert short(spec.model_copy(update={"operations": 1}), {"client": 0}) == [
        "0 of fsync on client1, 0 of fsync on client2"
    ]


def test_a_worker_with_few_blocks_shows_no_more_losses_than_it_has_blocks() -> None:
    spec = LedgerSpec(kinds=("fsync", "metadata"), blocks=2)
    assert short(spec, {"fsync": 2}) == []
    assert short(spec, {"fsync": 1}) == ["1 of fsync on client1, 1 of fsync on client2"]
    assert short(spec, {"metadata": 2}) == ["2 of metadata on client1, 2 of metadata on client2"]
