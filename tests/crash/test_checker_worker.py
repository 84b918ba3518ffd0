"""One checker at work: what it is asked, and what an error of its rig costs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from raidproof.core.errors import RigError
from raidproof.crash.checker_worker import Base, CheckerWorker, Job, RecordingCursor
from raidproof.crash.states import BLOCK, CrashState, Patch, Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Kind
from raidproof.record.exploration import End, Observation, Rows, ThroughNfsd
from tests.crash.conftest import Did, write_log
from tests.crash.made_up import CLEAN, FakeChecker, written


@pytest.fixture
def cursor(tmp_path: Path) -> RecordingCursor:
    return RecordingCursor(Recording(write_log(tmp_path / "write.log", written())))


@pytest.fixture
def made() -> list[FakeChecker]:
    return []


@pytest.fixture
def worker(made: list[FakeChecker]) -> Iterator[CheckerWorker]:
    @contextmanager
    def boot(_: int) -> Iterator[FakeChecker]:
        made.append(FakeChecker())
        yield made[-1]

    with CheckerWorker(0, boot) as one:
        yield one


def check(
    worker: CheckerWorker, cursor: RecordingCursor, breaks: Callable[[Observation], bool], *, fsck: bool = False
) -> Observation:
    cursor.go(6)
    return worker.submit(cursor.job(CrashState(6), fsck=fsck, breaks=breaks)).result().observation


def test_a_job_asks_for_the_ledger_alone(worker: CheckerWorker) -> None:
    checked = worker.submit(Job(Base([], 0), Patch(), rows=Rows())).result()
    assert (checked.observation.through_nfsd, checked.observation.filesystem) == (ThroughNfsd.NOT_TRIED, None)
    assert checked.cold is None


def test_a_state_that_breaks_a_promise_is_shown_to_the_file_systems_checker_too(
    worker: CheckerWorker, cursor: RecordingCursor, made: list[FakeChecker]
) -> None:
    assert check(worker, cursor, lambda _: False).filesystem is None
    assert made[0].checks == 1
    assert check(worker, cursor, lambda _: True).filesystem == CLEAN
    assert made[0].checks == 3
    assert check(worker, cursor, lambda _: True, fsck=True).filesystem == CLEAN
    assert made[0].checks == 4, "it has checked already"


def test_what_cannot_be_read_is_not_shown_to_it(worker: CheckerWorker, made: list[FakeChecker]) -> None:
    broken = Patch({(1, 0): b"\7" * BLOCK})
    job = Job(Base([], 0), broken, rows=Rows(), breaks=lambda _: True)
    observation = worker.submit(job).result().observation
    assert (observation.end, observation.filesystem, made[0].checks) == (End.NOT_MOUNTED, None, 1)


def test_after_an_error_of_its_rig_a_new_checker_checks_and_has_the_whole_base(
    worker: CheckerWorker, cursor: RecordingCursor, made: list[FakeChecker]
) -> None:
    first = check(worker, cursor, lambda _: False)

    def fail(_: int) -> None:
        raise RigError("it is gone")

    made[0].before_check = fail
    assert check(worker, cursor, lambda _: False).found == first.found
    assert len(made) == 2
    assert made[1].base == made[0].base != {}


def test_the_base_of_an_earlier_cut_undoes_what_a_later_one_had_written(
    worker: CheckerWorker, cursor: RecordingCursor, made: list[FakeChecker]
) -> None:
    for cut in (18, 3, 3, 12):
        cursor.go(cut)
        seen = worker.submit(cursor.job(CrashState(cut))).result().observation
        fresh = RecordingCursor(cursor.recording)
        fresh.go(cut)
        checker = FakeChecker()
        checker.advance(fresh.base.after(None))
        assert seen.found == checker.check(fresh.window.patch(CrashState(cut))).found
    assert len(made) == 1


def test_jobs_that_wait_keep_their_base_when_the_cursor_moves_back(
    worker: CheckerWorker, cursor: RecordingCursor, made: list[FakeChecker]
) -> None:
    begun, moved_back = Event(), Event()

    def wait_at_the_first(number: int) -> None:
        if number == 1:
            begun.set()
            assert moved_back.wait(20)

    worker.boot().result()
    made[0].before_check = wait_at_the_first
    cuts, running = (18, 18, 3, 12, 6, 15), []
    for cut in cuts:
        cursor.go(cut)
        running.append(worker.submit(cursor.job(CrashState(cut))))
        assert begun.wait(20)
    moved_back.set()
    for cut, future in zip(cuts, running, strict=True):
        fresh = RecordingCursor(cursor.recording)
        fresh.go(cut)
        checker = FakeChecker()
        checker.advance(fresh.base.after(None))
        assert future.result().observation.found == checker.check(Patch()).found


def test_nobody_is_asked_before_it_has_booted(worker: CheckerWorker) -> None:
    with pytest.raises(RigError, match="checker 0 is not booted"):
        worker.use(lambda checker: checker).result()
    worker.boot().result()
    assert isinstance(worker.use(lambda checker: checker).result(), FakeChecker)


def test_a_checker_gets_the_content_of_another_recording_and_nothing_of_the_first(
    worker: CheckerWorker, cursor: RecordingCursor, made: list[FakeChecker], tmp_path: Path
) -> None:
    cursor.go(18)
    worker.submit(cursor.job(CrashState(18))).result()
    other = Recording(write_log(tmp_path / "other.log", [Did(Kind.WRITE, 0, 4096, byte=9), Did(Kind.FLUSH)]))
    cursor.read(other)
    cursor.go(2)
    seen = worker.submit(cursor.job(CrashState(2))).result().observation
    assert seen.found == {"f@0": {"blocks": [0, 9, 0, 0], "names": ["f"]}}
    assert {place for place, data in made[0].base.items() if any(data)} == {(0, 1)}
    assert len(made) == 1


def test_a_recovery_is_repeated_on_a_new_machine_after_an_error_of_the_rig(
    worker: CheckerWorker, cursor: RecordingCursor, made: list[FakeChecker], tmp_path: Path
) -> None:
    cursor.go(6)

    def failing(_number: int) -> None:
        raise RigError("no disk engine")

    worker.boot().result()
    made[0].before_check = failing
    log = tmp_path / "recovery.log"
    recovered = worker.recover(cursor.job(CrashState(6)), [CacheMode.VOLATILE] * 2, log, 0.0).result()
    assert (recovered.observation.end, len(made)) == (End.READ, 2)
    assert log.is_file()


def test_a_recovery_that_hangs_is_repeated_once(
    worker: CheckerWorker, cursor: RecordingCursor, made: list[FakeChecker], tmp_path: Path
) -> None:
    cursor.go(6)
    worker.boot().result()
    made[0].silent = (1,)
    job, modes = cursor.job(CrashState(6)), [CacheMode.VOLATILE] * 2
    assert worker.recover(job, modes, tmp_path / "recovery.log", 0.0).result().observation.end is End.READ
    assert made[0].recoveries == 2
    made[0].silent = (3, 4)
    assert worker.recover(job, modes, tmp_path / "recovery.log", 0.0).result().observation.end is End.WEDGED
