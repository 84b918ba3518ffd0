from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.core.errors import RigError
from raidproof.fault import FaultContext, NfsdKilled, ServerRestart
from raidproof.lab.lab import Lab
from raidproof.storage.stack import Stack
from tests.guest_files import FilesByCommands

IGNORED = "Name:\tnfsd\nSigBlk:\t0000000000000000\nSigIgn:\tffffffffffffffff\nSigCgt:\t0000000000000000\n"
"""Output of nfsd on Linux 6.1.176."""
TAKEN = IGNORED.replace("SigIgn:\tffffffffffffffff", "SigIgn:\tfffffffffffffef8")


class Server(FilesByCommands):
    """A fake server with this number of nfsd threads, which end by command or by a signal."""

    name = "server"

    def __init__(self, threads: int = 8, status: str = IGNORED) -> None:
        self.threads, self.status = threads, status
        self.done: list[str] = []

    def get(self, path: str) -> str:
        return self.status if path == "/proc/771/status" else f"{self.threads}\n"

    def succeed(self, argv: list[str]) -> str:
        self.done.append(" ".join(argv))
        if self.done[-1] in {"rpc.nfsd 0", "pkill -KILL --exact nfsd"}:
            self.threads = 0
        return "771\n772\n"

    def shutdown(self) -> None:
        self.done.append("shutdown")


def context(server: Server) -> FaultContext:
    return FaultContext(cast("Lab", SimpleNamespace(server=server)), cast("Stack", SimpleNamespace()))


@pytest.mark.parametrize(
    ("status", "end", "said"),
    [(IGNORED, "rpc.nfsd 0", "8 nfsd threads stopped"), (TAKEN, "pkill -KILL --exact nfsd", "8 nfsd threads killed")],
)
def test_the_service_is_killed_and_proved_dead(status: str, end: str, said: str) -> None:
    server = Server(status=status)
    assert said in NfsdKilled().inject(context(server)).proof
    assert server.done[1:] == ["pkill -KILL --exact nfsdcld", "pkill -KILL --exact rpc.mountd", end]


def test_daemons_are_back_before_the_threads() -> None:
    server = Server()
    export = SimpleNamespace(restart=lambda: server.done.append("restart"))
    NfsdKilled().heal(
        FaultContext(cast("Lab", SimpleNamespace(server=server)), cast("Stack", SimpleNamespace(export=export)))
    )
    assert server.done == ["nfsdcld", "rpc.mountd", "restart"]


def test_where_nothing_runs_nothing_can_be_killed() -> None:
    with pytest.raises(RigError, match="no nfsd threads"):
        NfsdKilled().inject(context(Server(threads=0)))


def test_a_restart_is_an_orderly_one() -> None:
    server = Server()
    assert ServerRestart().inject(context(server)).proof == "powered off by itself, for 0 s"
    assert server.done == ["shutdown"]
