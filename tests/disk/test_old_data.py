"""Disks with old data at the beginning of a recording: every reader of a write log starts from the old data."""

import struct
from functools import reduce
from operator import xor
from pathlib import Path
from random import Random

import pytest

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.states import CrashState, Recording
from raidproof.disk import cache
from raidproof.disk.cache import CacheMode, CutPolicy, Member
from raidproof.disk.control import ControlServer
from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec, encode
from raidproof.disk.replay import export_dm_log_writes, replay
from raidproof.disk.sparse_image import OLD_DATA
from raidproof.disk.writelog import LogError, LogWriter, MemberInfo, WriteLog
from raidproof.storage.array import MdSpec, holders_of_old_data

SIZE = 1 << 18
OLD = OLD_DATA * (SIZE // len(OLD_DATA))
VOLATILE = CacheMode.VOLATILE
BLOCK = len(OLD_DATA)


def held(member: Member) -> bytes:
    return member.image(durable=False).content(0, SIZE)


@pytest.mark.parametrize("policy", CutPolicy)
@pytest.mark.parametrize("mode", [CacheMode.VOLATILE, CacheMode.LYING])
def test_a_cut_brings_old_data_back(policy: CutPolicy, mode: CacheMode, monkeypatch: pytest.MonkeyPatch) -> None:
    # So small that a lying disk's notes are merged too.
    monkeypatch.setattr(cache, "COALESCE_FROM", 8 * BLOCK)
    for seed in range(5):
        member, rng = Member("d0", SIZE, mode, old=True), Random(seed)
        for number in range(60):
            place = rng.randrange(SIZE // 512 - 64) * 512
            length = rng.randrange(1, 64) * 512
            if number % 5:
                member.write(bytes([number + 1]) * length, place)
            else:
                member.zero(place, length)
        last = held(member)
        member.cut(policy, rng)
        left = held(member)
        if policy is CutPolicy.DROP:
            assert left == OLD
        elif policy is CutPolicy.KEEP:
            assert left == last
        allowed = {bytes([number + 1]) * 512 for number in range(60)} | {bytes(512), OLD_DATA[:512]}
        assert {left[at : at + 512] for at in range(0, SIZE, 512)} <= allowed


def test_what_is_durable_without_later_writes_is_seen_beside_the_cache() -> None:
    member = Member("d0", SIZE, old=True)
    member.write(b"1" * 512, 4096)
    member.flush()
    member.write(b"2" * 512, 8192)
    member.zero(0, 512)
    durable = bytearray(OLD)
    durable[4096:4608] = b"1" * 512
    assert member.image().content(0, SIZE) == durable


def test_a_reset_chooses_the_disks_with_old_data(tmp_path: Path) -> None:
    engine = Engine([MemberSpec("d0", SIZE), MemberSpec("d1", SIZE)])
    server = ControlServer(engine, tmp_path / "control")
    assert server.answer(encode({"verb": "reset", "old": ["d1"]})) == {"result": None}
    assert [held(drive.member) for drive in engine.drives] == [bytes(SIZE), OLD]
    assert "refused" in server.answer(encode({"verb": "reset", "old": ["d2"]}))
    assert server.answer(encode({"verb": "reset"})) == {"result": None}
    assert [held(drive.member) for drive in engine.drives] == [bytes(SIZE)] * 2


def test_a_log_of_old_disks_gives_them_back(tmp_path: Path) -> None:
    engine = Engine([MemberSpec("d0", SIZE), MemberSpec("d1", SIZE)])
    engine.reset(["d1"])
    engine.start_log(tmp_path / "log")
    for drive in engine.drives:
        port = engine.connect(drive.spec.serial)
        port.write(b"1" * 512, 4096, False)
        port.discard(1 << 17, 1 << 17, False)
        port.flush()
        port.write(b"2" * 512, 4608, False)
    before = [held(drive.member) for drive in engine.drives]
    log = WriteLog(tmp_path / "log")
    assert (log.blank, [member.old for member in log.members]) == (True, [False, True])
    assert [held(member) for member in replay(log).values()] == before
    engine.reset(["d0"])
    engine.stop_log()
    assert [held(member) for member in replay(WriteLog(tmp_path / "log")).values()] == [OLD, bytes(SIZE)]


def test_only_logs_of_disks_with_old_data_have_the_newer_format(tmp_path: Path) -> None:
    for old in (False, True):
        LogWriter(tmp_path / str(old), [MemberInfo("d0", SIZE, VOLATILE, VOLATILE, old)], 0).close(1)
        assert (tmp_path / str(old)).read_bytes()[8] == 1 + old
        assert WriteLog(tmp_path / str(old)).members[0].old is old
    newer = bytearray((tmp_path / "True").read_bytes())
    newer[8] = 3
    (tmp_path / "newer").write_bytes(newer)
    with pytest.raises(LogError, match="version 3"):
        WriteLog(tmp_path / "newer")


def test_an_older_log_is_one_of_blank_disks(tmp_path: Path) -> None:
    LogWriter(tmp_path / "log", [MemberInfo("d0", SIZE, VOLATILE, VOLATILE)], 0).close(1)
    text = (tmp_path / "log").read_bytes()
    older = text.replace(b', "old": false', b"")
    assert len(older) == len(text) - 14
    (tmp_path / "older").write_bytes(older[:24] + (len(older) - 28 - 40).to_bytes(4, "little") + older[28:])
    assert not WriteLog(tmp_path / "older").members[0].old


def test_an_exported_log_begins_with_the_old_data(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log", [MemberInfo("d0", SIZE, VOLATILE, VOLATILE, True)], 0)
    log.write(0, 0, 512, (0, 1), b"3" * 512)
    log.close(2)
    export_dm_log_writes(WriteLog(tmp_path / "log"), "d0", tmp_path / "exported")
    exported, disk, at = (tmp_path / "exported").read_bytes(), bytearray(SIZE), 512
    for _ in range(int.from_bytes(exported[16:24], "little")):
        start, sectors, flags, _ = struct.unpack_from("<QQQQ", exported, at)
        assert flags == 0
        disk[start * 512 : (start + sectors) * 512] = exported[at + 512 : at + 512 + sectors * 512]
        at += 512 + sectors * 512
    assert disk == OLD[:512] + b"3" * 512 + OLD[1024:]


def test_a_state_has_old_data_wherever_the_recording_writes(tmp_path: Path) -> None:
    infos = [MemberInfo(f"d{number}", SIZE, VOLATILE, VOLATILE, number > 0) for number in range(3)]
    log = LogWriter(tmp_path / "log", infos, 0)
    log.write(0, 0, 4096, (0, 1), b"1" * 512)
    log.write(0, 1, 8192, (1, 2), b"2" * 4096)
    log.write(4, 2, 12288, (2, 0), b"3" * 4096)
    log.close(3)
    window = DiskStates(Recording(WriteLog(tmp_path / "log")))
    rows = {block * BLOCK: OLD_DATA for block in (1, 2, 3)}

    def content(state: CrashState, member: int) -> dict[int, bytes]:
        found = {at: window.read(state, member, at, BLOCK) for at in range(0, SIZE, BLOCK)}
        return {at: data for at, data in found.items() if any(data)}

    assert [content(CrashState(0), member) for member in range(3)] == [{}, rows, rows]
    empty = window.digest(CrashState(0))
    patch = window.move(2)
    assert set(patch.blocks) == {(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)}
    assert set(patch.blocks.values()) == {OLD_DATA}
    assert window.digest(CrashState(2)) == empty, "nothing of it is durable"
    assert not window.move(2).blocks, "told once"


@pytest.mark.parametrize(
    ("level", "count", "old"),
    [
        ("0", 3, 3),
        ("1", 3, 3),
        ("4", 4, 4),
        ("5", 4, 4),
        ("5", 5, 4),
        ("10", 4, 4),
        ("10", 5, 0),
        ("1+0", 4, 4),
        ("0+1", 4, 4),
        ("6", 4, 0),
    ],
)
def test_an_array_is_consistent_with_it(level: str, count: int, old: int) -> None:
    serials = tuple(f"d{number}" for number in range(count))
    chunk = {} if level == "1" else {"chunk_size": 65536}
    spec = MdSpec.model_validate({"level": level, "members": serials, "assume_clean": level != "0", **chunk})
    holders = holders_of_old_data(spec)
    assert holders == serials[:old]
    if level in {"4", "5", "6"}:
        assert reduce(xor, (int.from_bytes(OLD_DATA) for _ in holders), 0) == 0
    else:
        assert len(holders) in {0, count}, "copies agree"


def test_an_array_that_is_resynced_first_begins_blank() -> None:
    assert holders_of_old_data(MdSpec(level="5", members=("d0", "d1", "d2", "d3"))) == ()
