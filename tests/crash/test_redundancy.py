from pathlib import Path

import pytest

from harness.crash.parity import ROW
from harness.crash.recording import Recording
from harness.crash.redundancy import Redundancy
from harness.crash.state import CrashState, Survivor
from harness.crash.striping import Striping
from harness.crash.superblock import IN_SYNC, OFFSET, parse_superblock
from harness.crash.window import Window
from harness.disk.cache import CacheMode
from harness.disk.writelog import Flag, Kind, LogWriter, MemberInfo, WriteLog
from tests.crash.md_members import packed, superblock

MIRROR = Striping(1, 0, 16 * ROW, 2, 16 * ROW)
DATA = 16384
PAGE = b"x" * ROW


class Run:
    """A mirror that is written: requests complete one after the other."""

    def __init__(self, path: Path) -> None:
        infos = [MemberInfo(f"disk{number}", DATA + 16 * ROW, *[CacheMode.VOLATILE] * 2) for number in range(2)]
        self._path = path
        self._log = LogWriter(path, infos, 0)
        self._at = 0

    def write(self, member: int, offset: int, data: bytes, flags: int = 0) -> None:
        self._at += 1000
        self._log.write(flags, member, offset, (self._at - 500, self._at), data)

    def flush(self, member: int) -> None:
        self._at += 1000
        self._log.note(Kind.FLUSH, 0, member, (0, 0), (self._at - 500, self._at))

    def create(self, resync_offset: int = 0, letter: bytes = b"a") -> None:
        for number in range(2):
            made = superblock(MIRROR, number, resync_offset=resync_offset)
            self.write(number, OFFSET, packed(made, letter * 16), Flag.FUA)

    def judged(self, cut: int | None = None, *survivors: int, steps: bool = True) -> list[int]:
        """Return the rows that differ in a state, looking at each cut on the way or at the last one only."""
        self._log.close(self._at)
        self.window = Window(Recording(WriteLog(self._path)))
        self.redundancy = Redundancy(self.window)
        last = len(self.window.recording.records) if cut is None else cut
        for place in range(last + 1) if steps else [last]:
            self.redundancy.moved(self.window.move(place))
        self.state = CrashState(last, tuple(map(Survivor, survivors)))
        return [one.row for one in self.redundancy.judge(self.state).differ]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "log")


def test_packed_superblocks_are_read_back() -> None:
    made = superblock(MIRROR, 1, uuid="61616161:61616161:61616161:61616161", name="")
    assert parse_superblock(packed(made)) == made


def test_before_there_is_an_array_nothing_is_checked(run: Run) -> None:
    run.write(0, DATA, PAGE)
    assert run.judged() == []
    assert "no member has a whole superblock" in str(run.redundancy.judge(run.state))


def test_open_writes_make_rows_differ_or_not(run: Run) -> None:
    run.create()
    run.write(0, DATA, PAGE)
    run.write(1, DATA, PAGE)
    assert run.judged(None, 2) == [0]
    assert not run.redundancy.judge(CrashState(4, (Survivor(2), Survivor(3)))).differ
    assert not run.redundancy.judge(CrashState(4)).differ


@pytest.mark.parametrize("steps", [True, False])
def test_durable_rows_that_no_open_write_touches_are_found(run: Run, steps: bool) -> None:
    run.create()
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    assert run.judged(steps=steps) == [3]
    assert not run.window.open


def test_rows_written_before_the_array_was_created_count(run: Run) -> None:
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    run.create()
    assert run.judged() == [3]


def test_rows_that_agree_again_are_forgotten(run: Run) -> None:
    run.create()
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    run.write(1, DATA + 3 * ROW, PAGE)
    run.flush(1)
    assert run.judged() == []


def test_forced_writes_count(run: Run) -> None:
    run.create()
    run.write(0, DATA + 4 * ROW, PAGE)
    run.write(0, DATA + 5 * ROW, PAGE, Flag.FUA)
    assert run.judged() == [5]


def test_another_array_on_the_same_members_is_looked_at_anew(run: Run) -> None:
    run.create()
    run.write(0, DATA + 3 * ROW, PAGE)
    run.flush(0)
    run.create(letter=b"b")
    assert run.judged() == [3]


def test_what_md_would_not_know_is_a_broken_promise(run: Run) -> None:
    run.create(resync_offset=IN_SYNC)
    run.write(0, DATA, PAGE)
    run.flush(0)
    assert run.judged() == [0]
    assert not run.redundancy.judge(run.state).kept


def test_a_resync_that_is_due_is_none(run: Run) -> None:
    run.create()
    run.write(0, DATA, PAGE)
    run.flush(0)
    run.judged()
    assert run.redundancy.judge(run.state).kept
