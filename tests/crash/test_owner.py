from collections.abc import Sequence
from pathlib import Path

import pytest

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.crash.owner import owner
from raidproof.storage.filesystem import Ext4Spec, FilesystemSpec, XfsSpec
from raidproof.storage.filesystem.filesystem import UNKNOWN
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
