"""Disks with latency: requests wait on the real clock, or on a clock that the test advances."""

from collections.abc import Callable
from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.connection import Connection, PowerLost
from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec
from raidproof.disk.profile import DriveCache, Profile, Rotational, load_profile
from raidproof.disk.timing.hardware import ControllerSpec
from raidproof.disk.writelog import Flag, Kind, WriteLog
from tests.disk.engines import DEADLINE_S, Caller

BLOCK = b"x" * 4096
SIZE = 1 << 24

SLOW = Profile(
    name="slow",
    source="a turn takes an hour: what waits for the medium waits for the test",
    capacity=SIZE,
    queue_depth=4,
    interface_mb_s=100.0,
    cache=DriveCache(size=1 << 20, write_back=True),
    rotational=Rotational(1 / 60, 1.0, 2.0, 3.0, 0.0, 1.0, 1e-3, 1e-3, zones=1),
)


class Clock:
    """A clock that stands still unless the test advances it."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self) -> int:
        return self.now_ns


def timed(profile: Profile = SLOW, clock: Callable[[], int] | None = None, count: int = 1) -> Engine:
    specs = [MemberSpec(f"d{number}", SIZE, profile=profile, controller="c0") for number in range(count)]
    controllers = [ControllerSpec("c0", 100.0)]
    engine = Engine(specs, controllers, clock=clock) if clock else Engine(specs, controllers)
    engine.set_timing(True)
    return engine


def read(port: Connection, offset: int = SIZE // 2) -> bytes:
    buffer = bytearray(4096)
    port.read(memoryview(buffer), offset)
    return bytes(buffer)


def waits(engine: Engine, count: int) -> None:
    """Wait until this number of requests wait for their disks."""
    keeper = engine.timekeeper
    assert keeper is not None
    wait_until(lambda: len(keeper._waiting) == count, Deadline.after(DEADLINE_S), f"{count} requests to wait")


def test_disks_without_mechanics_take_no_time_and_cannot() -> None:
    engine = Engine([MemberSpec("d0", SIZE)])
    with pytest.raises(RigError, match="no timing profile"):
        engine.set_timing(True)
    use = engine.use()
    assert (use.served, use.members, use.controllers) == (0, (), ())


def test_either_every_disk_has_mechanics_or_none() -> None:
    with pytest.raises(RigError, match="either all disks or no disk"):
        Engine([MemberSpec("d0", SIZE), MemberSpec("d1", SIZE, profile=SLOW)])


def test_timing_begins_under_power_only() -> None:
    engine = timed()
    engine.set_timing(False)
    engine.freeze()
    with pytest.raises(RigError, match="only under power; the power is frozen"):
        engine.set_timing(True)
    engine.set_timing(False)


def test_requests_wait_only_while_timing_is_on() -> None:
    engine = timed()
    port = engine.connect("d0")
    engine.set_timing(False)
    port.write(BLOCK, 0, True)
    assert read(port, 0) == BLOCK
    engine.set_timing(True)
    engine.set_timing(True)  # again: what waits goes on waiting
    callers = [Caller(lambda: read(port)), Caller(lambda: port.write(BLOCK, 8192, True))]
    waits(engine, 2)
    engine.set_timing(False)
    assert [caller.finish() for caller in callers] == [None, None]
    assert read(port, 8192) == BLOCK
    port.flush()


def test_a_request_waits_until_its_disk_has_served_it() -> None:
    clock = Clock()
    engine = timed(clock=clock)
    port = engine.connect("d0")
    reader = Caller(lambda: read(port))
    waits(engine, 1)
    keeper = engine.timekeeper
    assert keeper is not None
    with engine.lock:
        clock.now_ns += 2 * 3600 * 10**9
        keeper._deliver(clock.now_ns)
    assert reader.finish() is None
    use = engine.use()
    assert use.served == 1
    assert 0 < use.service_ns < 2 * 3600 * 10**9
    assert [(one.name, one.requests, one.bytes) for one in use.members + use.controllers] == [
        ("d0", 1, 4096),
        ("c0", 1, 4096),
    ]
    assert use.members[0].busy_ns > 0


@pytest.mark.parametrize("slow_motion", [1.0, 2.0, 10.0])
def test_in_slow_motion_the_disks_clock_is_slower(slow_motion: float) -> None:
    clock = Clock()
    keeper = Engine([MemberSpec("d0", SIZE, profile=SLOW)], slow_motion=slow_motion, clock=clock).timekeeper
    assert keeper is not None
    before = keeper.now
    clock.now_ns += 60 * 10**9
    assert keeper.now - before == 60 * 10**9 / slow_motion


def test_real_disks_on_the_real_clock_take_as_long_as_they_should() -> None:
    engine = timed(load_profile("atlas-10k5"))
    port = engine.connect("d0")
    for number in range(20):
        read(port, number * (SIZE // 20) // 512 * 512)
    use = engine.use()
    assert use.served == use.members[0].requests == 20
    assert use.members[0].bytes == 20 * 4096
    # No shorter than a turn for two of them, whatever the machine does meanwhile.
    assert use.service_ns > 10 * 6 * 10**6
    assert use.cpu_ns > 0
    assert use.late_ns >= 0


def test_a_disk_that_is_waited_for_holds_up_no_other() -> None:
    engine = timed(count=2)
    stuck = Caller(lambda: read(engine.connect("d0")))
    waits(engine, 1)
    engine.connect("d1").write(BLOCK, 0, False)  # into its cache
    assert stuck.is_alive()
    engine.set_timing(False)
    assert stuck.finish() is None


def test_a_cut_catches_what_waits_for_its_disk(tmp_path: Path) -> None:
    engine = timed()
    engine.start_log(tmp_path / "log")
    port = engine.connect("d0")
    port.write(BLOCK, 0, False)
    requests: list[Callable[[], object]] = [
        lambda: port.write(BLOCK, SIZE // 2, True),
        lambda: read(port),
        port.flush,
    ]
    callers = [Caller(request) for request in requests]
    waits(engine, 3)
    engine.freeze()
    wait_until(lambda: engine.waiting == 3, Deadline.after(DEADLINE_S), "the cut to hold them")
    assert all(caller.is_alive() for caller in callers)
    (cut_result,) = engine.resolve(CutPolicy.DROP, 0)
    assert (cut_result.pending, cut_result.broken_promises) == (1, 0)
    assert all(isinstance(caller.finish(), PowerLost) for caller in callers)
    engine.stop_log()
    caught = [record.kind for record in WriteLog(tmp_path / "log") if record.flags & Flag.IN_FLIGHT]
    assert sorted(kind.name for kind in caught) == sorted(kind.name for kind in (Kind.WRITE, Kind.FLUSH))
    engine.power_on()
    engine.set_timing(True)
    engine.connect("d0").write(BLOCK, 0, False)


@pytest.mark.parametrize("mode", [CacheMode.VOLATILE, CacheMode.LYING])
def test_a_slow_flush_covers_only_what_came_before_it(mode: CacheMode) -> None:
    clock = Clock()
    engine = timed(clock=clock)
    engine.set_mode(None, mode)
    port = engine.connect("d0")

    port.write(BLOCK, 0, False)  # into the cache: that takes less than the way to here is taken to take
    flusher = Caller(port.flush)
    waits(engine, 1)
    port.write(BLOCK, SIZE // 2, False)
    assert flusher.is_alive()
    with engine.lock:
        clock.now_ns += 10 * 3600 * 10**9
        assert engine.timekeeper is not None
        engine.timekeeper._deliver(clock.now_ns)
    assert flusher.finish() is None
    engine.freeze()
    (cut_result,) = engine.resolve(CutPolicy.DROP, 0)
    lies = mode is CacheMode.LYING
    assert (cut_result.pending, cut_result.broken_promises) == ((2, 1) if lies else (1, 0))
    engine.power_on()
    survived = read(engine.connect("d0"), 0)
    assert survived == (bytes(4096) if lies else BLOCK)
    assert read(engine.connect("d0"), SIZE // 2) == bytes(4096)


def test_a_reset_releases_all_requests_and_ends_timing() -> None:
    engine = timed()
    port = engine.connect("d0")
    reader = Caller(lambda: read(port))
    waits(engine, 1)
    engine.reset()
    assert reader.finish() is None
    read(port)
