"""The times at which the write log records the begin and the effect of a request."""

from collections.abc import Callable
from pathlib import Path

import pytest

from raidproof.disk import connection as module
from raidproof.disk import disk_fault
from raidproof.disk.connection import Connection, PowerLost
from raidproof.disk.engine import Engine, set_disk_fault
from raidproof.disk.messages import MemberSpec
from raidproof.disk.writelog import Flag, Kind, Record, WriteLog

SIZE = 1 << 20
CAME, WAITED = 1000, 5_000_000
Request = Callable[[Connection], None]
REQUESTS: dict[Kind, Request] = {
    Kind.WRITE: lambda port: port.write(b"1" * 512, 0, fua=False),
    Kind.FLUSH: lambda port: port.flush(),
    Kind.DISCARD: lambda port: port.discard(0, 4096, fua=False),
    Kind.ZERO: lambda port: port.write_zeroes(0, 4096, fua=True),
}


class Clock:
    """A clock that advances only by the service times of the drive."""

    def __init__(self) -> None:
        self.now = CAME

    def __call__(self) -> int:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


def only(log: Path, kind: Kind) -> Record:
    (record,) = [one for one in WriteLog(log) if one.kind is kind]
    return record


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_is_logged_with_its_arrival_and_the_time_of_its_effect(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "pause", clock.pause)
    engine = Engine([MemberSpec("d0", SIZE)], clock=clock)
    engine.start_log(tmp_path / "log")
    set_disk_fault(engine, "d0", disk_fault.slow(5))
    REQUESTS[kind](engine.connect("d0"))
    engine.stop_log()
    record = only(tmp_path / "log", kind)
    assert (record.issued_ns, record.completed_ns) == (CAME, CAME + WAITED)


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_that_a_cut_caught_was_issued_before_it(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    engine = Engine([MemberSpec("d0", SIZE)], clock=clock)
    engine.start_log(tmp_path / "log")
    port = engine.connect("d0")
    engine.freeze()
    monkeypatch.setattr(engine, "wait_for_resolve", lambda _: clock.pause(0.005))
    with pytest.raises(PowerLost):
        REQUESTS[kind](port)
    engine.stop_log()
    record = only(tmp_path / "log", kind)
    assert (record.flags & Flag.IN_FLIGHT, record.issued_ns, record.completed_ns) == (Flag.IN_FLIGHT, CAME, 0)
