import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.crash.owner import (
    UNKNOWN,
    owner,
    parse_blockuse,
    parse_extents,
    parse_fsmap,
    parse_groups,
    parse_icheck,
    parse_ncheck,
)
from raidproof.storage.filesystem import Ext4Spec, FilesystemSpec, XfsSpec
from tests.guest_files import FilesByCommands

TEXTS = Path(__file__).parents[1] / "data"
XFS = {path.stem: path.read_text() for path in (TEXTS / "xfsprogs").glob("*.txt")}
EXT4 = {path.stem.removeprefix("debugfs-1.47.2-"): path.read_text() for path in (TEXTS / "e2fsprogs").glob("*.txt")}
FSMAP, NO_RMAPBT = XFS["fsmap-6.13"], XFS["fsmap-6.13-no-rmapbt"]


class Server(FilesByCommands):
    """A machine that answers as a real one has, by the beginning of the command."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, **answers: str) -> None:
        self.answers = answers

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        said = next((text for start, text in self.answers.items() if start in " ".join(argv).replace(" ", "_")), None)
        return Completed(tuple(argv), 0 if said is not None else 1, said or "", "")

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        return self.run(argv).stdout


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


def test_fsmap_says_nothing_behind_the_end() -> None:
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


def test_blockuse_with_a_dirty_log_says_nothing() -> None:
    assert parse_blockuse(XFS["xfs_db-6.13-dirty-log"]) is None


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


XFS_ANSWERS = {"findmnt": "/dev/md0\n", "xfs_io": FSMAP, "find_": "f ledger/client1-0-fsync\n"}


@pytest.mark.parametrize(
    ("filesystem", "answers", "offset", "said"),
    [
        (XfsSpec(), XFS_ANSWERS, 200 * 512, "file /ledger/client1-0-fsync, bytes 4096-8191"),
        (XfsSpec(), {**XFS_ANSWERS, "find_": "d ledger/many\n"}, 440936 * 512, "directory /ledger/many"),
        (XfsSpec(), {"xfs_db": XFS["xfs_db-6.13-blockuse"]}, 200 * 512, "file /ledger/client1-0-fsync"),
        (
            XfsSpec(),
            {"findmnt": "/dev/md0\n", "xfs_io": NO_RMAPBT, "xfs_db": XFS["xfs_db-6.13-blockuse"]},
            200 * 512,
            "file /ledger/client1-0-fsync",
        ),
        # Another file system is mounted there, which would answer too.
        (XfsSpec(), {"findmnt": "/dev/vda\n", "xfs_io": FSMAP}, 200 * 512, UNKNOWN),
        (XfsSpec(), {"xfs_db": XFS["xfs_db-6.13-dirty-log"]}, 200 * 512, UNKNOWN),
        (
            Ext4Spec(),
            {"icheck": EXT4["icheck"], "ncheck": EXT4["ncheck"], "stat": EXT4["stat-file"]},
            32896 * 4096 + 904,
            "file /ledger/client1-0-fsync, bytes 0-4095",
        ),
        (
            Ext4Spec(),
            {"icheck": "3626\t13\n", "ncheck": EXT4["ncheck-directory"], "stat": EXT4["stat-directory"]},
            3626 * 4096,
            "directory /ledger",
        ),
        (Ext4Spec(), {"icheck": "65540\t8\n"}, 65540 * 4096, "ext4 journal"),
        (Ext4Spec(), {"dumpe2fs": EXT4["dumpe2fs-1.47.2-groups"]}, 123 * 4096, "inode table"),
        (Ext4Spec(), {}, 0, UNKNOWN),
    ],
)
def test_owner_in_words(filesystem: FilesystemSpec, answers: dict[str, str], offset: int, said: str) -> None:
    assert owner(Server(**answers), filesystem, "/dev/md0", "/srv/raidproof", offset) == said


def test_real_listing_is_read_whole() -> None:
    lines = [line for line in FSMAP.splitlines() if re.search(r"\[\d+\.\.\d+\]", line)]
    assert all(parse_fsmap(line, int(line.split("[")[1].split("..")[0]) * 512) for line in lines)
