"""The verdict on the ends of the workers: each has reported its end, or the fault explains why not."""

from dataclasses import replace
from errno import EIO
from signal import SIGBUS, SIGKILL
from typing import Any

import pytest

from raidproof.fault import FaultEffects
from raidproof.record.outcome import Outcome
from raidproof.verdict.checks.ends import judge_ends
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.window import Window
from raidproof.workload.history import History, WorkerEnd, WorkerSpec
from raidproof.workload.ledger import LedgerSpec

WORKERS = [
    WorkerSpec(
        number=number, client=f"client{number + 1}", kind="msync", path=f"client{number + 1}-msync", file=number
    )
    for number in range(2)
]
CUT = 100


def lost(*errors: int, begun_ns: int = CUT) -> Window:
    """Return the window of a fault that lost the server's memory."""
    return Window(FaultEffects(server_memory_lost=True, errors=frozenset(errors)), begun_ns)


SYNC = Conditions(export_sync=True, windows=(lost(),))
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
        (SIGBUS, 200, {"windows": (lost(EIO),)}, Outcome.PASS),
        (SIGBUS, 50, {"windows": (lost(EIO),)}, Outcome.FAIL),
        (SIGBUS, 50, {"windows": (lost(EIO, begun_ns=0),)}, Outcome.PASS),
        (SIGBUS, 200, {"export_sync": False}, Outcome.PASS),
        (SIGBUS, 50, {"export_sync": False}, Outcome.FAIL),
        (SIGKILL, 200, {"windows": (lost(EIO, begun_ns=0),)}, Outcome.ERROR),
        (99, 200, {}, Outcome.ERROR),
    ],
)
def test_only_sigbus_is_an_error_of_a_client_and_judged_as_one(
    signal: int, at_ns: int, changes: dict[str, Any], outcome: Outcome
) -> None:
    killed = WorkerEnd(at_ns, -signal)
    assert ended(of_0=WELL, of_1=killed, conditions=replace(SYNC, **changes)) == [outcome]
