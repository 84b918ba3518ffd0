from pathlib import Path

import pytest

from raidproof.crash.redundancy import SETTLED_NS, SEVERAL
from raidproof.crash.states import CrashState, Survivor
from raidproof.disk.writelog import Flag
from raidproof.record.exploration import Rows
from raidproof.storage.array.striping import ROW
from raidproof.storage.array.superblock import IN_SYNC, OFFSET, Feature, parse_superblock
from tests.crash.md_members import packed, superblock
from tests.crash.mirror import DATA, MIRROR, PAGE, MirrorRun


@pytest.fixture
def run(tmp_path: Path) -> MirrorRun:
    return MirrorRun(tmp_path / "log")


def test_packed_superblocks_are_read_back() -> None:
    made = superblock(MIRROR, 1, uuid="61616161:61616161:61616161:61616161", name="")
    assert parse_superblock(packed(made)) == made


def test_before_there_is_an_array_nothing_is_checked(run: MirrorRun) -> None:
    run.write(0, DATA, PAGE)
    assert run.judged() == []
    assert "no member has a whole superblock" in str(run.redundancy.accuracy(run.state))


def test_open_writes_make_rows_differ_or_not(run: MirrorRun) -> None:
    run.create()
    run.write(0, DATA, PAGE)
    run.write(1, DATA, PAGE)
    assert run.judged(None, 2) == [0]
    assert not run.redundancy.accuracy(CrashState(4, (Survivor(2), Survivor(3)))).differ
    assert not run.redundancy.accuracy(CrashState(4)).differ


@pytest.mark.parametrize("steps", [True, False])
def test_durable_rows_that_no_open_write_touches_are_found(run: MirrorRun, steps: bool) -> None:
    run.create()
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    assert run.judged(steps=steps) == [3]
    assert not run.window.open


def test_rows_written_before_the_array_was_created_count(run: MirrorRun) -> None:
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    run.create()
    assert run.judged() == [3]


def test_rows_that_agree_again_are_forgotten(run: MirrorRun) -> None:
    run.create()
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    run.write(1, DATA + 3 * ROW, PAGE)
    run.flush(1)
    assert run.judged() == []


def test_forced_writes_count(run: MirrorRun) -> None:
    run.create()
    run.write(0, DATA + 4 * ROW, PAGE)
    run.write(0, DATA + 5 * ROW, PAGE, Flag.FUA)
    assert run.judged() == [5]


def test_another_array_on_the_same_members_is_checked_anew(run: MirrorRun) -> None:
    run.create()
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    run.create(letter=b"b")
    assert run.judged() == [3]


def test_what_md_would_not_know_is_a_broken_promise(run: MirrorRun) -> None:
    run.create(resync_offset=IN_SYNC)
    run.write(0, DATA, PAGE)
    run.flush(0)
    assert run.judged() == [0]
    assert not run.redundancy.accuracy(run.state).kept


def test_a_resync_that_is_due_is_none(run: MirrorRun) -> None:
    run.create()
    run.write(0, DATA, PAGE)
    run.flush(0)
    run.judged()
    assert run.redundancy.accuracy(run.state).kept


def different_and(run: MirrorRun) -> Rows:
    """Make one row durable on one member only, and return what is said of it."""
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    run.judged()
    return run.redundancy.rows(run.state)


def test_a_row_that_is_marked_will_be_put_right(run: MirrorRun) -> None:
    run.create_with_bitmap(0)
    assert different_and(run) == Rows(differ=1)


def test_a_row_whose_mark_was_cleared_will_not(run: MirrorRun) -> None:
    run.create_with_bitmap(0)
    run.mark()
    assert different_and(run) == Rows(differ=1, unmarked=1, first="row 3 (array byte 12288)")


def test_of_several_rows_the_first_is_told(run: MirrorRun) -> None:
    run.create_with_bitmap(0)
    run.mark()
    for row in (9, 5):
        run.write(0, DATA + row * ROW, PAGE)
        run.flush(0)
    assert different_and(run) == Rows(differ=3, unmarked=3, first="row 3 (array byte 12288)")


def test_a_row_that_one_member_has_marked_may_be(run: MirrorRun) -> None:
    run.create_with_bitmap(0)
    run.mark(members=(1,))
    assert different_and(run) == Rows(differ=1, uneven=1, first="row 3 (array byte 12288)")


def test_members_of_several_arrays_are_not_compared(run: MirrorRun) -> None:
    run.create()
    run.write(1, OFFSET, packed(superblock(MIRROR, 0), b"b" * 16), Flag.FUA)
    assert different_and(run) == Rows(unchecked=SEVERAL)


def test_what_was_written_during_a_reshape_is_checked_after_it(run: MirrorRun) -> None:
    run.create()
    run.create(features=Feature.RESHAPE)
    assert "reshaped" in (different_and(run).unchecked or "")


def test_rows_of_a_time_in_which_nothing_was_known_count(run: MirrorRun) -> None:
    run.create()
    run.create(features=Feature.RESHAPE)
    run.write(0, DATA + 5 * ROW, PAGE)
    run.flush(0)
    run.create()
    assert run.judged() == [5]


def half_written(run: MirrorRun, *, wait_ns: int) -> Rows:
    """Write a row to the first member only, and return what is said of it some time later."""
    run.create_with_bitmap(0)
    run.write(0, DATA + ROW, PAGE)
    run.flush(0)
    run.wait(wait_ns)
    run.judged()
    return run.redundancy.rows(run.state)


def test_a_copy_that_was_never_written_is_found_although_md_would_resync_it(run: MirrorRun) -> None:
    assert half_written(run, wait_ns=2 * SETTLED_NS) == Rows(differ=1, settled=1, first="row 1 (array byte 4096)")
    assert not run.redundancy.accuracy(run.state).kept


def test_a_copy_whose_write_may_still_come_is_not_missing(run: MirrorRun) -> None:
    assert half_written(run, wait_ns=SETTLED_NS // 2) == Rows(differ=1)


@pytest.mark.parametrize("steps", [True, False])
def test_a_copy_that_is_in_the_cache_of_its_member_is_not_missing(run: MirrorRun, steps: bool) -> None:
    run.create_with_bitmap(0)
    run.write(0, DATA + ROW, PAGE)
    run.write(1, DATA + ROW, PAGE)
    run.wait(2 * SETTLED_NS)  # flushes only the first member
    run.judged(steps=steps)
    assert run.redundancy.rows(run.state) == Rows(differ=1)


def test_copies_of_a_page_that_changed_under_write_back_are_not_missing(run: MirrorRun) -> None:
    run.create_with_bitmap(0)
    for member in (0, 1):
        run.write(member, DATA + ROW, bytes([member]) * ROW)
    run.flush(1)
    run.wait(2 * SETTLED_NS)
    run.judged()
    assert run.redundancy.rows(run.state) == Rows(differ=1, changed=1)


def test_a_missing_write_is_found_on_disks_with_old_data_too(tmp_path: Path) -> None:
    assert half_written(MirrorRun(tmp_path / "log", old=True), wait_ns=2 * SETTLED_NS).settled == 1


def test_rows_that_were_never_written_do_not_differ_by_old_data(tmp_path: Path) -> None:
    run = MirrorRun(tmp_path / "log", old=True)
    run.create_with_bitmap(0)
    for member in (0, 1):
        run.write(member, DATA + ROW, PAGE)
        run.flush(member)
    run.wait(2 * SETTLED_NS)
    run.judged()
    assert run.redundancy.rows(run.state) == Rows()
