from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.crash import exploration as module
from harness.crash.belonging import Belonging, Piece
from harness.crash.exploration import Budget
from harness.crash.failures import diverse, explain
from harness.crash.journal import read
from harness.crash.judge import REDUNDANCY, Damage, Oracle
from harness.crash.part import pieces_of
from harness.crash.replayer import Replayer
from harness.crash.state import CrashState, Survivor
from harness.crash.tally import Group
from harness.errors import RequestError, RigError
from harness.record.exploration import FailureRecord
from harness.verdict.contract import Conditions
from harness.waiting import Deadline
from harness.workload.history import History
from tests.crash.made_up import WORKER, MadeUp, half_written, told, written
from tests.crash.mirror import DATA, PAGE, MirrorRun

STALE = Damage("write + fsync", "an older generation is there", "read")


@pytest.fixture
def honest(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "honest", written(), told())


@pytest.fixture
def lying(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "lying", written(lies_from=4), told())


def test_honest_disks_break_nothing(honest: MadeUp) -> None:
    tally = honest.explore().tally
    assert tally.judged == len(honest.begin().choices.order) > 100
    assert not tally.broken
    assert not tally.groups


def test_equal_contents_are_looked_at_once(honest: MadeUp) -> None:
    tally = honest.explore().tally
    assert tally.checked == len(tally.digests) < tally.judged
    assert honest.checks == tally.checked + tally.cold.checked


def test_equal_contents_are_judged_at_each_cut(lying: MadeUp) -> None:
    # Before the lie the content is all that was promised; after it, it is not.
    tally = lying.explore().tally
    assert tally.broken
    assert any(mark.broken and not mark.checked for mark in tally.marks)
    assert not any(mark.broken for mark in tally.marks if mark.at_s * 1e9 < 15000)


@pytest.mark.parametrize("checkers", [2, 3])
def test_several_checkers_see_what_one_sees(lying: MadeUp, tmp_path: Path, checkers: int) -> None:
    one = lying.explore().tally
    several = MadeUp(tmp_path / "several", written(lies_from=4), told()).explore(checkers=checkers).tally
    assert sorted(one.marks, key=str) != []
    assert {mark.name: mark.broken for mark in one.marks} == {mark.name: mark.broken for mark in several.marks}
    assert {group.damage: group.names for group in one.failures()} == {
        group.damage: group.names for group in several.failures()
    }


def test_batches_go_back_to_the_beginning(lying: MadeUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = lying.explore().tally
    monkeypatch.setattr(module, "BATCH", 7)
    in_batches = MadeUp(tmp_path / "batches", written(lies_from=4), told()).explore(checkers=2).tally
    assert {mark.name: mark.broken for mark in at_once.marks} == {mark.name: mark.broken for mark in in_batches.marks}


def test_a_lying_disk_is_found_and_blamed(lying: MadeUp) -> None:
    (group,) = [one for one in lying.explore().tally.failures() if one.damage == STALE]
    assert group.first.judgement.blame == "the disks: disk0 acknowledged flushes and kept nothing"
    assert [one.operation.place for one in group.first.judgement.missing] == [0]


def test_an_async_export_is_measured(tmp_path: Path) -> None:
    late = told()
    early = type(late)(one._replace(ended_ns=one.issued_ns + 1) for one in late.operations)
    tally = MadeUp(tmp_path / "async", written(), early, sync=False).explore().tally
    assert not tally.broken
    assert tally.loss is not None
    assert tally.loss.operations


def test_an_exploration_goes_on_where_it_was_stopped(honest: MadeUp) -> None:
    honest.explore(states=40)
    with (honest.folder / "states.jsonl").open("ab") as file:
        file.write(b'{"what":"state","state":"[3')
    tally = honest.explore().tally
    whole = MadeUp(honest.folder / "whole", written(), told()).explore().tally
    assert {mark.name for mark in tally.marks} == {mark.name for mark in whole.marks}
    assert tally.judged == whole.judged
    assert honest.checks == whole.checked + whole.cold.checked
    _, lines, _ = read(honest.folder / "states.jsonl")
    looked = [line.digest for line in lines if line.observation is not None]
    assert len(looked) == len(set(looked))


def test_to_go_on_with_fewer_states_than_were_judged_boots_nothing(honest: MadeUp) -> None:
    before = honest.explore(states=40).tally
    checkers = len(honest.checkers)
    again = honest.explore(states=10).tally
    assert (again.judged, again.marks) == (before.judged, before.marks)
    assert len(honest.checkers) == checkers


def test_two_do_not_write_one_journal(honest: MadeUp) -> None:
    with closing(honest.begin().journal):
        before = (honest.folder / "states.jsonl").read_bytes()
        with pytest.raises(RequestError, match="being written by another") as refused:
            honest.begin()
        assert "--resume" in str(refused.value)
        assert (honest.folder / "states.jsonl").read_bytes() == before
    honest.begin().journal.close()


def test_another_seed_is_refused(honest: MadeUp) -> None:
    honest.explore(states=3)
    with pytest.raises(RequestError, match="seed 1, not 2"):
        honest.begin(seed=2)


def test_a_line_that_is_none_is_refused(honest: MadeUp) -> None:
    honest.explore(states=3)
    with (honest.folder / "states.jsonl").open("ab") as file:
        file.write(b'{"what":"nothing"}\n')
    with pytest.raises(RequestError, match="jsonl:5: not a line"):
        honest.begin()


def test_what_reuse_hides_is_found(honest: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLD_EVERY", 5)
    honest.cold_differs = True
    cold = honest.explore().tally.cold
    assert cold.checked >= 2
    assert len(cold.differing) == cold.checked


def test_reuse_that_hides_nothing(honest: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLD_EVERY", 5)
    cold = honest.explore().tally.cold
    assert cold.checked >= 2
    assert not cold.differing


def test_a_checker_that_fails_once_is_replaced(honest: MadeUp) -> None:
    def fail_once(number: int) -> None:
        if number == 5 and len(honest.checkers) == 1:
            raise RigError("gone")

    honest.before_check = fail_once
    tally = honest.explore().tally
    assert len(honest.checkers) == 2
    assert not tally.broken


def test_a_checker_that_goes_on_failing_ends_it(honest: MadeUp) -> None:
    def fail(number: int) -> None:
        if number == 5 or len(honest.checkers) > 1:
            raise RigError("gone")

    honest.before_check = fail
    with pytest.raises(RigError, match="gone"):
        honest.explore()
    _, lines, _ = read(honest.folder / "states.jsonl")
    assert lines


def test_an_interruption_keeps_what_was_seen(honest: MadeUp) -> None:
    def stop(number: int) -> None:
        if number == 5:
            raise KeyboardInterrupt

    honest.before_check = stop
    exploration = honest.begin()
    with pytest.raises(KeyboardInterrupt), exploration:
        exploration.run(Budget(None))
    exploration.journal.close()
    assert exploration.tally.judged >= 4
    honest.before_check = lambda _: None
    assert honest.explore().tally.judged == len(exploration.choices.order)


def test_time_that_is_up_is_said(honest: MadeUp) -> None:
    exploration = honest.begin()
    with exploration:
        exploration.run(Budget(None, minutes=0))
    assert exploration.out_of_time
    assert not exploration.tally.judged


class Clock:
    """Stands for `Deadline`: each look of a made-up run's checkers takes a second."""

    def __init__(self, made_up: MadeUp, seconds: float) -> None:
        self.made_up = made_up
        self.at = made_up.checks + seconds

    @property
    def passed(self) -> bool:
        return self.made_up.checks >= self.at


def looks_in_a_minute(made_up: MadeUp, monkeypatch: pytest.MonkeyPatch) -> int:
    clock = SimpleNamespace(after=lambda seconds: Clock(made_up, seconds))
    monkeypatch.setattr(module, "Deadline", clock)
    exploration = made_up.begin()
    with closing(exploration.journal), exploration:
        exploration.run(Budget(None, minutes=1))
    assert exploration.out_of_time
    assert exploration.deadline is not None
    return made_up.checks


def test_a_third_of_the_time_is_kept_for_what_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lying = MadeUp(tmp_path / "lying", written(12, lies_from=1), told(12))
    honest = MadeUp(tmp_path / "honest", written(12), told(12))
    # What was given to the checker by then is looked at, too.
    assert 60 <= looks_in_a_minute(honest, monkeypatch) <= 60 + module.QUEUE
    assert 40 <= looks_in_a_minute(lying, monkeypatch) <= 40 + module.QUEUE


def mirrored(folder: Path, *marked: int) -> MadeUp:
    """Return a run whose clients were told nothing, and which leaves one row of a mirror different for a while."""
    made_up = MadeUp(folder, [], told(0))
    run = MirrorRun(folder / "mirror.log")
    run.create_with_bitmap(*marked)
    run.write(0, DATA, PAGE)
    run.flush(0)
    run.write(1, DATA, PAGE)
    run.flush(1)
    made_up.recording = run.recording()
    made_up.oracle = Oracle((), History([]), Conditions(export_sync=True), created_ns=0)
    return made_up


def test_rows_that_md_would_resync_are_counted(tmp_path: Path) -> None:
    tally = mirrored(tmp_path / "mirror", 0).explore().tally
    counted = tally.redundancy
    assert counted.checked + sum(counted.unchecked.values()) == tally.judged
    assert 0 < counted.differing < counted.checked
    assert not counted.unmarked
    assert not tally.broken


def test_a_bitmap_that_was_cleared_too_early_is_a_failure(tmp_path: Path) -> None:
    made_up = mirrored(tmp_path / "mirror")
    (failure,) = explained(made_up)
    assert (failure.promise, failure.confirmed) == (REDUNDANCY, 2)
    assert failure.missing is None
    # What an exploration that goes on reads from its journal counts the same.
    tally = made_up.explore().tally
    assert 0 < tally.redundancy.unmarked == tally.broken == failure.states


def explained(made_up: MadeUp, until: Deadline | None = None) -> list[FailureRecord]:
    exploration = made_up.begin()
    with closing(exploration.journal), exploration:
        exploration.run(Budget(None))
        replayer = Replayer(exploration.benches[0], exploration.roller, exploration.tally)
        return list(explain(replayer, lambda _state, _pieces: {}, lambda name: ["show", name], until=until))


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
    assert failure.missing.instead == "generation 1 is there"
    # Every state was looked at: the first that shows it is at the first cut that can.
    assert failure.shortest is not None
    assert (failure.shortest.earlier, failure.shortest.not_at) == (0, None)


def test_a_failure_that_does_not_come_again_is_not_shrunk(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path / "half", half_written(), told(2))
    with made_up.begin() as exploration:
        exploration.run(Budget(None))
        for checker in made_up.checkers:
            checker.forgives = True
        replayer = Replayer(exploration.benches[0], exploration.roller, exploration.tally)
        (failure,) = explain(replayer, lambda _state, _pieces: {}, lambda name: [name])
    assert (failure.repeated, failure.confirmed) == (2, 0)
    assert failure.shrunk is None


def test_torn_parts_are_told_apart(lying: MadeUp) -> None:
    state = CrashState(3, (Survivor(4, ((4096, 4608), (5120, 6144))),))
    known = {Piece(0, 5120): Belonging(3, "f")}
    parts = [piece.record(lying.recording, known) for piece in pieces_of(lying.recording, state)]
    assert [(one.lba, one.sectors, one.stripe, one.owner) for one in parts] == [(8, 1, None, None), (10, 2, 3, "f")]


def test_each_promise_has_its_turn() -> None:
    groups = [Group(Damage(promise, str(number), "read")) for number, promise in enumerate("aaabbc")]
    assert [(one.damage.promise, one.damage.what) for one in diverse(groups)] == [
        ("a", "0"), ("b", "3"), ("c", "5"), ("a", "1"), ("b", "4"), ("a", "2")
    ]  # fmt: skip
