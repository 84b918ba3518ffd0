from pathlib import Path

import pytest

from raidproof.core.blame import Culprit
from raidproof.core.errors import RequestError
from raidproof.crash.exploration import Budget
from raidproof.crash.states import CrashState
from raidproof.record import ControlSpec
from raidproof.record.exploration import ExplorationRecord
from raidproof.record.observation import RepliesSeen
from raidproof.record.outcome import Outcome
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.exploration_record import undated
from raidproof.run.replay import find, replay
from raidproof.run.source import source_of
from tests.crash.stored import OnFakes, store_run


@pytest.fixture
def source(tmp_path: Path) -> OnFakes:
    return OnFakes.of(source_of(store_run(tmp_path / "run")))


@pytest.fixture
def record(source: OnFakes) -> ExplorationRecord:
    return explore_cycle(source, Options(Budget(None), checkers=1, crash_page=False))[0]


def test_an_exploration_of_a_stored_cycle_blames_the_lying_disk(record: ExplorationRecord) -> None:
    assert record.outcome is Outcome.FAIL
    assert str(record.failures[0].blame) == "the disks: disk0 acknowledged flushes and did not make the data durable"


def test_an_exploration_of_a_control_is_reported_as_a_control(tmp_path: Path) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    source = OnFakes.of(source_of(store_run(tmp_path / "control", control=control)))
    record, page = explore_cycle(source, Options(Budget(None), checkers=1, crash_page=False))
    assert record.outcome is Outcome.PASS
    assert record.failures
    assert "control behaved: " in page.read_text()


def test_judged_states_and_each_smallest_one_are_found_by_name(source: OnFakes, record: ExplorationRecord) -> None:
    # Each search reads the whole journal: every tenth state stands for all.
    some = [mark.name for mark in record.marks][::10]
    assert [find(source, name).name for name in some] == some
    shrunk = record.failures[0].shrunk
    assert shrunk is not None
    assert find(source, shrunk.state) == CrashState.load(shrunk.dump)
    shortest = record.failures[0].shortest
    assert shortest is not None
    assert find(source, shortest.state) == CrashState.load(shortest.dump)
    assert shrunk.lost_state is not None
    assert find(source, shrunk.lost_state).name == shrunk.lost_state


def test_an_unknown_state_is_refused(source: OnFakes, record: ExplorationRecord) -> None:
    assert record.judged
    with pytest.raises(RequestError, match=r"has a state '1-00000000' \(names of states are in the HTML report"):
        find(source, "1-00000000")


def test_before_any_exploration_no_state_is_known(source: OnFakes) -> None:
    with pytest.raises(RequestError, match="no exploration"):
        find(source, "1-00000000")


def test_a_state_is_judged_as_often_as_it_is_shown(source: OnFakes, record: ExplorationRecord, tmp_path: Path) -> None:
    failure = record.failures[0]
    shown = replay(source, CrashState.load(failure.dump), tmp_path, times=3)
    assert len(shown.judgements) == 3
    assert len({(one.outcome, one.damages) for one in shown.judgements}) == 1
    assert (failure.promise, failure.damage) in [(one.promise, one.what) for one in shown.judgements[0].damages]
    said = "\n".join(shown.lines)
    assert f"state {failure.state}: power cut" in said
    assert "FAIL, 3 of 3 times: " in said
    assert "blamed on the disks: disk0" in said
    assert "shell server" not in said


def test_a_kept_state_prints_its_commands(source: OnFakes, tmp_path: Path) -> None:
    said = replay(source, CrashState(source.first), tmp_path, keep=True).lines
    assert said[-4:] == (
        "  ./raidproof shell server --lab a9e7f033",
        "    mdadm --assemble /dev/md0",
        "    mount /dev/md0 '/srv/a b'",
        "  ./raidproof gc --kept   ends the lab",
    )


@pytest.mark.parametrize("killed", [True, False])
def test_states_of_an_attempt_that_was_killed_do_not_count_as_fast(source: OnFakes, killed: bool) -> None:
    _, page = explore_cycle(source, Options(Budget(20), checkers=1, crash_page=False))
    if killed:
        page.with_suffix(".json").unlink()
    record, _ = explore_cycle(source, Options(Budget(50), checkers=1, resume=True, crash_page=False))
    assert (record.judged, record.timed) == (50, 30 if killed else 50)
    assert record.states_per_minute == pytest.approx(record.timed / record.seconds * 60)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (RepliesSeen(why_not="no dumpcap"), "no dumpcap"),
        (RepliesSeen(dated=0, of=9000), "dated 0 of 9,000 operations"),
        (RepliesSeen(dated=3, of=9000), "dated 3 of 9,000 operations"),
        (RepliesSeen(dated=4500, of=9000), ""),
        (RepliesSeen(dated=0, of=0), ""),
    ],
)
def test_an_exploration_says_that_the_capture_dated_few_operations(
    source: OnFakes, seen: RepliesSeen, said: str
) -> None:
    source.cycle.observed.replies = seen
    source.cycle.files.replies = None if seen.why_not else "replies"
    found = undated(source)
    assert len(found) == bool(said)
    assert all(said in one for one in found)
