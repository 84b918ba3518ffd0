from pathlib import Path

from raidproof.crash.states import BLOCK, Patch
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import MemberInfo, WriteLog


def test_neighbours_are_joined_on_one_member_and_up_to_a_length() -> None:
    blocks = {(0, place): bytes([place % 251]) * BLOCK for place in (0, 1, 3)} | {(1, 4): b"x" * BLOCK}
    assert [(member, at, len(data)) for member, at, data in Patch.of(blocks).runs()] == [
        (0, 0, 2 * BLOCK),
        (0, 3 * BLOCK, BLOCK),
        (1, 4 * BLOCK, BLOCK),
    ]
    many = Patch({(0, place): bytes([place % 251]) * BLOCK for place in range(600)})
    runs = list(many.runs())
    assert [(at, len(data)) for _, at, data in runs] == [(0, 1 << 20), (1 << 20, 1 << 20), (1 << 21, 88 * BLOCK)]
    assert b"".join(data for _, _, data in runs) == b"".join(bytes([place % 251]) * BLOCK for place in range(600))


def test_the_later_patch_wins() -> None:
    first, later = Patch({(0, 0): b"1", (0, 1): b"1"}), Patch({(0, 1): b"2"})
    assert first.then(later).blocks == {(0, 0): b"1", (0, 1): b"2"}
    assert first.blocks[0, 1] == b"1"


def test_the_last_block_of_a_disk_may_be_cut_short(tmp_path: Path) -> None:
    info = MemberInfo("d0", BLOCK + 512, CacheMode.LYING, CacheMode.VOLATILE)
    Patch.of({(0, 0): bytearray(b"1" * BLOCK), (0, 1): bytearray(b"2" * BLOCK)}).write(tmp_path / "log", [info])
    log = WriteLog(tmp_path / "log")
    assert [(one.offset, bytes(one.data)) for one in log] == [(0, b"1" * BLOCK + b"2" * 512)]
    assert not log.blank
