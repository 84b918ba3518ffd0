from types import SimpleNamespace
from typing import cast

import pytest

from harness.errors import RequirementMissing, RigError
from harness.fault import NfsdKilled, Scene, ServerRestart
from harness.fault.service import version_of
from harness.lab import Lab
from harness.stack import Stack


class Server:
    """A server with so many nfsd threads, which die by a signal."""

    name = "server"

    def __init__(self, threads: int = 8, release: str = "6.1.176") -> None:
        self.threads, self.release = threads, release
        self.done: list[str] = []

    def get(self, _: str) -> str:
        return f"{self.threads}\n"

    def succeed(self, argv: list[str]) -> str:
        self.done.append(" ".join(argv))
        if argv[0] == "pkill":
            self.threads = 0
        return f"{self.release}\n"

    def shutdown(self) -> None:
        self.done.append("shutdown")


def scene(server: Server) -> Scene:
    return Scene(cast("Lab", SimpleNamespace(server=server)), cast("Stack", SimpleNamespace()))


def test_nfsd_is_killed_and_proved_dead() -> None:
    server = Server()
    injected = NfsdKilled().inject(scene(server))
    assert injected.proof == "8 nfsd threads killed, for 0 s"
    assert server.done[-1] == "pkill -KILL --exact nfsd"


def test_threads_that_take_no_signals_are_a_missing_requirement() -> None:
    server = Server(release="6.12.101")
    with pytest.raises(RequirementMissing, match=r"no signals on Linux 6\.12\.101"):
        NfsdKilled().inject(scene(server))
    assert not any("pkill" in one for one in server.done)


def test_where_nothing_runs_nothing_can_be_killed() -> None:
    with pytest.raises(RigError, match="no nfsd threads"):
        NfsdKilled().inject(scene(Server(threads=0)))


@pytest.mark.parametrize(("release", "version"), [("6.12.101", (6, 12)), ("6.1.0-9-amd64", (6, 1)), ("7.2.7", (7, 2))])
def test_the_version_of_a_release(release: str, version: tuple[int, ...]) -> None:
    assert version_of(release) == version


def test_a_restart_is_an_orderly_one() -> None:
    server = Server()
    assert ServerRestart().inject(scene(server)).proof == "powered off by itself, for 0 s"
    assert server.done == ["shutdown"]
