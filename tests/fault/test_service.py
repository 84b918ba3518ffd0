from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.fault import Fault, FaultContext, NfsdKilled, NfsdRestart, ServerRestart
from raidproof.lab.lab import Lab
from raidproof.storage.server import Export, ExportSpec, Outage, Server, ServerState
from raidproof.storage.stack import Stack
from tests.guest_files import FilesByCommands

IGNORED = "Name:\tnfsd\nSigBlk:\t0000000000000000\nSigIgn:\tffffffffffffffff\nSigCgt:\t0000000000000000\n"
"""Output of nfsd on Linux 6.1.176."""
TAKEN = IGNORED.replace("SigIgn:\tffffffffffffffff", "SigIgn:\tfffffffffffffef8")


class Machine(FilesByCommands):
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


def context(machine: Machine, export: Server | None = None) -> FaultContext:
    export = export or Export(ExportSpec(), machine)  # type: ignore[arg-type]
    return FaultContext(cast("Lab", SimpleNamespace(server=machine)), cast("Stack", SimpleNamespace(export=export)))


@pytest.mark.parametrize(
    ("status", "end", "said"),
    [(IGNORED, "rpc.nfsd 0", "8 nfsd threads stopped"), (TAKEN, "pkill -KILL --exact nfsd", "8 nfsd threads killed")],
)
def test_the_service_is_killed_and_proved_dead(status: str, end: str, said: str) -> None:
    server = Machine(status=status)
    assert said in NfsdKilled().inject(context(server)).proof
    assert server.done[1:] == ["pkill -KILL --exact nfsdcld", "pkill -KILL --exact rpc.mountd", end]


def test_daemons_are_back_before_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Machine()
    monkeypatch.setattr(Export, "restart", lambda _: server.done.append("restart"))
    NfsdKilled().heal(context(server))
    assert server.done == ["nfsdcld", "rpc.mountd", "restart"]


def test_the_threads_go_and_come(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Machine()
    monkeypatch.setattr(Export, "restart", lambda _: server.done.append("restart"))
    fault = NfsdRestart()
    assert fault.inject(context(server)).proof == "0 nfsd threads, for 0 s"
    fault.heal(context(server))
    assert server.done == ["rpc.nfsd 0", "restart"]


def test_where_nothing_runs_nothing_can_be_killed() -> None:
    with pytest.raises(RigError, match="no nfsd threads"):
        NfsdKilled().inject(context(Machine(threads=0)))


def test_a_restart_is_an_orderly_one() -> None:
    server = Machine()
    assert ServerRestart().inject(context(server)).proof == "powered off by itself, for 0 s"
    assert server.done == ["shutdown"]


class Unstoppable(Server):
    """A server that can only be restarted."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def activate(self) -> ServerState:
        raise NotImplementedError

    def restart(self) -> ServerState:
        self.machine.done.append("toyd")
        return cast("ServerState", None)

    end_grace = deactivate = applied = require_effective = activate  # type: ignore[assignment]


class Toy(Unstoppable):
    """A server that can be stopped, too."""

    def halt(self) -> Outage:
        self.machine.done.append("toyd --stop")
        return Outage(7, "toyd is stopped")

    def kill(self) -> Outage:
        self.machine.done.append("pkill -KILL toyd")
        return Outage(8, "toyd is dead")


@pytest.mark.parametrize(
    ("fault", "how", "at_ns", "proof"),
    [
        (NfsdRestart(), "toyd --stop", 7, "toyd is stopped, for 0 s"),
        (NfsdKilled(), "pkill -KILL toyd", 8, "toyd is dead, for 0 s"),
    ],
)
def test_another_server_gets_the_same_faults(fault: Fault, how: str, at_ns: int, proof: str) -> None:
    machine = Machine()
    there = context(machine, Toy(machine))
    event = fault.inject(there)
    assert (event.at_ns, event.proof) == (at_ns, proof)
    fault.heal(there)
    assert machine.done == [how, "toyd"]


def test_a_server_that_cannot_be_stopped_lacks_a_requirement() -> None:
    machine = Machine()
    for fault in (NfsdRestart(), NfsdKilled()):
        with pytest.raises(RequirementMissing, match="Unstoppable has no command"):
            fault.inject(context(machine, Unstoppable(machine)))
