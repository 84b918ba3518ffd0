"""Every disk fault takes effect and is counted, and the write log has the actual effect on the drive."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.disk.cache import CacheMode, CutPolicy, CutResult
from raidproof.disk.client import EngineClient
from raidproof.disk.connection import Connection
from raidproof.disk.control import ControlServer
from raidproof.disk.disk_fault import (
    DiskFault,
    DiskFaultKind,
    DiskFaults,
    DriveError,
    bad_sectors,
    drop_flushes,
    early_flushes,
    failed,
    flush_errors,
    lost_writes,
    misdirected,
    newest_unflushed,
    overwrites_unflushed,
    slow,
    slow_flushes,
)
from raidproof.disk.engine import Engine, clear_disk_faults, corrupt, set_disk_fault, swap
from raidproof.disk.messages import MemberSpec
from raidproof.disk.replay import replay
from raidproof.disk.writelog import Flag, Kind, WriteLog
from tests.disk.engines import SIZE, read

A, B = b"a" * 4096, b"b" * 4096


def struck(engine: Engine, kind: DiskFaultKind, member: int = 0) -> int:
    return engine.counters()[member].struck_by(kind)


def requests(port: Connection) -> list[Callable[[], object]]:
    return [
        lambda: port.write(A, 0, False),
        lambda: read(port),
        port.flush,
        lambda: port.discard(0, 4096, False),
        lambda: port.write_zeroes(0, 4096, True),
    ]


def cut(engine: Engine, policy: CutPolicy = CutPolicy.DROP, seed: int = 0) -> list[CutResult]:
    engine.freeze()
    cut_results = engine.resolve(policy, seed)
    engine.power_on()
    return list(cut_results)


def test_a_failed_drive_fails_all_requests_and_others_do_not(engine: Engine) -> None:
    port, other = engine.connect("d0"), engine.connect("d1")
    port.write(A, 0, True)
    set_disk_fault(engine, "d0", failed())
    for request in requests(port):
        with pytest.raises(DriveError, match="d0: the drive has failed"):
            request()
    other.write(A, 0, True)
    clear_disk_faults(engine, ["d0"])
    assert read(port) == A
    counters = engine.counters()[0]
    assert (counters.errors, counters.struck_by(DiskFaultKind.FAILED), engine.counters()[1].errors) == (5, 5, 0)


def test_a_bad_sector_is_remapped_by_a_write(engine: Engine) -> None:
    port = engine.connect("d0")
    port.write(A, 0, True)
    set_disk_fault(engine, "d0", bad_sectors(512, 1024))
    assert read(port, 0, 512) == A[:512]
    with pytest.raises(DriveError, match="bad sectors"):
        read(port)
    port.write(B[:512], 512, False)
    assert read(port, 0, 1024) == A[:512] + B[:512]
    with pytest.raises(DriveError):
        read(port, 1024, 512)
    port.discard(1024, 512, False)
    assert read(port, 1024, 512) == bytes(512)
    assert engine.counters()[0].errors == 2


def test_bad_sectors_are_readable_after_the_requested_number_of_reads() -> None:
    disk_faults = DiskFaults("d0", 64)
    disk_faults.add(bad_sectors(10, 20, count=2))
    for _ in range(2):
        disk_faults.read(0, 10)
        with pytest.raises(DriveError):
            disk_faults.read(5, 10)
    disk_faults.read(5, 10)
    assert disk_faults.struck[DiskFaultKind.BAD_SECTORS] == 2


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.booleans()), max_size=12))
def test_what_was_not_written_stays_bad(steps: list[tuple[int, int, bool]]) -> None:
    disk_faults, bad = DiskFaults("d0", 64), set(range(10, 30))
    disk_faults.add(bad_sectors(10, 20))
    for offset, length, writes in steps:
        touched = set(range(offset, offset + length))
        if writes:
            disk_faults.write(offset, length)
            bad -= touched
        elif bad & touched:
            with pytest.raises(DriveError):
                disk_faults.read(offset, length)
        else:
            disk_faults.read(offset, length)


def test_a_slow_drive_waits_outside_of_the_lock(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> None:
        assert not engine.lock.locked()
        waited.append(seconds)

    monkeypatch.setattr("raidproof.disk.connection.pause", wait)
    set_disk_fault(engine, "d0", slow(50))
    set_disk_fault(engine, "d0", slow(25))
    port = engine.connect("d0")
    for request in requests(port):
        request()
    read(engine.connect("d1"))
    assert waited == [0.075] * 5
    assert struck(engine, DiskFaultKind.SLOW) == 5


def test_of_a_drive_whose_flushes_are_slow_only_they_wait(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("raidproof.disk.connection.pause", waited.append)
    set_disk_fault(engine, "d0", slow_flushes(4))
    port = engine.connect("d0")
    for request in requests(port):
        request()
    assert (waited, struck(engine, DiskFaultKind.SLOW_FLUSHES)) == ([0.004], 1)


class Effects:
    """Collects actions that take effect later, with their times."""

    def __init__(self) -> None:
        self.after_s: list[float] = []
        self._actions: list[Callable[[], None]] = []

    def __call__(self, seconds: float, action: Callable[[], None]) -> "Effects":
        self.after_s.append(seconds)
        self._actions.append(action)
        return self

    def start(self) -> None: ...

    def take(self) -> None:
        while self._actions:
            self._actions.pop(0)()


@pytest.fixture
def effects(monkeypatch: pytest.MonkeyPatch) -> Effects:
    monkeypatch.setattr("raidproof.disk.connection.Timer", later := Effects())
    return later


def test_an_early_flush_keeps_nothing_until_it_takes_effect(engine: Engine, effects: Effects, tmp_path: Path) -> None:
    engine.start_log(tmp_path / "log")
    port = engine.connect("d0")
    set_disk_fault(engine, "d0", early_flushes(1500))
    for _ in range(2):
        port.write(A, 0, False)
        port.flush()
    assert effects.after_s == [0.0015, 0.0015]
    assert bytes(engine.drives[0].member.image().view(0, 4096)) == bytes(4096)
    effects.take()
    assert bytes(engine.drives[0].member.image().view(0, 4096)) == A
    port.write(B, 0, False)
    port.flush()
    assert [(cut_result.dropped, cut_result.broken_promises) for cut_result in cut(engine)] == [(1, 1), (0, 0)]
    effects.take()  # the power has gone before
    assert read(engine.connect("d0")) == A
    engine.stop_log()
    flushes = [one.flags for one in WriteLog(tmp_path / "log") if one.kind is Kind.FLUSH]
    assert flushes == [Flag.LIED, Flag.LIED, Flag(0), Flag(0), Flag.LIED]
    assert (struck(engine, DiskFaultKind.EARLY_FLUSHES), engine.counters()[0].lied) == (3, 3)


@pytest.mark.parametrize("us", [1, 2])
def test_early_acknowledgements_of_flushes_are_counted(engine: Engine, effects: Effects, us: int) -> None:
    set_disk_fault(engine, "d0", early_flushes(us))
    port = engine.connect("d0")
    port.write(A, 0, False)
    port.flush()
    assert effects.after_s == [us / 1e6]
    assert struck(engine, DiskFaultKind.EARLY_FLUSHES) == 1


def test_the_newest_writes_wait_for_the_next_flush(engine: Engine) -> None:
    port = engine.connect("d0")
    port.write(B, 5 * 4096, False)  # before the disk fault: kept by the flush that comes with it
    set_disk_fault(engine, "d0", newest_unflushed(2))
    for block in range(3):
        port.write(A, block * 4096, False)
    port.flush()
    durable = engine.drives[0].member.image()
    assert [durable.view(block * 4096, block * 4096 + 1)[0] for block in (0, 1, 2, 5)] == [97, 0, 0, 98]
    port.write(A, 3 * 4096, False)
    port.flush()
    durable = engine.drives[0].member.image()
    assert [durable.view(block * 4096, block * 4096 + 1)[0] for block in range(4)] == [97, 97, 0, 0]
    assert struck(engine, DiskFaultKind.NEWEST_UNFLUSHED) == 2
    assert [(cut_result.dropped, cut_result.broken_promises) for cut_result in cut(engine)] == [(2, 2), (0, 0)]


def test_only_overwrites_of_something_durable_are_left_out(engine: Engine) -> None:
    port = engine.connect("d0")
    port.write(B, 0, True)  # before the disk fault: nothing is known of it
    set_disk_fault(engine, "d0", overwrites_unflushed())
    port.write(A, 0, False)
    port.write(A, 4096, False)
    port.write(B, 4096, False)  # what it overwrites was not durable
    port.flush()
    assert (struck(engine, DiskFaultKind.OVERWRITES_UNFLUSHED), engine.counters()[0].lied) == (0, 0)
    port.write(B, 0, False)
    port.write(A, 4096, True)  # forced
    port.write(B + B, 4096, False)  # half of it is written for the first time
    port.flush()
    port.write(A, 8192, False)
    port.flush()
    durable = engine.drives[0].member.image()
    assert [durable.view(block * 4096, block * 4096 + 1)[0] for block in range(3)] == [97, 98, 98]
    assert read(port, 8192) == A
    assert struck(engine, DiskFaultKind.OVERWRITES_UNFLUSHED) == 2
    clear_disk_faults(engine)
    port.flush()
    assert engine.counters()[0].pending == 0


def test_overwrites_elsewhere_are_flushed(engine: Engine) -> None:
    port = engine.connect("d0")
    set_disk_fault(engine, "d0", overwrites_unflushed(offset=4096, length=4096))
    for data in (A, B):
        port.write(data, 0, False)
        port.write(data, 4096, False)
        port.flush()
    durable = engine.drives[0].member.image()
    assert [durable.view(block * 4096, block * 4096 + 1)[0] for block in range(2)] == [98, 97]


def test_a_flush_dropped_once_loses_what_the_next_would_have_kept(engine: Engine) -> None:
    port = engine.connect("d0")
    set_disk_fault(engine, "d0", drop_flushes(1))
    port.write(A, 0, False)
    port.flush()
    assert [(cut_result.dropped, cut_result.broken_promises) for cut_result in cut(engine)] == [(1, 1), (0, 0)]
    port = engine.connect("d0")
    port.write(A, 0, False)
    port.flush()
    assert [(cut_result.dropped, cut_result.broken_promises) for cut_result in cut(engine)] == [(0, 0), (0, 0)]
    assert (struck(engine, DiskFaultKind.DROP_FLUSHES), engine.counters()[0].lied) == (1, 1)


def test_flushes_and_forced_writes_dropped_from_a_moment_on(engine: Engine) -> None:
    port = engine.connect("d0")
    port.write(A, 0, False)
    port.flush()
    set_disk_fault(engine, "d0", drop_flushes())
    port.write(B, 0, True)
    port.write(B, 8192, False)
    port.flush()
    port.write_zeroes(16384, 4096, True)
    port.write(B, 32768, False)
    cut_result = cut(engine)[0]
    assert (cut_result.pending, cut_result.dropped, cut_result.broken_promises) == (4, 4, 3)
    assert read(engine.connect("d0"), 0, 12288) == A + bytes(8192)
    assert engine.counters()[0].lied == 3


def test_an_honest_flush_after_dropped_ones_keeps_all(engine: Engine) -> None:
    port, member = engine.connect("d0"), engine.drives[0].member
    set_disk_fault(engine, "d0", drop_flushes(1))
    port.write(A, 0, False)
    port.flush()
    covered = member.acknowledged
    port.write(B, 4096, False)
    member.flush(covered)
    assert [(f.pending, f.broken_promises) for f in cut(engine)] == [(1, 0), (0, 0)]
    assert read(engine.connect("d0"), 0, 8192) == A + bytes(4096)


def test_dropped_flushes_do_not_fill_the_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.disk.cache.COALESCE_FROM", 1 << 18)
    port = engine.connect("d0")
    port.write(A * 256, 0, True)
    set_disk_fault(engine, "d0", drop_flushes())
    port.flush()
    for number in range(2000):
        port.write(B, number % 256 * 4096, False)
    port.flush()
    assert len(engine.drives[0].member._pending) < 200
    assert cut(engine)[0].broken_promises == 2000
    assert read(engine.connect("d0"), 0, SIZE) == A * 256


def test_a_write_to_the_neighbour(engine: Engine) -> None:
    port = engine.connect("d0")
    port.write(A * 4, 0, True)
    set_disk_fault(engine, "d0", misdirected(4096, offset=4096, length=4096))
    port.write(B, 12288, False)
    port.write(B[:512], 4096, False)
    port.write(B, 4096, False)
    port.write(B[:512], 4096, False)
    assert read(port, 0, 16384) == A + B[:512] + A[512:] + B + B
    assert struck(engine, DiskFaultKind.MISDIRECTED) == 1


def test_a_write_that_would_land_beyond_the_drive_is_not_misdirected(engine: Engine) -> None:
    port = engine.connect("d0")
    set_disk_fault(engine, "d0", misdirected(-4096))
    port.write(A, 0, False)
    assert read(port) == A
    assert struck(engine, DiskFaultKind.MISDIRECTED) == 0


def test_a_lost_write_leaves_the_old_content_for_good(engine: Engine) -> None:
    port = engine.connect("d0")
    port.write(A * 2, 0, True)
    set_disk_fault(engine, "d0", lost_writes(1, offset=4096, length=4096))
    port.write(B, 0, False)
    port.write(B, 4096, True)
    port.flush()
    assert read(port, 0, 8192) == B + A
    assert [(cut_result.pending, cut_result.broken_promises) for cut_result in cut(engine)] == [(0, 0), (0, 0)]
    assert struck(engine, DiskFaultKind.LOST_WRITES) == 1


@pytest.mark.parametrize("mode", CacheMode)
def test_corruption_is_silent_durable_and_repeatable(mode: CacheMode) -> None:
    engine = Engine([MemberSpec("d0", SIZE, mode)])
    port = engine.connect("d0")
    port.write(A * 2, 0, False)
    engine.drives[0].member.settle()
    port.write(A, 0, False)
    corrupt(engine, "d0", 4000, 200, 7)
    spoilt = read(port, 0, 8192)
    assert [at for at in range(8192) if spoilt[at] != ord("a")] == list(range(4000, 4200))
    cut(engine)
    assert read(engine.connect("d0"), 0, 8192) == spoilt
    corrupt(engine, "d0", 4000, 200, 7)
    assert read(engine.connect("d0"), 0, 8192) == A * 2
    assert engine.counters()[0].errors == 0


def test_two_drives_exchange_what_they_hold(engine: Engine) -> None:
    first, second = engine.connect("d0"), engine.connect("d1")
    first.write(A, 0, True)
    second.write(B, 0, True)
    with pytest.raises(RigError, match="under power: clients use d0, d1"):
        swap(engine, "d0", "d1")
    engine.freeze()
    forbidden: list[Callable[[], None]] = [
        lambda: swap(engine, "d0", "d1"),
        lambda: corrupt(engine, "d0", 0, 1, 0),
    ]
    for request in forbidden:
        with pytest.raises(RigError, match="resolve the cut first"):
            request()
    engine.resolve(CutPolicy.DROP, 0)
    swap(engine, "d0", "d1")
    engine.power_on()
    assert (read(engine.connect("d0")), read(engine.connect("d1"))) == (B, A)
    assert [drive.member.serial for drive in engine.drives] == ["d0", "d1"]


@pytest.mark.parametrize("serials", [("d0", "d1"), ("d1", "d0")])
def test_drives_of_different_sizes_are_not_exchanged(serials: tuple[str, str]) -> None:
    engine = Engine([MemberSpec("d0", 1 << 16), MemberSpec("d1", 1 << 17)])
    with pytest.raises(RigError, match="two drives of equal size"):
        swap(engine, *serials)


def test_a_flush_that_fails_makes_nothing_durable(engine: Engine) -> None:
    set_disk_fault(engine, "d0", flush_errors())
    port = engine.connect("d0")
    port.write(A, 0, False)
    with pytest.raises(DriveError, match="d0: a flush failed"):
        port.flush()
    assert read(port) == A
    assert (struck(engine, DiskFaultKind.FLUSH_ERRORS), engine.counters()[0].errors) == (1, 1)
    engine.connect("d1").flush()
    clear_disk_faults(engine)
    port.write(B, 4096, False)
    assert [one.dropped for one in cut(engine)] == [2, 0]


def test_what_cannot_be_is_refused(engine: Engine) -> None:
    engine.set_mode(["d1"], CacheMode.PROTECTED)
    refused: list[tuple[Callable[[], None], str]] = [
        (lambda: set_disk_fault(engine, "d7", failed()), "'d7'; members"),
        (lambda: set_disk_fault(engine, "d0", bad_sectors(SIZE, 512)), "affects bytes"),
        (lambda: set_disk_fault(engine, "d1", drop_flushes()), "its cache mode is protected"),
        (lambda: set_disk_fault(engine, "d1", early_flushes(1)), "its cache mode is protected"),
        (lambda: set_disk_fault(engine, "d1", flush_errors()), "its cache mode is protected"),
        (lambda: set_disk_fault(engine, "d1", newest_unflushed()), "its cache mode is protected"),
        (lambda: set_disk_fault(engine, "d1", overwrites_unflushed()), "its cache mode is protected"),
        (lambda: corrupt(engine, "d0", SIZE - 1, 2, 0), "cannot corrupt 2 bytes"),
        (lambda: swap(engine, "d0", "d0"), "two drives of equal size"),
    ]
    for harmful, words in refused:
        with pytest.raises(RigError, match=words):
            harmful()


def test_reset_makes_drives_sound(engine: Engine) -> None:
    set_disk_fault(engine, "d0", failed())
    port = engine.connect("d0")
    with pytest.raises(DriveError):
        read(port)
    engine.reset()
    assert read(port) == bytes(4096)
    assert engine.counters()[0].errors == 0
    assert engine.drives[0].disk_faults is None


disk_faults = st.one_of(
    st.just(slow(0)),
    st.builds(drop_flushes, st.none() | st.integers(1, 3)),
    st.builds(newest_unflushed, st.integers(1, 3)),
    st.builds(overwrites_unflushed, offset=st.integers(0, 8).map(lambda block: block * 4096)),
    st.builds(misdirected, st.integers(-3, 3).map(lambda blocks: blocks * 4096), st.integers(1, 3)),
    st.builds(lost_writes, st.integers(1, 3), offset=st.integers(0, 15).map(lambda block: block * 4096)),
)


@given(st.lists(disk_faults, max_size=4), st.integers(0, 999), st.sampled_from(list(CutPolicy)))
def test_the_log_of_faulty_drives_replays_to_their_content(
    tmp_path_factory: pytest.TempPathFactory, wrong: list[DiskFault], seed: int, policy: CutPolicy
) -> None:
    rng, path = Random(seed), tmp_path_factory.mktemp("log") / "log"
    engine = Engine([MemberSpec("d0", SIZE), MemberSpec("d1", SIZE)])
    engine.start_log(path)
    port = engine.connect("d0")
    for number in range(40):
        if number % 10 == 9 and wrong:
            set_disk_fault(engine, "d0", wrong.pop())
        offset, forced = rng.randrange(16) * 4096, rng.random() < 0.2
        match rng.randrange(5):
            case 0:
                port.flush()
            case 1:
                port.write_zeroes(offset, 4096, forced)
            case 2 if rng.random() < 0.3:
                corrupt(engine, "d0", offset, 512, number)
            case _:
                port.write(rng.randbytes(4096 * rng.randint(1, 2)), offset, forced)
    cut(engine, policy, seed)
    engine.freeze()
    engine.resolve(CutPolicy.DROP, 0)
    swap(engine, "d1", "d0")
    engine.stop_log()
    told = replay(WriteLog(path))
    for drive in engine.drives:
        assert bytes(told[drive.spec.serial].image().view(0, SIZE)) == bytes(drive.member.image().view(0, SIZE))


def test_the_log_has_every_effect_of_a_disk_fault(engine: Engine, tmp_path: Path) -> None:
    engine.start_log(tmp_path / "log")
    port = engine.connect("d0")
    for disk_fault in (misdirected(4096), lost_writes(1), drop_flushes(1)):
        set_disk_fault(engine, "d0", disk_fault)
    port.write(A, 0, False)
    port.write(A, 0, False)
    port.flush()
    corrupt(engine, "d0", 0, 512, 3)
    clear_disk_faults(engine)
    engine.stop_log()
    records = list(WriteLog(tmp_path / "log"))
    assert [bytes(one.data).decode() for one in records if one.kind is Kind.MARK] == [
        "d0: disk fault misdirected set",
        "d0: disk fault lost-writes set",
        "d0: disk fault drop-flushes set",
        "d0: a write of 4096 bytes at offset 0 is lost",
        "d0: a write of 4096 bytes at offset 0 goes to offset 4096",
        "d0: 512 bytes at offset 0 corrupted, seed 3",
        "d0: all disk faults removed",
    ]
    assert [(one.kind, one.offset, one.flags) for one in records if one.kind is not Kind.MARK] == [
        (Kind.WRITE, 4096, Flag(0)),
        (Kind.FLUSH, 0, Flag.LIED),
        (Kind.WRITE, 0, Flag.FUA),
    ]


@pytest.fixture
def client(engine: Engine, tmp_path: Path) -> Iterator[EngineClient]:
    ControlServer(engine, tmp_path / "control").start()
    with EngineClient(tmp_path / "control") as client:
        yield client


def test_harm_over_the_socket(engine: Engine, client: EngineClient) -> None:
    for disk_fault in (lost_writes(2, offset=4096, length=512), slow(0), drop_flushes()):
        client.set_disk_fault("d0", disk_fault)
    port = engine.connect("d0")
    port.write(A, 4096, False)
    port.flush()
    counters = client.counters()["d0"]
    assert {one.kind: one.times for one in counters.struck} == {
        DiskFaultKind.LOST_WRITES: 1,
        DiskFaultKind.DROP_FLUSHES: 1,
    }
    client.clear_disk_faults(["d0"])
    port.write(A, 4096, True)
    client.corrupt("d0", 4096, 512, 1)
    assert read(port, 4096)[512:] == A[512:]
    engine.disconnect(port)
    client.swap("d0", "d1")
    assert read(engine.connect("d1"), 4096)[512:] == A[512:]
    with pytest.raises(RigError, match="'d9'; members"):
        client.clear_disk_faults(["d9"])
