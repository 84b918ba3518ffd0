from pathlib import Path

import pytest

from raidproof.crash.states import CrashState, Survivor
from raidproof.disk.writelog import Flag
from raidproof.record.exploration import Rows
from raidproof.storage.array.striping import ROW
from tests.crash.mirror import DATA, PAGE, MirrorRun

CHANGED = b"y" * ROW
FUA = int(Flag.FUA)


@pytest.fixture
def run(tmp_path: Path) -> MirrorRun:
    """Return a mirror with a clean bitmap: whatever differs in it would stay so."""
    run = MirrorRun(tmp_path / "log")
    run.create_with_bitmap()
    return run


def seen(run: MirrorRun, *survivors: int) -> Rows:
    run.judged(None, *survivors)
    return run.redundancy.rows(run.state)


def written(run: MirrorRun, *data: bytes | None) -> None:
    """Write one page to both members, or nothing to one of them."""
    for member, page in enumerate(data):
        if page is not None:
            run.write(member, DATA, page, FUA)


def test_a_page_that_changed_between_its_copies_is_a_class_of_its_own(run: MirrorRun) -> None:
    written(run, PAGE, CHANGED)
    found = seen(run)
    assert (found.differ, found.changed, found.unmarked) == (1, 1, 0)


def test_also_after_earlier_writes_and_in_whichever_order(run: MirrorRun) -> None:
    written(run, PAGE, PAGE)
    run.write(1, DATA, CHANGED, FUA)
    run.write(0, DATA, PAGE, FUA)
    assert seen(run).changed == 1


def test_a_copy_that_was_never_written_is_not(run: MirrorRun) -> None:
    written(run, PAGE, None)
    found = seen(run)
    assert (found.changed, found.unmarked) == (0, 1)


def test_a_copy_that_missed_the_last_write_is_not(run: MirrorRun) -> None:
    written(run, PAGE, PAGE)
    written(run, CHANGED, None)
    found = seen(run)
    assert (found.changed, found.unmarked) == (0, 1)


def test_a_copy_that_lost_the_last_write_is_not(run: MirrorRun) -> None:
    written(run, PAGE, PAGE)
    run.write(0, DATA, CHANGED)
    run.write(1, DATA, CHANGED)
    run.judged()
    cut = len(run.window.recording.records)
    found = run.redundancy.rows(CrashState(cut, (Survivor(cut - 2),)))
    assert (found.differ, found.changed, found.unmarked) == (1, 0, 1)
