from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from raidproof.core.waiting import Deadline
from raidproof.crash.exploration import Budget
from raidproof.crash.owner import Piece, WriteOwner, pieces_of
from raidproof.crash.shrink import diverse, explain
from raidproof.crash.states import CrashState, Survivor
from raidproof.crash.stats import Group
from raidproof.record.failure import FailureRecord
from raidproof.verdict.checks.crash_state import REDUNDANCY
from raidproof.verdict.damage import Damage
from raidproof.workload.history import History
from tests.crash.made_up import STALE, WORKER, MadeUp, half_written, replayer_of, told, written
from tests.crash.mirror import mirrored


@pytest.fixture
def lying(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "lying", written(lies_from=4), told())


def explained(made_up: MadeUp, until: Deadline | None = None) -> list[FailureRecord]:
    exploration = made_up.begin()
    with closing(exploration.journal), exploration:
        exploration.run(Budget(None))
        replayer = replayer_of(exploration)
        failures: list[FailureRecord] = []
        explain(failures, replayer, lambda _state, _pieces: {}, lambda name: ["show", name], until=until)
        return failures


def test_a_bitmap_that_was_cleared_too_early_is_a_failure(tmp_path: Path) -> None:
    made_up = mirrored(tmp_path / "mirror")
    (failure,) = explained(made_up)
    assert (failure.promise, failure.confirmed) == (REDUNDANCY, 2)
    assert failure.missing is None
    # What an exploration that goes on reads from its journal counts the same.
    stats = made_up.explore().stats
    assert 0 < stats.redundancy.unmarked == stats.broken == failure.states


def test_a_failure_is_repeated_shrunk_and_named(tmp_path: Path) -> None:
    (failure,) = explained(MadeUp(tmp_path / "half", half_written(), told(2)))
    assert (failure.promise, failure.damage, failure.end) == ("recovery", "not mounted", "not-mounted")
    assert (failure.confirmed, failure.repeated) == (2, 2)
    assert failure.shrunk is not None
    (survivor,) = failure.shrunk.survivors
    assert (survivor.kind, survivor.member, survivor.lba, survivor.sectors) == ("write", "disk1", 0, 8)
    (lost,) = failure.shrunk.lost
    assert (lost.member, lost.lba) == ("disk1", 8)
    assert failure.missing is not None
    assert (failure.missing.kind, failure.missing.place) == ("fsync", 0)
    assert failure.shortest is not None
    assert failure.replay == ["show", failure.shortest.state]
    assert CrashState.load(failure.shrunk.dump).name == failure.shrunk.state


def test_failures_that_begin_with_the_same_state_are_shrunk_once(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path / "two", written(lies_from=4), told())
    alone = explained(made_up)
    made_up = MadeUp(tmp_path / "two", written(lies_from=4), told())
    (tmp_path / "two" / "states.jsonl").unlink()
    other = WORKER.model_copy(update={"number": 1, "client": "client2", "kind": "o_sync"})
    words = [one._replace(worker=1, kind="o_sync") for one in told().operations]
    made_up.oracle = replace(made_up.oracle, workers=(WORKER, other), history=History([*told().operations, *words]))
    first, second = explained(made_up)
    assert {first.promise, second.promise} == {"write + fsync", "O_SYNC write"}
    assert (first.confirmed, second.confirmed) == (2, 2)
    assert first.state == second.state
    assert first.shrunk == second.shrunk == alone[0].shrunk
    assert first.shrunk is not second.shrunk
    assert first.shortest == second.shortest
    assert {one.missing.client for one in (first, second) if one.missing} == {"client1", "client2"}


def test_without_any_time_left_one_failure_is_shown_again_once(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path / "both", [*written(lies_from=1), *half_written()[6:]], told())
    failures = explained(made_up, Deadline.after(0))
    assert [(one.repeated, one.confirmed) for one in failures].count((1, 1)) == 1
    assert [one.repeated for one in failures].count(0) == len(failures) - 1 > 0
    assert not any(one.shrunk for one in failures)


def test_a_lie_needs_no_survivor(lying: MadeUp) -> None:
    failure = next(one for one in explained(lying) if one.damage == STALE.what)
    assert failure.shrunk is not None
    assert failure.shrunk.survivors == []
    (lost,) = failure.shrunk.lost
    assert (lost.member, lost.lba, lost.sectors) == ("disk0", 0, 8)
    assert failure.missing is not None
    assert failure.missing.instead == "the block has generation 1"
    # Every state was checked at: the first that shows it is at the first cut that can.
    assert failure.shortest is not None
    assert (failure.shortest.earlier, failure.shortest.not_at) == (0, None)


def test_a_failure_that_does_not_come_again_is_not_shrunk(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path / "half", half_written(), told(2))
    with made_up.begin() as exploration:
        exploration.run(Budget(None))
        for checker in made_up.checkers:
            checker.forgives = True
        replayer = replayer_of(exploration)
        failures: list[FailureRecord] = []
        explain(failures, replayer, lambda _state, _pieces: {}, lambda name: [name])
    (failure,) = failures
    assert (failure.repeated, failure.confirmed) == (2, 0)
    assert failure.shrunk is None


def test_failures_are_repeated_without_a_search_and_without_a_new_machine(lying: MadeUp) -> None:
    exploration = lying.begin(cold=False)
    with closing(exploration.journal), exploration:
        exploration.run(Budget(None))
        failures: list[FailureRecord] = []
        replayer = replayer_of(exploration)
        explain(failures, replayer, lambda _state, _pieces: {}, lambda name: [name], smallest=False, cold=False)
    assert failures
    assert all((one.repeated, one.confirmed, one.shrunk) == (2, 2, None) for one in failures)
    assert not exploration.stats.cold.checked


def test_torn_parts_are_told_apart(lying: MadeUp) -> None:
    state = CrashState(3, (Survivor(4, ((4096, 4608), (5120, 6144))),))
    known = {Piece(0, 5120): WriteOwner(3, "f")}
    parts = [piece.record(lying.recording, known) for piece in pieces_of(lying.recording, state)]
    assert [(one.lba, one.sectors, one.stripe, one.owner) for one in parts] == [(8, 1, None, None), (10, 2, 3, "f")]


def test_each_promise_has_its_turn() -> None:
    groups = [Group(Damage(promise, str(number), "read")) for number, promise in enumerate("aaabbc")]
    assert [(one.damage.promise, one.damage.what) for one in diverse(groups)] == [
        ("a", "0"), ("b", "3"), ("c", "5"), ("a", "1"), ("b", "4"), ("a", "2")
    ]  # fmt: skip
