import csv
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.crash import exploration as module
from raidproof.crash.checkers import QUEUE, LocalCheckers
from raidproof.crash.exploration import Budget
from raidproof.crash.journal import lines_of
from raidproof.record.exploration import ThroughNfsd
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.checks.crash_state import DEGRADED, FILESYSTEM
from raidproof.verdict.conditions import Conditions
from raidproof.workload.history import History
from tests.crash.made_up import STALE, MadeUp, told, written
from tests.crash.mirror import mirrored

FIRST = 1
"""The first state of the order is checked even if its content is known."""


@pytest.fixture
def honest(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "honest", written(), told())


@pytest.fixture
def lying(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "lying", written(lies_from=4), told())


def test_honest_disks_break_nothing(honest: MadeUp) -> None:
    stats = honest.explore().stats
    assert stats.judged == len(honest.begin().choices.order) > 100
    assert not stats.broken
    assert not stats.groups


def test_equal_contents_are_checked_once(honest: MadeUp) -> None:
    stats = honest.explore().stats
    assert len(stats.digests) <= stats.checked <= len(stats.digests) + FIRST < stats.judged
    assert honest.checks == stats.checked + stats.cold.checked


def test_equal_contents_are_judged_at_each_cut(lying: MadeUp) -> None:
    # Before the lie the content is all that was promised; after it, it is not.
    stats = lying.explore().stats
    assert stats.broken
    assert any(mark.broken and not mark.checked for mark in stats.marks)
    assert not any(mark.broken for mark in stats.marks if mark.at_s * 1e9 < 15000)


@pytest.mark.parametrize("checkers", [2, 3])
def test_several_checkers_see_what_one_sees(lying: MadeUp, tmp_path: Path, checkers: int) -> None:
    one = lying.explore().stats
    several = MadeUp(tmp_path / "several", written(lies_from=4), told()).explore(checkers=checkers).stats
    assert sorted(one.marks, key=str) != []
    assert {mark.name: mark.broken for mark in one.marks} == {mark.name: mark.broken for mark in several.marks}
    assert {group.damage: group.names for group in one.failures()} == {
        group.damage: group.names for group in several.failures()
    }


def also_checked(made_up: MadeUp) -> set[tuple[str, ThroughNfsd, bool, bool]]:
    """Return for each content whether nfsd, fsck and a newly booted machine checked it."""
    lines = lines_of(made_up.folder / "states.jsonl")
    return {
        (line.digest, line.observation.through_nfsd, line.observation.filesystem is not None, line.cold is not None)
        for line in lines
        if line.observation is not None
    }


def test_what_is_checked_of_a_state_does_not_depend_on_the_checkers(lying: MadeUp, tmp_path: Path) -> None:
    several = MadeUp(tmp_path / "several", written(lies_from=4), told())
    lying.explore()
    several.explore(checkers=3)
    also = also_checked(lying)
    assert also == also_checked(several)
    assert {one[1] for one in also} == {ThroughNfsd.SAME, ThroughNfsd.NOT_TRIED}
    assert {one[2] for one in also} == {one[3] for one in also} == {True, False}


def test_batches_go_back_to_the_beginning(lying: MadeUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = lying.explore().stats
    monkeypatch.setattr(LocalCheckers, "batch", 7)
    in_batches = MadeUp(tmp_path / "batches", written(lies_from=4), told()).explore(checkers=2).stats
    assert {mark.name: mark.broken for mark in at_once.marks} == {mark.name: mark.broken for mark in in_batches.marks}


def test_a_lying_disk_is_found_and_blamed(lying: MadeUp) -> None:
    (group,) = [one for one in lying.explore().stats.failures() if one.damage == STALE]
    blame = group.first.judgement.blame
    assert str(blame) == "the disks: disk0 acknowledged flushes and did not make the data durable"
    assert [one.operation.place for one in group.first.judgement.missing] == [0]


def test_an_async_export_is_measured(tmp_path: Path) -> None:
    late = told()
    early = type(late)(one._replace(ended_ns=one.issued_ns + 1) for one in late.operations)
    stats = MadeUp(tmp_path / "async", written(), early, sync=False).explore().stats
    assert not stats.broken
    assert stats.loss is not None
    assert stats.loss.operations


def test_a_check_that_comes_to_no_end_is_taken_once_more_and_told(honest: MadeUp) -> None:
    honest.silent = (3, 7)
    stats = honest.explore().stats
    assert (stats.broken, stats.wedged) == (0, 0)
    assert [said.partition(": ")[2] for said in stats.hung] == ["mount: no answer in time"] * 2


def test_a_state_of_which_no_check_comes_to_an_end_is_broken(honest: MadeUp) -> None:
    honest.silent = (3, 4)
    stats = honest.explore().stats
    assert stats.wedged == 1
    assert stats.broken
    assert {damage.end for damage in stats.groups} == {"wedged"}
    assert len(stats.hung) == 1


def test_an_exploration_goes_on_where_it_was_stopped(honest: MadeUp) -> None:
    honest.explore(states=40)
    with (honest.folder / "states.jsonl").open("ab") as file:
        file.write(b'{"what":"state","state":"[3')
    stats = honest.explore().stats
    whole = MadeUp(honest.folder / "whole", written(), told()).explore().stats
    assert {mark.name for mark in stats.marks} == {mark.name for mark in whole.marks}
    assert stats.judged == whole.judged
    assert 0 <= whole.checked + whole.cold.checked - honest.checks <= FIRST
    lines = list(lines_of(honest.folder / "states.jsonl"))
    checked = [line.digest for line in lines if line.observation is not None]
    assert len(checked) <= len(set(checked)) + FIRST


def test_to_go_on_with_fewer_states_than_were_judged_boots_nothing(honest: MadeUp) -> None:
    before = honest.explore(states=40).stats
    checkers = len(honest.checkers)
    again = honest.explore(states=10).stats
    assert (again.judged, again.marks) == (before.judged, before.marks)
    assert len(honest.checkers) == checkers


def test_two_do_not_write_one_journal(honest: MadeUp) -> None:
    with closing(honest.begin().journal):
        before = (honest.folder / "states.jsonl").read_bytes()
        with pytest.raises(RequestError, match="another exploration is writing") as refused:
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
    with pytest.raises(RequestError, match="jsonl:5: "):
        honest.begin()


def test_what_reuse_hides_is_found(honest: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLD_EVERY", 5)
    honest.cold_differs = True
    cold = honest.explore().stats.cold
    assert cold.checked >= 2
    assert len(cold.differing) == cold.checked


def test_without_cold_checks_no_further_machine_boots(honest: MadeUp) -> None:
    honest.cold_differs = True
    exploration = honest.begin(cold=False)
    with closing(exploration.journal), exploration:
        exploration.run(Budget(5))
    assert exploration.stats.judged == 5
    assert not exploration.stats.cold.checked


def test_reuse_that_hides_nothing(honest: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLD_EVERY", 5)
    cold = honest.explore().stats.cold
    assert cold.checked >= 2
    assert not cold.differing


def test_a_checker_that_fails_once_is_replaced(honest: MadeUp) -> None:
    def fail_once(number: int) -> None:
        if number == 5 and len(honest.checkers) == 1:
            raise RigError("gone")

    honest.before_check = fail_once
    stats = honest.explore().stats
    assert len(honest.checkers) == 2
    assert not stats.broken


def test_a_checker_that_goes_on_failing_ends_it(honest: MadeUp) -> None:
    def fail(number: int) -> None:
        if number == 5 or len(honest.checkers) > 1:
            raise RigError("gone")

    honest.before_check = fail
    with pytest.raises(RigError, match="gone"):
        honest.explore()
    lines = list(lines_of(honest.folder / "states.jsonl"))
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
    assert exploration.stats.judged >= 4
    honest.before_check = lambda _: None
    assert honest.explore().stats.judged == len(exploration.choices.order)


def test_time_that_is_up_is_said(honest: MadeUp) -> None:
    exploration = honest.begin()
    with exploration:
        exploration.run(Budget(None, minutes=0))
    assert exploration.out_of_time
    assert not exploration.stats.judged


@pytest.mark.parametrize("broken", [1, 3])
def test_enough_broken_states_end_the_checks(lying: MadeUp, broken: int) -> None:
    exploration = lying.begin()
    with closing(exploration.journal), exploration:
        exploration.run(Budget(None, broken=broken))
    assert exploration.enough_broken
    assert broken <= exploration.stats.broken
    # Those that were requested before the last of them was judged are counted, too.
    assert exploration.stats.judged < len(exploration.choices.order)


def test_states_without_a_failure_are_all_checked(honest: MadeUp) -> None:
    exploration = honest.begin()
    with closing(exploration.journal), exploration:
        exploration.run(Budget(None, broken=1))
    assert not exploration.enough_broken
    assert exploration.stats.judged == len(exploration.choices.order)


class Clock:
    """Stands for `Deadline`: each check of a made-up run's checkers takes a second."""

    def __init__(self, made_up: MadeUp, seconds: float) -> None:
        self.made_up = made_up
        self.at = made_up.checks + seconds

    @property
    def passed(self) -> bool:
        return self.made_up.checks >= self.at

    @property
    def remaining_s(self) -> float:
        return max(self.at - self.made_up.checks, 0)


def said_of(made_up: MadeUp, monkeypatch: pytest.MonkeyPatch, budget: Budget) -> list[str]:
    """Return what is said of each judged state."""
    said: list[str] = []
    monkeypatch.setattr(module, "Deadline", SimpleNamespace(after=lambda seconds: Clock(made_up, seconds)))
    monkeypatch.setattr(module, "SHOWN_EVERY_S", (0.0, 0.0))
    monkeypatch.setattr(module, "step", said.append)
    exploration = made_up.begin()
    with closing(exploration.journal), exploration:
        exploration.run(budget)
    return [line for line in said if line.startswith("crash states")]


@pytest.mark.parametrize("minutes", [None, 10])
def test_how_many_states_there_are_to_be_is_told(
    honest: MadeUp, monkeypatch: pytest.MonkeyPatch, minutes: int | None
) -> None:
    said = said_of(honest, monkeypatch, Budget(30, minutes=minutes))
    assert len(said) == 30
    assert all(" of 30 judged, " in line and line.endswith(" s left") for line in said)


def test_checked_states_without_a_verdict_count_for_the_rate(honest: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    exploration = honest.begin()
    with closing(exploration.journal), exploration:
        exploration.run(Budget(10))
        monkeypatch.setattr(exploration.checkers, "unproved", 20)
        said = list(exploration._progress.words(60.0))
    assert "30 a minute" in said
    assert said[-1] == "about 0 s left"
    assert "20 of them checked, and judged after a proof of their worker" in said


@pytest.mark.parametrize(("lies_from", "seconds"), [(12, 60), (1, 40)])
def test_how_long_it_searches_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lies_from: int, seconds: int
) -> None:
    made_up = MadeUp(tmp_path / "run", written(12, lies_from=lies_from), told(12))
    said = said_of(made_up, monkeypatch, Budget(None, minutes=1))
    left = [int(line.rpartition("about ")[2].split()[0]) for line in said]
    assert not any(" of " in line for line in said)
    assert left[-20:] == sorted(left[-20:], reverse=True)
    assert left[-1] == 0
    # What is under way ends; a state that is broken is checked at twice.
    assert made_up.checks <= seconds + 2 * QUEUE


def checks_in_a_minute(made_up: MadeUp, monkeypatch: pytest.MonkeyPatch) -> int:
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
    # The checker still carries out the jobs in its queue, and checks the file system of each content that breaks.
    assert 60 <= checks_in_a_minute(honest, monkeypatch) <= 60 + QUEUE
    assert 40 <= checks_in_a_minute(lying, monkeypatch) <= 40 + 2 * QUEUE


def test_rows_that_md_would_resync_are_counted(tmp_path: Path) -> None:
    stats = mirrored(tmp_path / "mirror", 0).explore().stats
    counted = stats.redundancy
    assert counted.checked + sum(counted.unchecked.values()) == stats.judged
    assert 0 < counted.differing < counted.checked
    assert not counted.unmarked
    assert not stats.broken


def test_what_could_have_been_lost_is_counted_by_kind(honest: MadeUp, tmp_path: Path) -> None:
    assert honest.explore().stats.tested == {"fsync": 4}
    assert MadeUp(tmp_path / "silent", written(), told(0)).explore().stats.tested == {"fsync": 0}


def test_a_close_that_may_promise_nothing_is_left_open(tmp_path: Path) -> None:
    one = MadeUp(tmp_path / "close", written(lies_from=4), told())
    closes = (operation._replace(kind="close") for operation in told().operations)
    conditions = Conditions(export_sync=True, delegations=True)
    one.oracle = replace(one.oracle, history=History(closes), conditions=conditions)
    stats = one.explore().stats
    assert (stats.broken, stats.loss) == (0, None)
    assert stats.undecided is not None
    assert "under a write delegation" in stats.undecided.reason


def test_the_file_systems_checker_checks_a_sample_and_at_what_is_broken(honest: MadeUp, lying: MadeUp) -> None:
    sampled = honest.explore().stats
    assert 0 < sampled.filesystems < sampled.checked
    stats = lying.explore().stats
    assert stats.broken
    digests = {line.digest: line.observation for line in lines_of(lying.folder / "states.jsonl") if line.observation}
    assert stats.filesystems == sum(seen.filesystem is not None for seen in digests.values())
    broken = {mark.name for mark in stats.marks if mark.broken}
    failing = {line.digest for line in lines_of(lying.folder / "states.jsonl") if line.crash.name in broken}
    assert all(digests[digest].filesystem is not None for digest in failing)
    assert {group.damage for group in stats.failures()} == {STALE}


def test_damage_that_it_sees_in_the_sample_is_found(honest: MadeUp) -> None:
    honest.fsck = lambda _: FilesystemCheck(outcome="corrupt", status=1, reasons=("agf 0: bad",))
    stats = honest.explore().stats
    assert [group.damage.promise for group in stats.failures()] == [FILESYSTEM]


def test_a_member_that_md_goes_on_without_is_found(honest: MadeUp) -> None:
    honest.degraded = lambda block: {"/dev/md0": 1} if block == 2 else {}
    stats = honest.explore().stats
    assert [group.damage.promise for group in stats.failures()] == [DEGRADED]
    assert 0 < stats.broken < stats.judged


def test_the_table_of_verdicts_does_not_depend_on_checkers_or_interruptions(lying: MadeUp, tmp_path: Path) -> None:
    several = MadeUp(tmp_path / "several", written(lies_from=4), told())
    several.explore(states=40, checkers=2)
    several.explore(checkers=3)
    stats = lying.explore().stats
    table = (lying.folder / "verdicts.csv").read_text()
    assert table == (several.folder / "verdicts.csv").read_text()
    rows = list(csv.DictReader(table.splitlines()))
    assert len(rows) == stats.judged
    assert sum(row["outcome"] == "FAIL" for row in rows) == stats.broken > 0
    assert all(bool(row["broken"]) == (row["outcome"] == "FAIL") for row in rows)
