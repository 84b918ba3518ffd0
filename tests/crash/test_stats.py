"""What each state is judged under: its own cut, its own tears."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raidproof.crash.states import CrashState, Survivor
from raidproof.crash.stats import ExplorationStats
from raidproof.disk.writelog import Kind
from raidproof.guest.ledger_format import HOLDERS
from raidproof.record.exploration import End, Observation
from raidproof.workload.ledger import LedgerSpec
from tests.crash.conftest import Did, Record
from tests.crash.made_up import WORKER, MadeUp, told, written


class Oracle:
    """Keeps what it was asked."""

    workers = ()

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def judge(self, observation: Observation, instant_ns: int, **conditions: Any) -> None:
        self.asked.append({"instant_ns": instant_ns, **conditions})


@pytest.mark.parametrize(
    ("survivors", "torn"),
    [
        ((), False),
        ((Survivor(0), Survivor(1)), False),
        ((Survivor(0), Survivor(1, ((4096, 4608),))), True),
    ],
)
def test_a_state_is_judged_as_torn_only_if_a_request_of_it_is(
    survivors: tuple[Survivor, ...], torn: bool, record: Record
) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.WRITE, offset=4096))
    oracle = Oracle()
    ExplorationStats(made, oracle).judge(CrashState(2, survivors), Observation(end=End.READ))  # type: ignore[arg-type]
    (asked,) = oracle.asked
    assert bool(asked["torn"]) is torn
    assert asked["instant_ns"] == made.instant_ns(2)


def test_a_check_of_the_same_state_elsewhere_does_not_take_the_judgement_that_another_made(record: Record) -> None:
    oracle = Oracle()
    stats = ExplorationStats(record(Did(Kind.WRITE)), oracle)  # type: ignore[arg-type]
    state, mine, other = CrashState(1, ()), Observation(end=End.READ), Observation(end=End.READ)
    judgement: Any = object()
    stats.expect(state, mine, judgement)
    # A checker judges what it observed of the same state, before the judgement is counted.
    stats.judge(state, other)
    assert stats.judge(state, mine) is judgement
    assert len(oracle.asked) == 1


def test_a_client_without_an_operation_is_idle_in_every_state(tmp_path: Path) -> None:
    assert MadeUp(tmp_path / "one", written(), told()).explore(40).stats.idle == set()
    made_up = MadeUp(tmp_path / "two", written(), told())
    other = WORKER.model_copy(update={"number": 1, "client": "client2", "kind": "o_sync"})
    made_up.oracle = replace(made_up.oracle, workers=(WORKER, other))
    assert made_up.explore(40).stats.idle == {("client2", "o_sync")}


def test_workers_that_hold_locks_and_files_are_never_idle(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path / "one", written(), told())
    holders = [WORKER.model_copy(update={"number": 1 + number, "kind": kind}) for number, kind in enumerate(HOLDERS)]
    made_up.oracle = replace(made_up.oracle, workers=(WORKER, *holders))
    assert {one.kind for one in LedgerSpec().workers(["client1", "client2"])} >= {*HOLDERS}
    assert ExplorationStats(made_up.recording, made_up.oracle).idle == {WORKER.group}
