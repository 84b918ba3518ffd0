from errno import ENOSPC
from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.fault import FaultContext, FilesystemFull, InodesExhausted
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.stack import Stack
from tests.guest_files import FilesByCommands

REFUSED = "fallocate: fallocate failed: No space left on device\n"


class Server(FilesByCommands):
    """A fake server whose file system has this free space, the last part of which is reserved."""

    name = "server"

    def __init__(
        self, blocks: int = 100_000, reserved: int = 40_000, inodes: int = 10, *, honest: bool = True
    ) -> None:
        self.bytes, self.reserved, self.inodes, self.honest = blocks * 4096, reserved, inodes, honest
        self.done: list[str] = []
        self.given_back = 0

    def succeed(self, argv: list[str], **_: object) -> str:
        self.done.append(" ".join(argv))
        return f"{self.bytes // 4096} 4096 {self.inodes}\n"

    def run(self, argv: list[str], *, stdin: str = "", **_: object) -> Completed:
        if argv[0] == "xargs":
            wanted, self.inodes = len(stdin.split()), max(0, self.inodes - len(stdin.split()))
            assert wanted
            # Clients at work give some back.
            given, self.given_back = self.given_back, 0
            self.inodes += given
            return Completed(tuple(argv), 123, "", "touch: cannot touch '10': No space left on device\n", self.name)
        length = int(argv[4])
        refused = self.honest and length > self.bytes - self.reserved
        if not refused:
            self.bytes -= length
        return Completed(tuple(argv), int(refused), "", REFUSED if refused else "", self.name)


def context(server: Server) -> FaultContext:
    stack = SimpleNamespace(filesystem=SimpleNamespace(directory="/srv/x"))
    return FaultContext(cast("Lab", SimpleNamespace(server=server)), cast("Stack", stack))


def test_all_room_is_taken_and_more_is_refused() -> None:
    server = Server()
    injected = FilesystemFull(held_s=0).inject(context(server))
    assert server.bytes - server.reserved < 16 * 1024
    assert injected.proof.endswith("No space left")
    assert "sync /srv/x/.raidproof-filler" in server.done
    FilesystemFull().heal(context(server))
    assert server.done[-1] == "rm --force /srv/x/.raidproof-filler"


def test_space_beyond_the_reported_free_space_is_used_too() -> None:
    server = Server(reserved=0)
    said = server.bytes
    server.bytes += 3 << 20
    server.succeed = lambda *_, **__: f"{said // 4096} 4096 10\n"  # type: ignore[method-assign]
    FilesystemFull(held_s=0).inject(context(server))
    assert server.bytes < 32 * 1024


def test_what_is_to_be_left_is_left() -> None:
    server = Server(reserved=0)
    FilesystemFull(left=1 << 20, held_s=0).inject(context(server))
    assert server.bytes == 1 << 20


def test_no_more_can_be_left_than_there_is() -> None:
    with pytest.raises(RequestError, match="left is 1024GiB"):
        FilesystemFull(left=1 << 40).inject(context(Server()))


def test_room_that_never_ends_is_the_rigs_fault() -> None:
    with pytest.raises(RigError, match="is not full"):
        FilesystemFull(held_s=0).inject(context(Server(honest=False)))


def test_all_inodes_are_taken_and_one_more_is_refused() -> None:
    server = Server()
    assert "10 free inodes taken" in InodesExhausted(held_s=0).inject(context(server)).proof
    assert server.inodes == 0
    InodesExhausted().heal(context(server))
    assert server.done[-1] == "rm --recursive --force /srv/x/.raidproof-filler"


def test_an_inode_that_a_client_gives_back_is_taken_too() -> None:
    server = Server()
    server.given_back = 3
    InodesExhausted(held_s=0).inject(context(server))
    assert server.inodes == 0


def test_inodes_without_number_are_refused() -> None:
    with pytest.raises(RequestError, match="1,000,000 free inodes"):
        InodesExhausted().inject(context(Server(inodes=10**6)))


@pytest.mark.parametrize("fault", [FilesystemFull(), InodesExhausted()])
def test_clients_may_get_enospc(fault: FilesystemFull | InodesExhausted) -> None:
    assert fault.effects(stack_of()).errors == {ENOSPC}
