import re
from pathlib import Path

import pytest

from raidproof.storage.filesystem.xfs import parse_blockuse, parse_fsmap

TEXTS = Path(__file__).parents[2] / "data"
XFS = {path.stem: path.read_text() for path in (TEXTS / "xfsprogs").glob("*.txt")}
FSMAP, NO_RMAPBT = XFS["fsmap-6.13"], XFS["fsmap-6.13-no-rmapbt"]


@pytest.mark.parametrize(
    ("sector", "said"),
    [
        (0, "static fs metadata"),
        (16, "per-AG metadata"),
        (130, "inodes"),
        (200, "inode 132, bytes 4096-8191"),
        (800, "free space"),
        (881720, "XFS log"),
    ],
)
def test_fsmap_names_the_owner(sector: int, said: str) -> None:
    found = parse_fsmap(FSMAP, sector * 512)
    assert str(found).removeprefix("file ") == said


def test_fsmap_has_no_owner_behind_the_end() -> None:
    assert parse_fsmap(FSMAP, 5_000_000 * 512) is None
    assert parse_fsmap("", 0) is None


def test_fsmap_without_a_reverse_mapping_does_not_know() -> None:
    found = parse_fsmap(NO_RMAPBT, 200 * 512)
    assert found is not None
    assert found.what == "unknown"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (XFS["xfs_db-6.13-blockuse"], "file /ledger/client1-0-fsync"),
        ("block 0 (0/0) type sb\n", "XFS superblock"),
        ("block 9 (0/9) type free1\n", "free space"),
    ],
)
def test_blockuse_names_the_owner(line: str, said: str) -> None:
    assert str(parse_blockuse(line)) == said


def test_blockuse_with_a_dirty_log_has_no_owner() -> None:
    assert parse_blockuse(XFS["xfs_db-6.13-dirty-log"]) is None


def test_real_listing_is_read_whole() -> None:
    lines = [line for line in FSMAP.splitlines() if re.search(r"\[\d+\.\.\d+\]", line)]
    assert all(parse_fsmap(line, int(line.split("[")[1].split("..")[0]) * 512) for line in lines)
