"""Whether a crash test is complete: the ends of the workers."""

from dataclasses import replace
from errno import EIO
from signal import SIGBUS, SIGKILL
from typing import Any

import pytest

from raidproof.record.outcome import Outcome
from raidproof.verdict.completeness import judge_ends
from raidproof.verdict.contract import Conditions, judge_errors
from raidproof.workload.history import Ended, History, Operation, WorkerEnd, WorkerSpec

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
