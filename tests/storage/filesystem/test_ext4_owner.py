from pathlib import Path

import pytest

from raidproof.storage.filesystem.ext4 import parse_extents, parse_groups, parse_icheck, parse_ncheck

TEXTS = Path(__file__).parents[2] / "data"
EXT4 = {path.stem.removeprefix("debugfs-1.47.2-"): path.read_text() for path in (TEXTS / "e2fsprogs").glob("*.txt")}


def test_debugfs_names_the_owner() -> None:
    assert parse_icheck(EXT4["icheck"], 32896) == 14
    assert parse_icheck(EXT4["icheck-metadata"], 109) is None
    assert parse_ncheck(EXT4["ncheck"], 14) == "/ledger/client1-0-fsync"
    assert parse_ncheck(EXT4["ncheck-directory"], 13) == "/ledger"
    assert parse_ncheck(EXT4["ncheck"], 1) is None
    assert parse_extents(EXT4["stat-file"], 32899) == 3
    assert parse_extents(EXT4["stat-directory"], 3626) == 0
    assert parse_extents(EXT4["stat-resize"], 2) is None
    assert parse_extents(EXT4["stat-resize"], 32770) == 2060


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (0, "primary superblock"),
        (50, "reserved gdt blocks"),
        (109, "block bitmap"),
        (116, "inode bitmap"),
        (130, "inode table"),
        (32768, "backup superblock"),
        (40000, "free space"),
        (32900, None),
    ],
)
def test_dumpe2fs_names_what_no_inode_has(block: int, said: str | None) -> None:
    assert parse_groups(EXT4["dumpe2fs-1.47.2-groups"], block) == said
