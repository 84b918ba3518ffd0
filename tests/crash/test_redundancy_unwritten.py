"""Rows of which a copy was never written, by the write log of a whole crash test."""

from pathlib import Path

from raidproof.crash.redundancy import MOST_DESCRIBED, SETTLED_NS, never_written
from raidproof.storage.array import MdSpec
from raidproof.storage.array.striping import ROW
from tests.crash.mirror import DATA, PAGE, MirrorRun

ARRAY = MdSpec(level="1", members=("disk0", "disk1"))


def written(log: Path, *rows: tuple[int, ...], wait_ns: int = 2 * SETTLED_NS) -> Path:
    """Write a log in which each row is written to these members, and return its path."""
    run = MirrorRun(log)
    run.create_with_bitmap(0)
    for row, members in enumerate(rows, 1):
        for member in members:
            run.write(member, DATA + row * ROW, PAGE)
    for member in (0, 1):
        run.flush(member)
    run.wait(wait_ns)
    run.recording()
    return log


def test_each_row_that_lacks_a_copy_is_described(tmp_path: Path) -> None:
    assert never_written(written(tmp_path / "log", (0, 1), (0,), (1, 0), (1,)), ARRAY) == [
        "row 2 (array byte 8192)",
        "row 4 (array byte 16384)",
    ]


def test_not_all_of_many_rows_are_described(tmp_path: Path) -> None:
    assert len(never_written(written(tmp_path / "log", *[(0,)] * (MOST_DESCRIBED + 2)), ARRAY) or ()) == MOST_DESCRIBED


def test_rows_with_all_copies_are_not(tmp_path: Path) -> None:
    assert never_written(written(tmp_path / "log", (0, 1), (1, 0)), ARRAY) == []


def test_a_copy_whose_write_may_be_in_progress_is_not_missing(tmp_path: Path) -> None:
    assert never_written(written(tmp_path / "log", (0,), wait_ns=SETTLED_NS // 2), ARRAY) == []


def test_without_a_log_nothing_is_known(tmp_path: Path) -> None:
    assert never_written(tmp_path / "missing", ARRAY) is None
    (tmp_path / "empty").touch()
    assert never_written(tmp_path / "empty", ARRAY) is None
