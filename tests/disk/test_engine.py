"""The engine: one lock and one instant of the cut for all members, and no acknowledgement of later requests."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.connection import Connection, PowerLost
from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec, Power, export_of
from raidproof.disk.replay import replay
from raidproof.disk.writelog import Flag, Kind, WriteLog
from tests.disk.engines import DEADLINE_S, SIZE, Caller, read

BLOCK = b"x" * 4096


def requests(port: Connection) -> list[Callable[[], object]]:
    return [
        lambda: port.write(BLOCK, 0, False),
        lambda: port.write(BLOCK, 0, True),
        lambda: read(port),
        port.flush,
        lambda: port.discard(0, 4096, False),
        lambda: port.write_zeroes(0, 4096, False),
    ]


def test_a_cut_drops_what_was_not_flushed_on_every_member(engine: Engine) -> None:
    ports = [engine.connect("d0"), engine.connect("d1")]
    for port in ports:
        port.write(BLOCK, 0, False)
        port.flush()
        port.write(BLOCK, 4096, False)
        port.write(BLOCK, 8192, True)
    at_ns = engine.freeze()
    assert engine.freeze() == at_ns
    assert [(f.pending, f.dropped, f.dropped_bytes) for f in engine.resolve(CutPolicy.DROP, 1)] == [(1, 1, 4096)] * 2
    assert engine.power_on() > at_ns
    for serial in ("d0", "d1"):
        assert read(engine.connect(serial), 0, 12288) == BLOCK + bytes(4096) + BLOCK


def test_frozen_requests_are_neither_served_nor_refused_until_the_guest_is_dead(engine: Engine) -> None:
    port, other = engine.connect("d0"), engine.connect("d1")
    engine.freeze()
    callers = [Caller(request) for one in (port, other) for request in requests(one)]
    wait_until(lambda: engine.waiting == len(callers), Deadline.after(DEADLINE_S), "the requests to be held back")
    assert all(caller.is_alive() for caller in callers)
    assert all(c.writes == c.reads == c.flushes == c.discards == 0 for c in engine.counters())
    engine.resolve(CutPolicy.KEEP, 0)
    errors = [caller.finish() for caller in callers]
    assert all(isinstance(error, PowerLost) and error.errno == errno.ESHUTDOWN for error in errors)
    engine.power_on()
    assert read(engine.connect("d0")) == bytes(4096)


def test_a_connection_from_before_the_cut_never_writes_into_the_next_life(engine: Engine) -> None:
    old = engine.connect("d0")
    engine.freeze()
    between = engine.connect("d0")
    engine.resolve(CutPolicy.DROP, 0)
    early = engine.connect("d0")
    with pytest.raises(PowerLost):
        early.write(BLOCK, 0, False)
    engine.power_on()
    for stale in (old, between):
        for request in requests(stale):
            with pytest.raises(PowerLost):
                request()
    early.write(BLOCK, 0, False)
    assert read(early) == BLOCK


def test_power_changes_in_its_order_only(engine: Engine) -> None:
    with pytest.raises(RigError, match="resolved only on frozen disks"):
        engine.resolve(CutPolicy.DROP, 0)
    with pytest.raises(RigError, match="switched on only when it is off"):
        engine.power_on()
    engine.freeze()
    with pytest.raises(RigError, match="resolve the cut first"):
        engine.reset()
    with pytest.raises(RigError, match="the power is frozen"):
        engine.power_on()
    engine.resolve(CutPolicy.DROP, 0)
    with pytest.raises(RigError, match="the power is off"):
        engine.freeze()
    assert engine.describe().power is Power.OFF


def test_members_lose_power_at_one_instant(engine: Engine, tmp_path: Path) -> None:
    """After two writers at full speed on two members, no request in the log completes after the freeze."""
    engine.start_log(tmp_path / "log", data=False)

    def hammer(serial: str) -> None:
        port = engine.connect(serial)
        while True:
            port.write(BLOCK, 0, False)

    callers = [Caller(lambda: hammer("d0")), Caller(lambda: hammer("d1"))]
    wait_until(lambda: all(c.writes > 50 for c in engine.counters()), Deadline.after(DEADLINE_S), "both to write")
    at_ns = engine.freeze()
    engine.resolve(CutPolicy.DROP, 0)
    assert all(isinstance(caller.finish(), PowerLost) for caller in callers)
    engine.stop_log()
    served = [r for r in WriteLog(tmp_path / "log") if r.kind is Kind.WRITE and not r.flags & Flag.IN_FLIGHT]
    assert {r.member for r in served} == {0, 1}
    assert all(r.completed_ns < at_ns for r in served)


def test_what_the_cut_caught_in_flight_is_logged_as_never_done(engine: Engine, tmp_path: Path) -> None:
    engine.start_log(tmp_path / "log")
    port = engine.connect("d0")
    engine.freeze()
    caller = Caller(lambda: port.write(BLOCK, 4096, True))
    wait_until(lambda: engine.waiting, Deadline.after(DEADLINE_S), "the write to be held back")
    engine.resolve(CutPolicy.TORN, 7)
    caller.finish()
    engine.power_on()
    engine.stop_log()
    records = {r.kind: r for r in WriteLog(tmp_path / "log")}
    assert list(records) == [Kind.FREEZE, Kind.RESOLVE, Kind.WRITE, Kind.POWER_ON]
    caught = records[Kind.WRITE]
    assert caught.flags == Flag.IN_FLIGHT | Flag.FUA
    assert (caught.completed_ns, bytes(caught.data)) == (0, BLOCK)
    assert bytes(records[Kind.RESOLVE].data) == b'{"policy": "torn", "seed": 7}'
    assert not list(replay(WriteLog(tmp_path / "log"))["d0"].image().extents())


def test_counters(engine: Engine) -> None:
    port = engine.connect("d1")
    port.write(BLOCK, 0, False)
    port.write(BLOCK, 0, True)
    read(port, 0, 512)
    port.discard(0, 8192, False)
    port.write_zeroes(0, 4096, True)
    engine.set_mode(["d1"], CacheMode.LYING)
    port.flush()
    port.write(BLOCK, 0, True)
    counters = engine.counters()[1]
    assert (counters.writes, counters.reads, counters.flushes, counters.fua) == (3, 1, 1, 3)
    assert (counters.discards, counters.zeroes, counters.discarded_bytes, counters.lied) == (1, 1, 12288, 2)
    assert (counters.read_bytes, counters.written_bytes) == (512, 12288)
    assert (counters.pending, counters.pending_bytes) == (3, 16384)


def test_reset_gives_back_the_disks_as_they_began(engine: Engine) -> None:
    port = engine.connect("d0")
    port.write(BLOCK, 0, False)
    engine.set_mode(None, CacheMode.LYING)
    engine.reset()
    assert read(port) == bytes(4096)
    assert [m.mode for m in engine.describe().members] == [CacheMode.VOLATILE] * 2
    assert (engine.counters()[0].writes, engine.counters()[0].reads) == (0, 1)


def test_a_disk_connected_as_cacheless_gets_no_cache_behind_the_guests_back(engine: Engine) -> None:
    engine.set_mode(["d0"], CacheMode.NONE)
    port = engine.connect("d0")
    assert port.cacheless
    with pytest.raises(RigError, match=r"cache mode lying of d0:"):
        engine.set_mode(None, CacheMode.LYING)
    engine.set_mode(["d1"], CacheMode.LYING)
    engine.disconnect(port)
    engine.set_mode(["d0"], CacheMode.VOLATILE)


def test_a_log_that_cannot_be_begun_is_refused(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "earlier").write_text("evidence")
    with pytest.raises(RigError, match=r"cannot create the write log .*earlier: File exists"):
        engine.start_log(tmp_path / "earlier")
    monkeypatch.setattr("os.writev", full)
    with pytest.raises(RigError, match="No space left"):
        engine.start_log(tmp_path / "log")
    monkeypatch.undo()
    with pytest.raises(RigError, match="no write log"):
        engine.stop_log()
    engine.start_log(tmp_path / "other")
    with pytest.raises(RigError, match="other is open"):
        engine.start_log(tmp_path / "another")


def test_a_log_that_fills_its_disk_is_given_up_with_its_reason(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.start_log(tmp_path / "log")
    port = engine.connect("d0")
    monkeypatch.setattr("os.writev", full)
    port.write(BLOCK, 0, False)
    monkeypatch.undo()
    assert read(port) == BLOCK
    assert "No space left" in (engine.describe().log_error or "")
    with pytest.raises(RigError, match="No space left"):
        engine.stop_log()


def full(fd: int, buffers: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_unknown_member_and_doubled_serial(engine: Engine) -> None:
    with pytest.raises(RigError, match="'d7'; members: d0, d1"):
        engine.connect("d7")
    with pytest.raises(RigError, match="the same serial number"):
        Engine([MemberSpec("d0", SIZE), MemberSpec("d0", SIZE)])


def test_image_of_what_is_durable_and_of_what_is_seen(engine: Engine, tmp_path: Path) -> None:
    port = engine.connect("d0")
    port.write(BLOCK, 0, True)
    port.write(BLOCK, 65536, False)
    engine.save("d0", tmp_path / "durable")
    engine.save("d0", tmp_path / "seen", durable=False)
    durable, seen = (tmp_path / "durable").read_bytes(), (tmp_path / "seen").read_bytes()
    assert (durable[:4096], durable[65536:69632]) == (BLOCK, bytes(4096))
    assert (seen[:4096], seen[65536:69632], len(seen)) == (BLOCK, BLOCK, SIZE)
    assert (tmp_path / "seen").stat().st_blocks * 512 < SIZE
    with pytest.raises(RigError, match="cannot write"):
        engine.save("d0", tmp_path)


def test_a_fenced_machine_writes_no_more_and_another_reads_what_the_cache_has(engine: Engine) -> None:
    ports = {name: engine.connect(export_of("d0", name)) for name in ("server", "server2")}
    ports["server"].write(BLOCK, 0, False)
    at_ns = engine.fence("server")
    for request in requests(ports["server"]):
        assert isinstance(Caller(request).finish(), PowerLost)
    assert read(ports["server2"], 0, 8192) == BLOCK + bytes(4096)
    assert engine.counters()[0].pending == 1, "the cache keeps its power"
    assert engine.clock() >= at_ns
    # The machine is served again after its next boot, over new connections.
    engine.connect(export_of("d0", "server")).write(BLOCK, 4096, False)
    assert read(ports["server2"], 4096) == BLOCK


def test_without_a_fence_both_machines_write(engine: Engine) -> None:
    ports = [engine.connect(export_of("d0", name)) for name in ("server", "server2")]
    for number, port in enumerate(ports):
        port.write(BLOCK, number * 4096, False)
    assert read(ports[1], 0, 8192) == 2 * BLOCK


@pytest.mark.parametrize("machine", ["server2", ""])
def test_only_a_machine_with_a_connection_of_its_own_is_fenced(engine: Engine, machine: str) -> None:
    ports = [engine.connect("d0"), engine.connect(export_of("d1", "server"))]
    with pytest.raises(RigError, match=f"no disk has a connection of machine {machine!r}"):
        engine.fence(machine)
    for port in ports:
        port.write(BLOCK, 0, False)


def test_a_fenced_request_that_waits_in_a_cut_fails_at_once(engine: Engine) -> None:
    port = engine.connect(export_of("d0", "server"))
    engine.fence("server")
    engine.freeze()
    assert isinstance(Caller(lambda: port.write(BLOCK, 0, True)).finish(), PowerLost)
    assert [one.pending for one in engine.resolve(CutPolicy.KEEP, 0)] == [0, 0]
