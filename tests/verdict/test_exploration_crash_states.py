from collections.abc import Sequence
from dataclasses import replace
from errno import EIO, ENOSPC
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.core.errors import RigError
from raidproof.disk.writelog import Flag, Kind
from raidproof.fault import FaultEffects
from raidproof.fault.array import WRITE_HOLE
from raidproof.guest.ledger_format import ABSENT, MISPLACED, UNREADABLE, torn
from raidproof.record.exploration import End, Observation, Rows, ThroughNfsd
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.storage.array.lvm import LvmSpec
from raidproof.storage.array.md import MdSpec
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.blame import Lies
from raidproof.verdict.checks.age import OLDER
from raidproof.verdict.checks.blocks import BLOCKS
from raidproof.verdict.checks.crash_state import DEGRADED, FILESYSTEM, NFSD, REDUNDANCY
from raidproof.verdict.checks.invented import INVENTED
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.crash_states import RECOVERY
from raidproof.verdict.damage import Damage
from raidproof.verdict.oracle import Oracle, incomplete_ns
from raidproof.verdict.window import Window
from raidproof.workload.history import Ended, History, Operation, WorkerSpec
from tests.crash.conftest import Did, write_log

STACK = Blame(culprit=Culprit.STACK, detail="no option and no injected fault explains the failure")
ROT = Blame(culprit=Culprit.DISKS, cause=Cause.CHANGED_CONTENT, detail="rot")
FILE = WorkerSpec(number=0, client="client1", kind="fsync", path="f", file=0, blocks=2)
NAMES = WorkerSpec(number=1, client="client2", kind="metadata", path="m", file=1, blocks=2)


def wrote(place: int, generation: int, at_ns: int, ended: Ended = Ended.OK) -> Operation:
    return Operation(0, at_ns, "fsync", place, generation, at_ns - 50, at_ns, ended, 0)


HISTORY = History([wrote(0, 1, 100), wrote(1, 1, 200), wrote(0, 2, 300)])


def oracle(history: History = HISTORY, *, workers: Sequence[WorkerSpec] = (FILE,), **conditions: Any) -> Oracle:
    return Oracle(tuple(workers), history, Conditions(export_sync=True, **conditions), created_ns=10)


def read(*blocks: int, **changes: Any) -> Observation:
    return Observation(end=End.READ, found={"f@0": {"blocks": list(blocks), "names": ["f"]}}, **changes)


@pytest.mark.parametrize(
    ("blocks", "instant", "lost"),
    [
        ((0, 0), 100, 0),
        ((0, 0), 101, 1),
        ((1, 0), 200, 0),
        ((1, 0), 201, 1),
        ((1, 1), 300, 0),
        ((1, 1), 301, 1),
        ((2, 1), 301, 0),
    ],
)
def test_only_what_was_told_by_then_must_be_there(blocks: tuple[int, ...], instant: int, lost: int) -> None:
    judged = oracle().judge(read(*blocks), instant)
    assert len(judged.missing) == lost
    assert judged.broken == bool(lost)


def test_what_is_missing_is_named_and_the_earliest_comes_first() -> None:
    judged = oracle().judge(read(0, 0), 1000)
    assert [(one.operation.place, one.operation.generation, one.what) for one in judged.missing] == [
        (0, 1, "the block is missing"),
        (1, 1, "the block is missing"),
        (0, 2, "the block is missing"),
    ]
    assert judged.damages == (Damage("write + fsync", "the block is missing", "read"),)
    assert judged.lost_s(1000) == pytest.approx(900e-9)
    assert judged.lost_bytes == 3 * 4096


def test_a_state_shows_the_losses_of_the_clients_that_had_worked_by_then() -> None:
    history = History([*HISTORY.operations, Operation(1, 0, "mkdir", 0, 1, 150, 200, Ended.OK, 0)])
    seen = Observation(
        end=End.READ, found={"f@0": {"blocks": [1, 0], "names": ["f"]}, "m": {"d0": [0o40755, 0, 2, None]}}
    )
    both = oracle(history, workers=[FILE, NAMES])
    groups = [both.judge(seen, instant).shown for instant in (100, 101, 201)]
    assert groups == [set(), {("client1", "fsync")}, {("client1", "fsync"), ("client2", "metadata")}]


def test_each_damage_is_shown_by_lines_of_its_own() -> None:
    history = History([*HISTORY.operations, Operation(1, 0, "mkdir", 0, 1, 50, 100, Ended.OK, 0)])
    found = {"f@0": {"blocks": [0, 1], "names": ["f", "g"]}, "m": {}}
    alarm = "corruption: XFS (md0): Metadata corruption"
    seen = Observation(end=End.READ, found=found, console=(alarm,), rows=Rows(differ=3, unmarked=1, first="row 7"))
    judged = oracle(history, workers=[FILE, NAMES]).judge(seen, 250)
    assert {one.promise: judged.lines(one) for one in judged.damages} == {
        "write + fsync": ("f: fsync of block 0 (generation 1): the block is missing",),
        "mkdir": ("m: mkdir of directory d0 (generation 1): the directory is missing",),
        INVENTED: ("f/g: a file that no client wrote",),
        "kernel log": (alarm,),
        REDUNDANCY: (
            "copies or parity are inconsistent, and md would not resync them: 1 of 3 inconsistent rows, the first "
            "is row 7",
        ),
    }


def test_generations_are_one_kind_of_damage() -> None:
    judged = oracle().judge(read(1, 1), 1000)
    assert judged.damages == (Damage("write + fsync", "the block has an older generation", "read"),)


def test_a_torn_overwrite_is_excused_in_torn_states_alone() -> None:
    assert not oracle().judge(read(torn(1, 2), 1), 299, torn=True).broken
    assert oracle().judge(read(torn(1, 2), 1), 299).broken


def test_a_file_system_that_tears_writes_does_so_in_each_state() -> None:
    tearing = oracle(torn=True)
    assert not tearing.judge(read(torn(1, 2), 1), 299).broken
    assert not tearing.judge(read(torn(1, 2), 1), 299, torn=True, torn_blocks=frozenset()).broken
    assert tearing.judge(read(torn(1, 2), 1), 1000).broken


def test_garbage_where_nothing_had_been_told_is_damage_too() -> None:
    judged = oracle().judge(read(MISPLACED, 0), 60)
    assert judged.damages == (Damage(BLOCKS, "misplaced", "read"),)
    assert judged.lines(judged.damages[0]) == ("f: block 0 holds a block that was written to another place",)


def test_disks_that_had_lied_by_then_are_to_blame(tmp_path: Path) -> None:
    done = (Did(Kind.WRITE, 1), Did(Kind.FLUSH, 1, flags=int(Flag.LIED)), Did(Kind.WRITE))
    log = write_log(tmp_path / "write.log", done)
    assert oracle().judge(read(0, 0), 1000).blame == STACK
    lies = Lies(list(log), log.members)
    lies.go(3)
    blame = oracle().judge(read(0, 0), 1000, lost=lies.lost()).blame
    assert blame is not None
    assert (blame.cause, blame.members) == (Cause.LOST_FLUSHES, ("disk1",))


@pytest.mark.parametrize(
    "one",
    [
        replace(oracle(explanation=ROT), explained_ns=250),
        replace(oracle(corrupted_by=ROT), corrupted_ns=250),
    ],
)
def test_what_was_not_wrong_yet_is_not_to_blame(one: Oracle) -> None:
    assert one.judge(read(0, 0), 250).blame == ROT
    assert one.judge(read(0, 0), 249).blame == STACK
    assert one.judge(Observation(end=End.NOT_MOUNTED), 249).blame == Blame(culprit=Culprit.STACK)


def test_an_async_export_is_measured_and_not_blamed() -> None:
    judged = Oracle((FILE,), HISTORY, Conditions(export_sync=False), created_ns=0).judge(read(0, 0), 1000)
    assert judged.outcome is Outcome.PASS
    assert judged.damages == ()
    assert len(judged.missing) == 3
    assert (judged.excused, judged.undecided) == (True, False)


def test_an_async_export_excuses_a_promise_whose_name_has_a_comma() -> None:
    history = History([wrote(0, 1, 100)._replace(kind="punch")])
    judged = Oracle((FILE,), history, Conditions(export_sync=False), created_ns=0).judge(read(0, 0), 1000)
    assert (judged.outcome, judged.excused) == (Outcome.PASS, True)


def test_a_close_that_may_promise_nothing_is_neither_excused_nor_broken() -> None:
    closing = FILE.model_copy(update={"kind": "close"})
    history = History([wrote(0, 1, 100)._replace(kind="close")])
    seen = Observation(end=End.READ, found={"f": {"blocks": [0, 0], "names": ["f0"]}})
    judged = oracle(history, workers=[closing], delegations=True).judge(seen, 1000)
    assert (judged.outcome, judged.excused, judged.undecided) == (Outcome.INCONCLUSIVE, False, True)
    assert "under a write delegation" in judged.reason
    broken = oracle(history, workers=[closing], delegations=False).judge(seen, 1000)
    assert (broken.outcome, broken.excused, broken.undecided) == (Outcome.FAIL, False, False)


def test_an_async_export_does_not_excuse_what_the_kernel_had_to_have_written() -> None:
    conditions = Conditions(export_sync=False, write_back_s=1e-6)
    one = Oracle((FILE,), HISTORY, conditions, created_ns=0)
    assert one.judge(read(0, 0), 1000).excused
    judged = one.judge(read(0, 0), 1250)
    what = "an operation is missing although its write-back was due before the cut"
    assert judged.damages == (Damage(OLDER, what, "read"),)
    assert judged.lines(judged.damages[0]) == (
        "f: fsync of block 0 (generation 1): the block is missing",
        "f: fsync of block 1 (generation 1): the block is missing",
    )


def test_a_client_that_still_had_its_power_could_tell() -> None:
    seen = Observation(end=End.READ, found={"f@0": {"blocks": [0, 7], "names": ["f"]}})
    one = replace(oracle(), disconnected_clients=("client1",), disconnected_ns=60)
    assert one.judge(seen, 59).broken
    assert not one.judge(seen, 60).broken


def test_what_nobody_wrote_is_found() -> None:
    found = {"f@0": {"blocks": [0, 0], "names": ["f", "g"]}}
    judged = oracle().judge(Observation(end=End.READ, found=found), 60)
    assert [one.promise for one in judged.damages] == [INVENTED]


def test_alarms_and_nfsd_count_beside_the_ledger() -> None:
    alarm = "corruption: XFS (md0): Metadata corruption detected at xfs_agf_verify"
    judged = oracle().judge(read(2, 1, console=(alarm,), through_nfsd=ThroughNfsd.DIFFERENT), 1000)
    assert [one.promise for one in judged.damages] == ["kernel log", NFSD]
    assert judged.damages[0].what == "corruption"
    assert judged.outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("seen", "broken", "silent"),
    [
        (read(2, 1), False, False),
        (read(0, 1), True, True),
        (read(torn(1, 2), 1), True, True),
        (read(UNREADABLE, 1), True, False),
        (read(0, 1, console=("I/O error: Buffer I/O error on dev md0",)), True, False),
        (read(2, 1, rows=Rows(differ=1, unmarked=1)), True, False),
        (read(0, 1, refused="mdadm: failed to RUN_ARRAY"), True, True),
        (Observation(end=End.NOT_ASSEMBLED, said="mdadm: failed"), True, False),
        (Observation(end=End.NOT_MOUNTED, said="mount: bad superblock"), True, False),
    ],
)
def test_a_loss_is_silent_if_nothing_reports_an_error(seen: Observation, broken: bool, silent: bool) -> None:
    judged = oracle().judge(seen, 1000)
    assert (judged.broken, judged.silent) == (broken, silent)


def test_a_message_about_the_lost_member_alone_reports_no_damage() -> None:
    line = "corruption: device-mapper: raid: Failed to read superblock of device at position 1"
    other = "corruption: XFS (dm-100): Corruption detected. Unmount and run xfs_repair"
    assert oracle().judge(read(2, 1, console=(line,)), 1000).broken
    lost = replace(oracle(), expected=LvmSpec.lost)
    assert not lost.judge(read(2, 1, console=(line,)), 1000).broken
    assert lost.judge(read(0, 1, console=(line,)), 1000).silent
    assert not lost.judge(read(0, 1, console=(line, other)), 1000).silent


@pytest.mark.parametrize(
    "line",
    [
        "error: md/raid:md0: cannot start dirty degraded array.",
        "error: md/raid:md0: starting dirty degraded array - data corruption possible.",
    ],
)
def test_md_names_an_array_that_is_dirty_without_the_lost_member(line: str) -> None:
    assert oracle().judge(read(2, 1, console=(line,)), 1000).broken
    assert not replace(oracle(), expected=MdSpec.lost).judge(read(2, 1, console=(line,)), 1000).broken


def test_an_array_that_was_refused_and_started_nevertheless_is_to_blame_for_its_losses() -> None:
    refused = oracle().judge(read(0, 1, refused="mdadm: failed to RUN_ARRAY"), 1000)
    assert (refused.outcome, refused.blame) == (Outcome.FAIL, WRITE_HOLE)
    assert oracle().judge(read(0, 1), 1000).blame == STACK


def test_a_member_that_md_throws_out_is_damage() -> None:
    judged = oracle().judge(read(2, 1, degraded={"/dev/md0": 1}), 1000)
    assert judged.damages == (Damage(DEGRADED, "md assembled a degraded array", "read"),)
    assert judged.lines(judged.damages[0]) == ("md assembled a degraded array: /dev/md0 lacks 1 member",)


def test_a_member_that_had_been_lost_before_is_none() -> None:
    one = replace(oracle(), incomplete_ns=500)
    assert one.judge(read(2, 1, degraded={"/dev/md0": 1}), 499).broken
    assert not one.judge(read(2, 1, degraded={"/dev/md0": 1}), 500).broken


MISSING = {"fault": "member-fails", "target": "disk1", "proof": "", "effects": {"member_missing": True}}


@pytest.mark.parametrize(
    ("changes", "since"),
    [
        ({}, None),
        ({"fault": "member-fails"}, 70),
        ({"during": [{"fault": "degraded", "target": "server", "proof": ""}]}, 0),
        ({"effects": {}, "during": [MISSING | {"begun_ns": 50}]}, 50),
        ({"effects": {"member_missing": True}, "during": [MISSING | {"begun_ns": 90}]}, 70),
        ({"effective": {"array": {"devices": [{"degraded": 1}]}}}, 0),
        ({"effective": {"array": {"devices": [{"degraded": 0}]}}}, None),
    ],
)
def test_since_when_an_array_may_lack_a_member(changes: dict[str, Any], since: int | None) -> None:
    fields = {"name": "x", "title": "x", "asked": {}, "cache_mode": "volatile", "fault": "power-cut", "seed": 1}
    assert incomplete_ns(CrashTestRecord(**{**fields, "fault_begun_ns": 70, **changes})) == since


def test_damage_that_only_the_file_systems_checker_sees_is_damage() -> None:
    corrupt = FilesystemCheck(outcome="corrupt", status=1, reasons=("agf 0: bad",))
    judged = oracle().judge(read(2, 1, filesystem=corrupt), 1000)
    assert judged.damages == (Damage(FILESYSTEM, "the file system's checker (fsck) reports corrupt", "read"),)
    assert judged.lines(judged.damages[0]) == ("the file system's checker (fsck) reports corrupt: agf 0: bad",)
    assert not oracle().judge(read(2, 1, filesystem=FilesystemCheck(outcome="clean", status=0)), 1000).broken


def test_rows_that_md_would_leave_as_they_are_break_a_promise_of_md() -> None:
    judged = oracle().judge(read(2, 1, rows=Rows(differ=3, unmarked=1, first="row 7 (array byte 28672)")), 1000)
    assert judged.damages == (
        Damage(REDUNDANCY, "copies or parity are inconsistent, and md would not resync them", "read"),
    )
    assert "1 of 3 inconsistent rows, the first is row 7" in judged.reason
    assert judged.blame == Blame(culprit=Culprit.STACK)


def test_rows_that_were_not_written_break_a_promise_even_if_md_would_resync_them() -> None:
    judged = oracle().judge(read(2, 1, rows=Rows(differ=3, settled=2, first="row 7 (array byte 28672)")), 1000)
    what = "copies or parity were not written: rows are inconsistent although no write was in progress"
    assert judged.damages == (Damage(REDUNDANCY, what, "read"),)
    assert "2 of 3 inconsistent rows, the first is row 7" in judged.reason
    assert judged.blame == Blame(culprit=Culprit.STACK)


@pytest.mark.parametrize("rows", [Rows(differ=3), Rows(differ=3, uneven=1), Rows(unchecked="degraded"), None])
def test_a_resync_that_is_due_breaks_none(rows: Rows | None) -> None:
    assert not oracle().judge(read(2, 1, rows=rows), 1000).broken


@pytest.mark.parametrize("end", [End.NOT_ASSEMBLED, End.NOT_MOUNTED])
@pytest.mark.parametrize("sync", [True, False])
def test_what_does_not_come_back_is_lost_whatever_the_export(end: End, sync: bool) -> None:
    one = Oracle((FILE,), HISTORY, Conditions(export_sync=sync), created_ns=10)
    judged = one.judge(Observation(end=end, said="bad superblock"), 250)
    assert judged.broken
    assert judged.damages == (Damage(RECOVERY, end.value.replace("-", " "), end.value),)
    assert "all 2 acknowledged operations are lost" in judged.reason
    assert judged.lines(judged.damages[0]) == (f"{end.value}: bad superblock",)
    assert len(judged.missing) == 2


def test_before_the_first_word_the_file_system_itself_was_promised() -> None:
    judged = oracle().judge(Observation(end=End.NOT_MOUNTED, said="bad superblock"), 50)
    assert judged.broken
    assert "array and file system were created and synced" in judged.reason


def test_while_it_is_created_nothing_was_promised_but_nothing_may_hang() -> None:
    assert oracle().judge(Observation(end=End.NOT_MOUNTED), 5).outcome is Outcome.INCONCLUSIVE
    assert oracle().judge(Observation(end=End.WEDGED, said="mount: no answer"), 5).broken


def test_a_read_without_a_scan_is_the_rigs() -> None:
    with pytest.raises(RigError):
        oracle().judge(Observation(end=End.READ), 5)


def test_names_are_told_by_what_was_done_to_them() -> None:
    history = History([Operation(1, 0, "mkdir", 0, 1, 50, 100, Ended.OK, 0)])
    judged = oracle(history, workers=[NAMES]).judge(Observation(end=End.READ, found={"m": {}}), 200)
    assert judged.damages == (Damage("mkdir", "the directory is missing", "read"),)


@pytest.mark.parametrize("begun_ns", [0, 70])
def test_what_ended_with_an_error_that_the_run_allows_may_be_done_all_the_same(begun_ns: int) -> None:
    def fault(error: int) -> tuple[Window, ...]:
        return (Window(FaultEffects(errors=frozenset({error})), begun_ns),)

    history = History([Operation(1, 0, "mkdir", 0, 1, 50, 100, Ended.FAILED, EIO)])
    seen = Observation(end=End.READ, found={"m": {"d0": [0o40755, 0, 2, None]}})
    assert not oracle(history, workers=[NAMES], windows=fault(EIO)).judge(seen, 200).damages
    judged = oracle(history, workers=[NAMES], windows=fault(ENOSPC)).judge(seen, 200)
    assert [one.promise for one in judged.damages] == [INVENTED]


@pytest.mark.parametrize(
    ("late_ns", "stamped", "broken"),
    [(300_000_000, False, False), (2_000_000_000, False, True), (5_000_000, True, False), (50_000_000, True, True)],
)
def test_only_what_may_have_begun_before_the_cut_may_be_there(late_ns: int, stamped: bool, broken: bool) -> None:
    # A report may be late by two lost packets; the client's own stamp by what the fastest of them took.
    begun = wrote(0, 3, 1000 + late_ns)._replace(ended=Ended.UNKNOWN, ended_ns=None)
    begun = begun._replace(begun_ns=begun.issued_ns if stamped else None)
    judged = oracle(History([*HISTORY.operations, begun])).judge(read(3, 1), 1000)
    assert judged.broken == broken


@given(st.lists(st.integers(ABSENT, 3), min_size=2, max_size=2), st.integers(0, 400))
def test_a_state_is_broken_if_and_only_if_it_has_a_damage(blocks: list[int], instant: int) -> None:
    judged = oracle().judge(read(*blocks), instant)
    assert judged.broken == bool(judged.damages)
    assert all(judged.lines(damage) for damage in judged.damages)
    required = {one.place: one.generation for one in HISTORY.acknowledged(instant)}
    if all(blocks[place] >= 0 and blocks[place] >= generation for place, generation in required.items()) and all(
        blocks[place] <= newest for place, newest in ((0, 2), (1, 1))
    ):
        assert not judged.broken


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3), st.integers(1, 9)), max_size=6),
    st.lists(st.integers(ABSENT, 3), min_size=2, max_size=2),
    st.integers(0, 500),
    st.integers(0, 500),
)
def test_at_equal_moments_a_judgement_without_missing_operations_is_equal(
    written: list[tuple[int, int, int]], blocks: list[int], one_ns: int, other_ns: int
) -> None:
    history = History([wrote(place, generation, 50 * at) for place, generation, at in written])
    judge = replace(oracle(history), explained_ns=120, corrupted_ns=220, incomplete_ns=320)
    if judge.moment(one_ns) == judge.moment(other_ns):
        seen = read(*blocks, degraded={"md0": 1})
        one, other = judge.judge(seen, one_ns), judge.judge(seen, other_ns)
        assert bool(one.missing) == bool(other.missing)
        assert one == other or one.missing


def test_a_limit_between_two_instants_makes_their_moments_differ() -> None:
    judge = replace(oracle(History([])), explained_ns=120, corrupted_ns=140, incomplete_ns=160, disconnected_ns=180)
    moments = [judge.moment(at_ns) for at_ns in (9, 10, 119, 120, 139, 140, 159, 160, 179, 180)]
    assert [one == other for one, other in pairwise(moments)] == [False, *[True, False] * 4]
