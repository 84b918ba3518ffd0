"""What differs between a failing state and a good one, of made-up runs with planted defects."""

from contextlib import closing
from pathlib import Path

import pytest

from raidproof.crash.difference import Extremes, Window, broken_by, difference, is_good, with_request, without_request
from raidproof.crash.exploration import Budget
from raidproof.crash.shrink import explain
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.writelog import Flag, Kind
from raidproof.guest.ledger_format import BLOCK, block
from raidproof.record.failure import DifferenceRecord, FailureRecord, Gap, WriteRecord
from raidproof.record.outcome import Outcome
from raidproof.verdict.damage import Damage
from raidproof.verdict.oracle import Judgement, Missing
from raidproof.workload.history import Ended, Operation
from tests.crash.conftest import Did, Record
from tests.crash.made_up import FLUSH, LIE, STALE, WORKER, MadeUp, half_written, replayer_of, told, written
from tests.crash.mirror import DATA, MirrorRun

WRITE = Did(Kind.WRITE)


def explained(made_up: MadeUp) -> DifferenceRecord:
    """Explore a run, and return what makes the state of its first failure fail."""
    exploration = made_up.begin()
    with closing(exploration.journal), exploration:
        exploration.run(Budget(None))
        replayer = replayer_of(exploration)
        failures: list[FailureRecord] = []
        explain(failures, replayer, lambda _state, _pieces: {}, lambda name: [name])
    found = next(one for one in failures if one.shrunk is not None)
    assert found.difference is not None
    return found.difference


def test_the_flush_that_a_disk_did_not_execute_is_named(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path / "lying", written(lies_from=4), told())
    found = explained(made_up)
    (one,) = found.requests
    assert (found.lost, one.write.member, one.write.lba) == (True, "disk0", 0)
    assert (one.gap, one.lying_flushes) == (Gap.FLUSH_LIED, 1)
    # The write completed at 14 us, the flush that did nothing at 15 us, and its acknowledgement came at 15.1 us.
    assert found.broken is not None
    assert (found.broken.kind, found.broken.place, found.broken.generation) == ("fsync", 0, 2)
    assert one.before_acknowledgement_s == pytest.approx(1.1e-6)
    assert one.good_state is not None
    assert CrashState.load(one.good_dump or "").name == one.good_state
    good, bad = CrashState.load(one.good_dump or ""), CrashState.load(found.dump)
    assert {*good.survivors} - {*bad.survivors} == {Survivor(one.write.request)}


def test_an_acknowledgement_without_a_flush_is_named(tmp_path: Path) -> None:
    flushes = [place for place, one in enumerate(written()) if one.kind is Kind.FLUSH]
    done = [one for place, one in enumerate(written()) if place != flushes[4]]
    done.insert(flushes[4], Did(Kind.FLUSH, 1))
    found = explained(MadeUp(tmp_path / "wrong-member", done, told()))
    (one,) = found.requests
    assert (one.write.member, one.gap, one.lying_flushes) == ("disk0", Gap.NOT_FLUSHED, 0)
    assert one.good_state is not None


def test_a_failure_of_recovery_is_told_relative_to_the_cut(tmp_path: Path) -> None:
    found = explained(MadeUp(tmp_path / "half", half_written(), told(2)))
    (one,) = found.requests
    assert (found.lost, one.write.member, one.write.lba) == (True, "disk1", 8)
    assert found.broken is None
    assert one.before_acknowledgement_s is None
    assert one.good_state is not None


ACKNOWLEDGED_NS = 3500


@pytest.mark.parametrize(
    ("done", "acknowledged_ns", "gap", "lying"),
    [
        ((WRITE, FLUSH), None, Gap.NOT_FLUSHED, 0),
        ((WRITE, Did(Kind.FLUSH, 1), FLUSH), ACKNOWLEDGED_NS - 1000, Gap.NOT_FLUSHED, 0),
        ((WRITE, LIE, LIE, LIE), ACKNOWLEDGED_NS, Gap.FLUSH_LIED, 2),
        ((WRITE, LIE, LIE, LIE), None, Gap.FLUSH_LIED, 3),
        # A flush that was issued before the write completed need not cover it.
        ((WRITE, Did(Kind.FLUSH, flags=int(Flag.LIED), took=1)), None, Gap.NOT_FLUSHED, 0),
        ((Did(Kind.WRITE, flags=int(Flag.FUA | Flag.LIED)), WRITE), None, Gap.FLUSH_LIED, 0),
        ((Did(Kind.WRITE, byte=9), Did(Kind.WRITE, 1)), 600, Gap.IN_FLIGHT, 0),
        ((Did(Kind.WRITE, byte=9), Did(Kind.WRITE, 1)), 400, Gap.LATER, 0),
    ],
)
def test_why_a_request_was_volatile(
    record: Record, done: tuple[Did, ...], acknowledged_ns: int | None, gap: Gap, lying: int
) -> None:
    window = Window(record(*done), len(done), acknowledged_ns)
    assert (window.gap(0), window.lying_flushes(0)) == (gap, lying)


def test_a_request_in_flight_at_the_cut(record: Record) -> None:
    window = Window(record(WRITE, Did(Kind.WRITE, 1, took=1)), 1, None)
    assert (window.completed_ns(0), window.completed_ns(1)) == (1000, None)
    assert (window.gap(1), window.lying_flushes(1)) == (Gap.IN_FLIGHT, 0)


def test_neighbours() -> None:
    state = CrashState(9, (Survivor(2), Survivor(5, ((0, 512),))))
    assert with_request(state, 3).survivors == (Survivor(2), Survivor(3), Survivor(5, ((0, 512),)))
    assert with_request(state, 5).survivors == (Survivor(2), Survivor(5))
    assert without_request(state, 5).survivors == (Survivor(2),)


@pytest.mark.parametrize(
    ("judgement", "good"),
    [
        (Judgement(Outcome.PASS, ""), True),
        (Judgement(Outcome.PASS, "", damages=(STALE,)), False),
        (Judgement(Outcome.FAIL, ""), False),
        (Judgement(Outcome.ERROR, ""), False),
    ],
)
def test_a_state_is_good_only_if_it_shows_nothing(judgement: Judgement, good: bool) -> None:
    assert is_good(judgement) is good


class Always:
    """Judges every state alike."""

    def __init__(self, judgement: Judgement) -> None:
        self.judgement = judgement

    def judged_for(self, _damage: Damage, _state: CrashState) -> Judgement:
        return self.judgement


def written_by(recording: Recording, *numbers: int) -> list[WriteRecord]:
    return [
        WriteRecord(request=number, kind="write", member=recording.members[0].serial, lba=0, sectors=8)
        for number in numbers
    ]


def test_a_neighbour_with_another_failure_is_not_good(record: Record) -> None:
    recording = record(WRITE, Did(Kind.WRITE, offset=4096))
    state = CrashState(2, (Survivor(1),))
    fails = Always(Judgement(Outcome.FAIL, "", damages=(STALE,)))
    found = difference(fails, recording, STALE, Extremes(state, [], state, written_by(recording, 0)))
    assert [one.good_state for one in found.requests] == [None]


def test_a_survivor_makes_the_difference_if_nothing_needs_to_be_lost(record: Record) -> None:
    recording = record(WRITE, Did(Kind.WRITE, offset=4096))
    state = CrashState(2, (Survivor(0, ((0, 512), (1024, 1536))),))
    parts = written_by(recording, 0, 0)
    good = Always(Judgement(Outcome.PASS, ""))
    found = difference(good, recording, STALE, Extremes(state, parts, CrashState(2), []))
    (one,) = found.requests
    assert (found.lost, found.state, one.torn, one.good_state) == (False, state.name, True, CrashState(2).name)


def test_a_failure_of_every_state_of_a_cut_has_no_request(record: Record) -> None:
    recording = record(WRITE)
    found = difference(
        Always(Judgement(Outcome.FAIL, "")), recording, STALE, Extremes(CrashState(1), [], CrashState(1), [])
    )
    assert (found.lost, found.requests) == (False, [])


def test_the_operation_whose_block_the_request_holds_is_the_broken_one(tmp_path: Path) -> None:
    run = MirrorRun(tmp_path / "mirror.log")
    run.write(0, DATA, block(WORKER.file, BLOCK, 1, 7))
    ended = [Operation(0, turn, "fsync", turn, 1, 100, 200, Ended.OK, 0) for turn in range(3)]
    missing = [Missing(one, WORKER, "the block is missing") for one in ended]
    recording = run.recording()
    assert broken_by(recording, missing, [0]) is missing[1]
    assert broken_by(recording, missing[:1], [0]) is missing[0]
    assert broken_by(recording, [], [0]) is None
