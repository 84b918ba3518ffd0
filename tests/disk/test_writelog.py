"""The write log equals the content of the engine; a truncated or damaged log is detected."""

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raidproof.disk import writelog
from raidproof.disk.cache import CacheMode, CutPolicy, Member
from raidproof.disk.connection import Connection
from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec
from raidproof.disk.replay import DISCARD, FLUSH, FUA, MAGIC, MARK, cut_of, export_dm_log_writes, replay
from raidproof.disk.writelog import (
    ALL_MEMBERS,
    Flag,
    Joined,
    Kind,
    LogError,
    Records,
    Stored,
    WriteLog,
    data_of,
)

SECTOR = 512
SIZE = 1 << 18
SERIALS = ("d0", "d1")


class Clock:
    """A clock that advances by one at each call."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        self.now += 1
        return self.now


def engine_of(*modes: CacheMode) -> Engine:
    return Engine([MemberSpec(s, SIZE, m) for s, m in zip(SERIALS, modes, strict=False)], clock=Clock())


def bytes_of(member: Member, durable: bool) -> bytes:
    platter = member.image(durable)
    return bytes(platter.view(0, platter.size))


def images(engine: Engine) -> list[tuple[bytes, bytes]]:
    return [(bytes_of(d.member, True), bytes_of(d.member, False)) for d in engine.drives]


def act(engine: Engine, rng: Random) -> None:
    """Execute one action of a guest or of the harness."""
    port = engine.connect(rng.choice(SERIALS))
    start = rng.randrange(SIZE // SECTOR - 300) * SECTOR
    length = rng.choice([1, 8, 8, 8, 128, 300]) * SECTOR
    fua = rng.random() < 0.2
    actions: list[tuple[int, Callable[[], object]]] = [
        (12, lambda: port.write(rng.randbytes(length), start, fua)),
        (3, lambda: port.write(bytes(length), start, fua)),
        (3, port.flush),
        (2, lambda: port.discard(start, length, fua)),
        (2, lambda: port.write_zeroes(start, length, fua)),
        (1, lambda: engine.set_mode([port.serial], rng.choice([m for m in CacheMode if m is not CacheMode.NONE]))),
        (1, lambda: power_cycle(engine, rng)),
        (1, engine.reset),
    ]
    rng.choices([a for _, a in actions], [w for w, _ in actions])[0]()
    engine.disconnect(port)


def power_cycle(engine: Engine, rng: Random) -> None:
    engine.freeze()
    engine.resolve(rng.choice(list(CutPolicy)), rng.randrange(1000))
    engine.power_on()


@given(st.integers())
@settings(max_examples=60, deadline=None)
def test_replay_is_what_the_engine_holds_at_any_instant(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = Random(seed)
    path = tmp_path_factory.mktemp("log") / "log"
    engine = engine_of(CacheMode.VOLATILE, CacheMode.LYING)
    engine.start_log(path)
    instants = []
    for _ in range(rng.randrange(40)):
        act(engine, rng)
        instants.append((engine.mark("here"), images(engine)))
    engine.stop_log()
    log = WriteLog(path)
    for at_ns, expected in rng.sample(instants, min(4, len(instants))) + instants[-1:]:
        members = replay(log, at_ns)
        assert [(bytes_of(members[s], True), bytes_of(members[s], False)) for s in SERIALS] == expected


@given(st.integers(), st.sampled_from(CutPolicy))
@settings(max_examples=60, deadline=None)
def test_the_requests_that_survive_the_first_cut_are_those_of_the_engine(
    tmp_path_factory: pytest.TempPathFactory, seed: int, policy: CutPolicy
) -> None:
    rng = Random(seed)
    path = tmp_path_factory.mktemp("log") / "log"
    engine = engine_of(CacheMode.VOLATILE, CacheMode.VOLATILE)
    engine.start_log(path)
    port = {serial: engine.connect(serial) for serial in SERIALS}
    for _ in range(rng.randrange(40)):
        start, length = rng.randrange(SIZE // SECTOR - 8) * SECTOR, rng.choice([1, 8]) * SECTOR
        port[rng.choice(SERIALS)].write(rng.randbytes(length), start, fua=rng.random() < 0.2)
        if rng.random() < 0.1:
            port[rng.choice(SERIALS)].flush()
    engine.freeze()
    results = engine.resolve(policy, seed)
    engine.stop_log()
    log = WriteLog(path)
    found = cut_of(log)
    assert found is not None
    sizes = {record.sequence: record.length for record in log}
    for result in results:
        of = {sequence: sum(end - start for start, end in spans) for sequence, spans in found[result.serial].items()}
        assert len(of) == result.pending
        assert sum(size > 0 for size in of.values()) == result.kept
        assert sum(0 < size < sizes[sequence] for sequence, size in of.items()) == result.torn
        assert sum(sizes[sequence] - size for sequence, size in of.items()) == result.dropped_bytes


def test_a_log_without_a_power_cut_has_no_survivors(tmp_path: Path) -> None:
    written(tmp_path / "log")
    assert cut_of(WriteLog(tmp_path / "log")) is None


def written(path: Path, *, data: bool = True) -> Connection:
    engine = engine_of(CacheMode.VOLATILE, CacheMode.LYING)
    engine.start_log(path, data=data)
    port = engine.connect("d0")
    port.write(b"a" * SECTOR, 0, False)
    port.write(b"b" * SECTOR, SECTOR, True)
    port.discard(2 * SECTOR, 4 * SECTOR, False)
    port.flush()
    liar = engine.connect("d1")
    liar.write(b"c" * SECTOR, 0, True)
    liar.flush()
    engine.mark("half")
    closed = engine.stop_log()
    assert (closed.path, closed.records, closed.size_bytes, closed.error) == (str(path), 7, path.stat().st_size, None)
    return port


def test_round_trip(tmp_path: Path) -> None:
    written(tmp_path / "log")
    log = WriteLog(tmp_path / "log")
    records = list(log)
    assert log.ending is not None
    assert log.ending.complete
    assert [(r.kind, int(r.flags), r.member, r.offset, r.length, bytes(r.data[:1])) for r in records] == [
        (Kind.WRITE, 0, 0, 0, SECTOR, b"a"),
        (Kind.WRITE, Flag.FUA, 0, SECTOR, SECTOR, b"b"),
        (Kind.DISCARD, 0, 0, 2 * SECTOR, 4 * SECTOR, b""),
        (Kind.FLUSH, 0, 0, 0, 0, b""),
        (Kind.WRITE, Flag.FUA | Flag.LIED, 1, 0, SECTOR, b"c"),
        (Kind.FLUSH, Flag.LIED, 1, 0, 0, b""),
        (Kind.MARK, 0, ALL_MEMBERS, 0, 0, b"h"),
    ]
    assert [r.sequence for r in records] == list(range(7))
    times = [t for r in records for t in (r.issued_ns, r.completed_ns)]
    assert times == sorted(times)


@pytest.mark.parametrize("at", [0, 7, 8, 511, 1023])
def test_zeroes_take_no_room_and_anything_else_does(tmp_path: Path, at: int) -> None:
    engine = engine_of(CacheMode.VOLATILE)
    engine.start_log(tmp_path / "log")
    port = engine.connect("d0")
    almost = bytes(at) + b"x" + bytes(1023 - at)
    port.write(bytes(1024), 0, False)
    port.write(almost, 1024, False)
    engine.stop_log()
    zeroes, other = WriteLog(tmp_path / "log")
    assert zeroes.flags == Flag.ZEROES
    assert (zeroes.length, bytes(zeroes.data)) == (1024, bytes(1024))
    assert (other.flags, bytes(other.data)) == (Flag(0), almost)
    assert (tmp_path / "log").stat().st_size < 2048


def test_an_index_has_the_records_of_the_log_and_their_data(tmp_path: Path) -> None:
    written(tmp_path / "log")
    log = WriteLog(tmp_path / "log")
    records = list(log)
    before = records[0]._replace(sequence=-1, source=b"before")
    index = Records(log, [before])
    for record in records[1:]:
        index.append(record)
    assert list(index) == [before, *records[1:]]
    assert [index[number] for number in range(len(index))] == list(index)
    assert (index[-1], index[1:3]) == (records[-1], records[1:3])
    assert [one.data for one in index] == [b"before", *(one.data for one in records[1:])]
    with pytest.raises(IndexError):
        index[len(index)]
    with pytest.raises(IndexError):
        index[-len(index) - 1]


@pytest.mark.parametrize("span", [(0, 4), (4, 8), (3, 5), (0, 11), (8, 11), (9, 10), (5, 5)])
def test_a_part_of_data_in_any_place_is_that_part(tmp_path: Path, span: tuple[int, int]) -> None:
    start, end = span
    written(tmp_path / "log")
    first = next(iter(WriteLog(tmp_path / "log")))
    assert isinstance(first.source, Stored)
    text = b"abcdefghijk"
    joined = Joined((text[:4], text[4:8], text[8:] + b"?"), each=4, size=11)
    for source, whole in ((first.source, b"a" * SECTOR), (joined, text), (text, text), (None, bytes(11))):
        record = first._replace(source=source, length=len(whole))
        assert record.data == whole
        assert data_of(record.part(start, end)) == whole[start:end]


def test_the_data_of_a_log_stay_readable_without_its_file(tmp_path: Path) -> None:
    written(tmp_path / "log")
    first = next(iter(WriteLog(tmp_path / "log")))
    (tmp_path / "log").unlink()
    assert first.data == b"a" * SECTOR


def test_data_that_are_gone_are_no_data(tmp_path: Path) -> None:
    written(tmp_path / "log")
    first = next(iter(WriteLog(tmp_path / "log")))
    os.truncate(tmp_path / "log", 300)
    with pytest.raises(LogError, match="was truncated while it was read"):
        _ = first.data


def test_a_log_without_data_has_times_and_refuses_content(tmp_path: Path) -> None:
    written(tmp_path / "log", data=False)
    log = WriteLog(tmp_path / "log")
    first = next(iter(log))
    assert (first.flags, first.length, len(first.data)) == (Flag.NO_DATA, SECTOR, 0)
    with pytest.raises(LogError, match="no data"):
        replay(log)
    with pytest.raises(LogError, match="no data"):
        export_dm_log_writes(log, "d0", tmp_path / "out")


def test_a_truncated_log_is_detected_and_gives_its_complete_records(tmp_path: Path) -> None:
    written(tmp_path / "log")
    whole = (tmp_path / "log").read_bytes()
    records = [(r.kind, bytes(r.data)) for r in WriteLog(tmp_path / "log")]
    start = len(whole) - sum(40 + len(data) for _, data in records) - 40
    for size in range(start, len(whole), 7):
        (tmp_path / "cut").write_bytes(whole[:size])
        log = WriteLog(tmp_path / "cut")
        found = [(r.kind, bytes(r.data)) for r in log]
        assert found == records[: len(found)]
        assert log.ending is not None
        assert not log.ending.complete
        assert log.ending.records == len(found)
        assert size - log.ending.lost_bytes == start + sum(40 + len(data) for _, data in found)


def test_what_a_write_of_the_log_leaves_over_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "whole")
    writev, write = os.writev, os.write
    monkeypatch.setattr(os, "writev", lambda fd, parts: write(fd, b"".join(map(bytes, parts))[:7]))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:100]))
    written(tmp_path / "pieces")
    monkeypatch.setattr(os, "writev", writev)
    whole, pieces = (
        [(r.kind, r.flags, r.offset, bytes(r.data)) for r in WriteLog(tmp_path / name)] for name in ("whole", "pieces")
    )
    assert pieces == whole


def test_a_log_is_sent_to_the_disk_each_time_that_so_much_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(writelog, "_DROP", 4096)
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, at, length, _advice: sent.append((at, length)))
    member = writelog.MemberInfo("d0", SIZE, CacheMode.VOLATILE, CacheMode.VOLATILE)
    log = writelog.LogWriter(tmp_path / "log", [member], 0)
    for number in range(100):
        log.write(0, 0, number * SECTOR, (number, number), b"x" * SECTOR)
    log.close(100)
    size = (tmp_path / "log").stat().st_size
    assert size // 4096 - 2 <= len(sent) <= size // 4096
    # No byte is left out: each span goes back to before the one before it ended.
    assert all(after <= before + length for (before, length), (after, _) in pairwise(sent))


@pytest.mark.parametrize("size", [0, 10, 30])
def test_a_cut_off_header_is_no_log(tmp_path: Path, size: int) -> None:
    written(tmp_path / "log")
    (tmp_path / "cut").write_bytes((tmp_path / "log").read_bytes()[:size])
    with pytest.raises(LogError, match=r"too short|cut off"):
        WriteLog(tmp_path / "cut")


def test_damage_is_not_mistaken_for_the_end(tmp_path: Path) -> None:
    written(tmp_path / "log")
    damaged = bytearray((tmp_path / "log").read_bytes())
    damaged[-40 - 4 - 40 :] = bytes(84)
    (tmp_path / "log").write_bytes(damaged)
    with pytest.raises(LogError, match=r"damaged at byte \d+, after 6 records"):
        list(WriteLog(tmp_path / "log"))


def test_another_file_or_version_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "log")
    data = bytearray((tmp_path / "log").read_bytes())
    data[8:12] = struct.pack("<I", 9)
    (tmp_path / "newer").write_bytes(data)
    with pytest.raises(LogError, match="version 9"):
        WriteLog(tmp_path / "newer")
    (tmp_path / "other").write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(LogError, match="not a write log"):
        WriteLog(tmp_path / "other")


@pytest.mark.parametrize(
    "text",
    [
        b"no JSON",
        b"7",
        b"[7]",
        b'[{"size": 512, "mode": "volatile", "first_mode": "volatile"}]',
        b'[{"serial": "d0", "size": 512, "mode": "unheard of", "first_mode": "volatile"}]',
    ],
)
def test_members_that_make_no_sense_are_damage(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(struct.pack("<8sIIQI", writelog.MAGIC, writelog.VERSION, 0, 0, len(text)) + text)
    with pytest.raises(LogError, match=r"list of members .* is damaged"):
        WriteLog(path)


def test_a_log_begun_late_is_not_replayed(tmp_path: Path) -> None:
    engine = engine_of(CacheMode.VOLATILE)
    engine.connect("d0").write(b"x" * SECTOR, 0, False)
    engine.start_log(tmp_path / "log")
    engine.stop_log()
    with pytest.raises(LogError, match="not blank"):
        replay(WriteLog(tmp_path / "log"))


def entries(path: Path) -> list[tuple[int, int, int, bytes]]:
    """Read an export with an independent reader, written from the description of the format."""
    data = path.read_bytes()
    magic, version, count, sector = struct.unpack_from("<QQQI", data)
    assert (magic, version, sector) == (MAGIC, 1, SECTOR)
    at, found = SECTOR, []
    for _ in range(count):
        start, sectors, flags, text = struct.unpack_from("<QQQQ", data, at)
        size = 0 if flags & DISCARD else sectors * SECTOR
        found.append((flags, start, sectors, data[at + SECTOR :][:size] or data[at + 32 :][:text]))
        at += SECTOR + size
    assert at == len(data)
    return found


def test_export_orders_by_durability(tmp_path: Path) -> None:
    engine = engine_of(CacheMode.VOLATILE)
    engine.start_log(tmp_path / "log")
    port = engine.connect("d0")
    port.write(b"a" * SECTOR, 0, False)
    port.write(b"b" * SECTOR, SECTOR, False)
    port.write(b"c" * SECTOR, 2 * SECTOR, True)
    port.write(b"d" * SECTOR, 0, True)
    port.flush()
    engine.mark("here")
    port.discard(0, 2 * SECTOR, False)
    port.write_zeroes(2 * SECTOR, SECTOR, False)
    engine.freeze()
    engine.stop_log()
    log = WriteLog(tmp_path / "log")
    assert export_dm_log_writes(log, "d0", tmp_path / "out") == 8
    assert [(flags, at, sectors, data[:1]) for flags, at, sectors, data in entries(tmp_path / "out")] == [
        (FUA, 2, 1, b"c"),
        (0, 0, 1, b"a"),
        (FUA, 0, 1, b"d"),
        (0, 1, 1, b"b"),
        (FLUSH, 0, 0, b""),
        (MARK, 0, 0, b"h"),
        (DISCARD, 0, 2, b""),
        (0, 2, 1, b"\0"),
    ]
    with pytest.raises(LogError, match="'d9'; members: d0"):
        export_dm_log_writes(log, "d9", tmp_path / "out")


@pytest.mark.parametrize("seed", range(8))
def test_export_replays_to_the_engines_image(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    engine = engine_of(CacheMode.VOLATILE, CacheMode.LYING)
    engine.start_log(tmp_path / "log")
    ports = [engine.connect(s) for s in SERIALS]
    for _ in range(200):
        port, at, n = rng.choice(ports), rng.randrange(SIZE // SECTOR - 40) * SECTOR, rng.randrange(1, 40) * SECTOR
        fua, kind = rng.random() < 0.2, rng.random()
        if kind < 0.7:
            port.write(rng.randbytes(n), at, fua)
        elif kind < 0.8:
            port.flush()
        else:
            (port.discard if kind < 0.9 else port.write_zeroes)(at, n, fua)
    engine.stop_log()
    for serial, (_, seen) in zip(SERIALS, images(engine), strict=True):
        export_dm_log_writes(WriteLog(tmp_path / "log"), serial, tmp_path / "out")
        image = bytearray(SIZE)
        for flags, start, sectors, data in entries(tmp_path / "out"):
            if not flags & MARK:
                image[start * SECTOR : (start + sectors) * SECTOR] = (
                    bytes(sectors * SECTOR) if flags & DISCARD else data
                )
        assert image == seen
        if tool := shutil.which("replay-log"):
            (tmp_path / "disk").write_bytes(bytes(SIZE))
            command = [tool, "--log", str(tmp_path / "out"), "--replay", str(tmp_path / "disk")]
            subprocess.run(command, check=True, timeout=60)
            assert (tmp_path / "disk").read_bytes() == seen
