from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import RigError
from raidproof.crash.checker import Checker, config_of
from raidproof.crash.checker_worker import CheckerWorker, RecordingCursor
from raidproof.crash.owner import MOST_OWNERS, Piece, WriteOwner, WriteOwners, filesystem_of, owners_of
from raidproof.crash.states import CrashState
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.array.state import Area
from raidproof.storage.array.striping import ROW
from raidproof.storage.stack import StackSpec
from tests.crash.made_up import FakeChecker
from tests.crash.mirror import DATA, PAGE, MirrorRun
from tests.guest_files import FilesByCommands

LOG = "XFS log"
UNNAMED = WriteOwner(0, "data", Area.DATA, role=0, chunk=0)
"""The first block of the mirror's data, whose owner in the file system is not known."""
FSMAP = "\t0: 9:0 [0..1000000]: journalling log 1000001\n"


class Server(FilesByCommands):
    """A machine that does what it is told, but for what it refuses."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, *refuses: str) -> None:
        self.refuses = refuses
        self.did: list[str] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.did.append(argv[0])
        refused = argv[0] in self.refuses
        said = {"findmnt": "/dev/md0\n", "xfs_io": FSMAP, "xfs_db": "block 1 (0/1) type sb\n"}.get(argv[0], "")
        if argv[0] == "findmnt" and "mount" in self.refuses:
            said = ""
        return Completed(tuple(argv), int(refused), said, "")

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        ended = self.run(argv)
        if not ended.ok:
            raise CommandFailed(ended)
        return ended.stdout


class OnServer(FakeChecker, Checker):
    """A checker whose machine is made up."""

    def __init__(self, server: Server, level: str = "5") -> None:
        FakeChecker.__init__(self)
        self.stack = stack_of(level)
        self.config = config_of(self.stack, {})
        self.server = server

    @property
    def machine(self) -> Server:  # type: ignore[override]
        return self.server


def test_owners_are_asked_while_it_is_mounted() -> None:
    server = Server()
    assert owners_of(OnServer(server), [0, 4096]) == {0: LOG, 4096: LOG}
    assert server.did == ["mdadm", "mount", "findmnt", "xfs_io", "findmnt", "xfs_io", "umount", "mdadm"]


def test_what_does_not_mount_is_asked_by_other_means() -> None:
    server = Server("mount")
    assert owners_of(OnServer(server), [0]) == {0: "XFS superblock"}
    assert server.did == ["mdadm", "mount", "findmnt", "xfs_db", "mdadm"]


def test_of_an_array_of_arrays_and_of_no_machine_nothing_is_known() -> None:
    server = Server()
    assert owners_of(OnServer(server, "1+0"), [0]) == {}
    assert owners_of(FakeChecker(), [0]) == {}
    assert server.did == []


def test_of_a_thin_volume_whose_pool_places_the_data_nothing_is_known() -> None:
    server = Server()
    checker = OnServer(server)
    checker.stack = StackSpec.model_validate({**checker.stack.model_dump(mode="json"), "volume": "thin"})
    assert owners_of(checker, [0, 2 << 20]) == {}
    assert server.did == []


class Mirrored:
    """Belongings of the states of a mirror, asked of a made-up machine."""

    def __init__(self, folder: Path, server: Server) -> None:
        run = MirrorRun(folder / "mirror.log")
        run.create()
        for row in range(16):
            run.write(0, DATA + row * ROW, PAGE)
        self.cursor = RecordingCursor(run.recording())
        self.state = CrashState(len(self.cursor.recording.records))
        self.checker = OnServer(server)

    @contextmanager
    def asked(self) -> Iterator[WriteOwners]:
        @contextmanager
        def boot(_: int) -> Iterator[FakeChecker]:
            yield self.checker

        with CheckerWorker(1, boot) as worker:
            yield WriteOwners(worker, self.cursor)


def test_each_piece_has_its_stripe_and_its_owner(tmp_path: Path) -> None:
    mirrored = Mirrored(tmp_path, Server())
    with mirrored.asked() as belongs:
        known = belongs(mirrored.state, [Piece(0, DATA), Piece(0, DATA), Piece(0, 4096), Piece(1, DATA - 512)])
    assert known[Piece(0, DATA)] == WriteOwner(0, LOG, Area.DATA, role=0, chunk=0)
    assert known[Piece(0, 4096)] == WriteOwner(None, "md superblock", Area.SUPERBLOCK, role=0)
    assert known[Piece(1, DATA - 512)] == WriteOwner(None, "not used by md", Area.UNUSED, role=1)


def test_not_more_owners_are_asked_for_than_there_is_time_for(tmp_path: Path) -> None:
    mirrored = Mirrored(tmp_path, Server())
    pieces = [Piece(0, DATA + row * ROW) for row in range(MOST_OWNERS + 2)]
    with mirrored.asked() as belongs:
        owners = [one.owner for one in belongs(mirrored.state, pieces).values()]
    assert owners == [LOG] * MOST_OWNERS + ["data"] * 2


@pytest.mark.parametrize("refused", ["mdadm", "umount"])
def test_where_nobody_can_be_asked_the_stripe_is_told_all_the_same(tmp_path: Path, refused: str) -> None:
    mirrored = Mirrored(tmp_path, Server(refused))
    with mirrored.asked() as belongs:
        assert belongs(mirrored.state, [Piece(0, DATA)]) == {Piece(0, DATA): UNNAMED}


def test_a_checker_that_fails_tells_the_stripe_all_the_same(tmp_path: Path) -> None:
    mirrored = Mirrored(tmp_path, Server())

    def fail(_: int) -> None:
        raise RigError("gone")

    mirrored.checker.before_check = fail
    with mirrored.asked() as belongs:
        assert belongs(mirrored.state, [Piece(0, DATA)]) == {Piece(0, DATA): UNNAMED}


def test_before_there_is_a_superblock_nothing_is_known(tmp_path: Path) -> None:
    mirrored = Mirrored(tmp_path, Server())
    with mirrored.asked() as belongs:
        assert belongs(CrashState(0), [Piece(0, DATA)]) == {Piece(0, DATA): WriteOwner()}


def test_structures_are_those_of_the_checkers_file_system(tmp_path: Path) -> None:
    mirrored = Mirrored(tmp_path, Server())
    with mirrored.asked() as belongs:
        belongs(mirrored.state, [])
        assert belongs.structure_of(b"\xfe\xed\xba\xbe") == "XFS log record"
        assert belongs.structure_of(PAGE) is None


def test_a_checker_without_a_stack_names_no_structure(tmp_path: Path) -> None:
    assert filesystem_of(FakeChecker()) is None
    mirrored = Mirrored(tmp_path, Server())
    with mirrored.asked() as belongs, pytest.raises(RigError, match="is not booted"):
        belongs.structure_of(PAGE)
