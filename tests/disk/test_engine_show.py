"""Showing a write log on members: base plus log, and back to the base, compared with bytes in memory."""

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.client import EngineClient
from raidproof.disk.control import ControlServer
from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec, Power
from raidproof.disk.writelog import Flag, Kind, LogWriter, MemberInfo

SECTOR = 512
SIZE = 3 << 16
SERIALS = ("d0", "d1")
Piece: TypeAlias = tuple[int, Kind, int, int, int]
"""Member, kind, first sector, sectors, value."""

pieces = st.builds(
    lambda member, kind, start, sectors, value: (member, kind, start, min(sectors, SIZE // SECTOR - start), value),
    st.integers(0, 1),
    st.sampled_from([Kind.WRITE, Kind.ZERO, Kind.DISCARD]),
    st.integers(0, SIZE // SECTOR - 1),
    st.integers(1, 200),
    st.integers(0, 255),
)
patches = st.lists(pieces, max_size=8)
steps: st.SearchStrategy[tuple[str, list[Piece]]] = st.one_of(
    st.tuples(st.just("guest"), patches),
    st.tuples(st.sampled_from(["show", "keep"]), patches),
    st.tuples(st.just("cut"), st.just([])),
)


def engine_of(mode: CacheMode = CacheMode.LYING, serials: tuple[str, ...] = SERIALS, size: int = SIZE) -> Engine:
    return Engine([MemberSpec(serial, size, mode) for serial in serials])


def write_log(path: Path, patch: list[Piece], serials: tuple[str, ...] = SERIALS, size: int = SIZE) -> Path:
    mode = CacheMode.LYING
    log = LogWriter(path, [MemberInfo(serial, size, mode, mode) for serial in serials], 0, blank=False)
    for member, kind, start, sectors, value in patch:
        offset, length = start * SECTOR, sectors * SECTOR
        if kind is Kind.WRITE:
            log.write(0, member, offset, (1, 2), bytes([value]) * length)
        else:
            log.note(kind, 0, member, (offset, length), (1, 2))
    log.close(3)
    return path


def plain(disks: list[bytearray], patch: list[Piece]) -> None:
    for member, kind, start, sectors, value in patch:
        content = bytes([value if kind is Kind.WRITE else 0]) * (sectors * SECTOR)
        disks[member][start * SECTOR : (start + sectors) * SECTOR] = content


def ask(engine: Engine, patch: list[Piece]) -> None:
    """Write as a guest does, with flushes and forced writes."""
    for member, kind, start, sectors, value in patch:
        port = engine.connect(SERIALS[member])
        offset, length = start * SECTOR, sectors * SECTOR
        if kind is Kind.WRITE:
            port.write(bytes([value]) * length, offset, value % 2 == 0)
        elif kind is Kind.ZERO:
            port.write_zeroes(offset, length, value % 2 == 0)
        else:
            port.discard(offset, length, False)
        if value % 3 == 0:
            port.flush()


def seen(engine: Engine) -> list[bytes]:
    return [bytes(drive.member.image(durable=False).view(0, SIZE)) for drive in engine.drives]


@given(st.lists(steps, max_size=8))
def test_what_is_seen_is_the_base_and_the_last_log(run: list[tuple[str, list[Piece]]]) -> None:
    engine, numbers = engine_of(), count()
    base = [bytearray(SIZE), bytearray(SIZE)]
    now = [bytearray(disk) for disk in base]
    with tempfile.TemporaryDirectory() as folder:
        for what, patch in run:
            if what == "guest":
                if engine.describe().power is Power.OFF:
                    engine.power_on()
                ask(engine, patch)
                plain(now, patch)
            elif what == "cut":
                if engine.describe().power is Power.ON:
                    engine.freeze()
                    engine.resolve(CutPolicy.DROP, 0)
                    now = [bytearray(disk) for disk in base]
            else:
                log = write_log(Path(folder, str(next(numbers))), patch)
                power = engine.describe().power
                engine.show(log, keep=what == "keep")
                assert engine.describe().power is power
                now = [bytearray(disk) for disk in base]
                plain(now, patch)
                if what == "keep":
                    base = [bytearray(disk) for disk in now]
            assert seen(engine) == [bytes(disk) for disk in now]
            assert [bytes(drive.member.image().view(0, SIZE)) for drive in engine.drives] == [bytes(b) for b in base]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[EngineClient]:
    ControlServer(engine_of(), tmp_path / "control").start()
    with EngineClient(tmp_path / "control") as client:
        yield client


def test_over_the_socket_without_power_and_after_more_than_the_notes_hold(tmp_path: Path) -> None:
    size = 80 << 20
    engine = engine_of(size=size)
    ControlServer(engine, tmp_path / "control").start()
    base, other = b"base" * 1024, b"more" * (1 << 18)
    writer = LogWriter(
        tmp_path / "base", [MemberInfo(s, size, CacheMode.LYING, CacheMode.LYING) for s in SERIALS], 0, blank=False
    )
    for at in range(0, size, len(other)):
        writer.write(0, 1, at, (1, 2), base * 256)
    writer.close(3)
    with EngineClient(tmp_path / "control") as client:
        client.show(tmp_path / "base", keep=True)
        port = engine.connect("d1")
        for at in range(0, size, len(other)):
            port.write(other, at, True)
        client.freeze()
        client.resolve(CutPolicy.DROP)
        client.show(write_log(tmp_path / "patch", [(1, Kind.ZERO, 0, 1, 0)], size=size))
        client.power_on()
        fresh, buffer = engine.connect("d1"), bytearray(size)
        fresh.read(memoryview(buffer), 0)
    assert buffer[:SECTOR] == bytes(SECTOR)
    assert buffer[SECTOR:4096] == base[SECTOR:]
    assert buffer[4096:] == base * (size // len(base) - 1)


def test_what_was_in_flight_is_not_shown(tmp_path: Path) -> None:
    mode = CacheMode.LYING
    log = LogWriter(tmp_path / "log", [MemberInfo(serial, SIZE, mode, mode) for serial in SERIALS], 0)
    log.write(Flag.IN_FLIGHT, 0, 0, (1, 0), b"x" * SECTOR)
    log.close(2)
    engine = engine_of()
    engine.show(tmp_path / "log")
    assert seen(engine) == [bytes(SIZE)] * 2


@pytest.mark.parametrize(
    ("serials", "size", "words"),
    [
        (("d1", "d0"), SIZE, r"members d1 \(196608 bytes\), d0 .*; the engine has d0 "),
        (("d0",), SIZE, "members d0"),
        (SERIALS, SIZE // 2, r"d0 \(98304 bytes\)"),
    ],
)
def test_a_log_of_other_members_is_refused(
    client: EngineClient, tmp_path: Path, serials: tuple[str, ...], size: int, words: str
) -> None:
    log = write_log(tmp_path / "log", [(0, Kind.WRITE, 0, 1, 1)], serials, size)
    with pytest.raises(RigError, match=words):
        client.show(log)


def test_a_log_that_cannot_be_shown_changes_nothing(tmp_path: Path) -> None:
    engine = engine_of()
    engine.connect("d0").write(b"x" * SECTOR, 0, False)
    before = seen(engine)
    whole = write_log(tmp_path / "whole", [(0, Kind.WRITE, 0, 9, 1)])
    (tmp_path / "short").write_bytes(whole.read_bytes()[:-80])
    infos = [MemberInfo(serial, SIZE, CacheMode.LYING, CacheMode.LYING) for serial in SERIALS]
    LogWriter(tmp_path / "times", infos, 0, data=False).close(1)
    beyond = write_log(tmp_path / "beyond", [(0, Kind.ZERO, SIZE // SECTOR - 1, 2, 0)])
    for path, words in [
        (tmp_path / "short", "no END record"),
        (tmp_path / "none", "No such file"),
        (tmp_path / "times", "no data"),
        (beyond, "record 0 reaches beyond the end"),
    ]:
        with pytest.raises(RigError, match=words):
            engine.show(path)
    assert seen(engine) == before


def test_disks_that_keep_what_is_flushed_frozen_ones_and_logged_ones_are_refused(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", [])
    engine = engine_of()
    engine.set_mode(["d1"], CacheMode.VOLATILE)
    with pytest.raises(RigError, match="must be lying on d1"):
        engine.show(log)
    engine.set_mode(["d1"], CacheMode.LYING)
    engine.start_log(tmp_path / "running")
    with pytest.raises(RigError, match="running is open"):
        engine.show(log)
    engine.stop_log()
    engine.freeze()
    with pytest.raises(RigError, match="resolve the cut first"):
        engine.show(log)
