"""A delegation is recalled before another client opens the file, also after a restart of the server.

Each scenario reads on the server which delegations clients hold: a server grants them as it likes.
"""

from collections.abc import Callable

import pytest

from raidproof.core.errors import DeadlineExceeded, ProductError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.fault import ClientNetworkCut, Fault, NfsdRestart, PowerCut
from raidproof.storage.server import ExportSpec
from raidproof.verdict.delegations import judge_delegations
from raidproof.workload.lock import LockHolder
from scenarios.nfs.client_states import delegations_on
from scenarios.nfs.two_clients import LEASE_S, Clients, TwoClients, two_clients

EXPORT = ExportSpec(delegations=True, lease_s=LEASE_S, grace_s=LEASE_S)
FILE = "lent"
RECLAIM_FAILED = "reclaim failed"
RECLAIMED_S = 60.0
"""Seconds within which a client must have its delegation again: reclaiming takes less than a second."""
TRIED_S = 3.0
"""Seconds in which the other client tries to open the file before the holder returns: less than the grace period."""
__all__ = ["two_clients"]


def holds(clients: TwoClients, holder: LockHolder, access: str) -> bool:
    """Return whether a client holds a delegation of the file on the server, with this access (``r``, ``w``)."""
    inode = int(clients.server.succeed(["stat", "--format=%i", clients.on_server(FILE)]))
    return (holder.client.address, access, inode) in delegations_on(clients.server)


def lent(clients: TwoClients) -> int:
    """Let the second client write a file under a write delegation; return the descriptor."""
    clients.end_grace()
    file = clients.two.open(clients.path(FILE))
    clients.two.do("write", file, "before").require("write")
    clients.two.do("fsync", file).require("fsync")
    clients.record_clients()
    assert holds(clients, clients.two, "w")
    return file


def must_read(holder: LockHolder, path: str, text: str) -> None:
    """Open and close a file on a client, and verify its content: what another client wrote and synced before.

    Raises:
        ProductError: the client reads other content.
    """
    file = holder.open(path, "read")
    found = holder.do("read", file, len(text)).require("read")
    holder.do("close", file).require("close")
    if found != text:
        raise ProductError(f"{holder.client.name} opened the file after {text!r} was synced, and read {found!r}")


@pytest.mark.parametrize(
    "fault",
    [NfsdRestart(), pytest.param(PowerCut(), marks=pytest.mark.exhaustive)],
    ids=lambda fault: fault.name,
)
def test_delegation_is_reclaimed_and_recalled_after_a(fault: Fault, two_clients: Clients) -> None:
    with two_clients(stack={"export": EXPORT}) as clients:
        file = lent(clients)
        clients.suffer(fault)
        wait_until(
            lambda: holds(clients, clients.two, "w"), Deadline.after(RECLAIMED_S), "the delegation to be reclaimed"
        )
        clients.end_grace()
        clients.two.do("write", file, "after ").require("write")
        clients.two.do("fsync", file).require("fsync")
        must_read(clients.one, clients.path(FILE), "after ")
        assert not holds(clients, clients.two, "w")
        # While a file is open for writing, Linux's client keeps its cache also if the server's file has changed.
        clients.two.do("close", file).require("close")
        other = clients.one.open(clients.path(FILE))
        clients.one.do("write", other, "theirs").require("write")
        clients.one.do("close", other).require("close")
        must_read(clients.two, clients.path(FILE), "theirs")
    counts = clients.must(judge_delegations, LEASE_S)
    assert "reclaimed: 1" in counts
    assert "recalled: 1" in counts


@pytest.mark.exhaustive
def test_read_delegations_are_recalled_before_another_client_writes(two_clients: Clients) -> None:
    with two_clients(stack={"export": EXPORT}) as clients:
        clients.server.put("before", clients.on_server(FILE))
        clients.server.succeed(["chmod", "0666", clients.on_server(FILE)])
        clients.end_grace()
        readers = (clients.one, clients.two)
        files = [reader.open(clients.path(FILE), "read") for reader in readers]
        for reader, file in zip(readers, files, strict=True):
            assert reader.do("read", file, 6).require("read") == "before"
        clients.record_clients()
        assert all(holds(clients, reader, "r") for reader in readers)
        clients.suffer(NfsdRestart())
        wait_until(
            lambda: all(holds(clients, reader, "r") for reader in readers),
            Deadline.after(RECLAIMED_S),
            "the delegations to be reclaimed",
        )
        clients.end_grace()
        writing = clients.two.open(clients.path(FILE))
        assert not holds(clients, clients.one, "r")
        clients.two.do("write", writing, "after ").require("write")
        clients.two.do("close", writing).require("close")
        must_read(clients.one, clients.path(FILE), "after ")
    counts = clients.must(judge_delegations, LEASE_S)
    assert "recalled: 1" in counts
    assert "reclaimed: 2" in counts


def restart_without_the_holder(clients: TwoClients, then: Callable[[], None]) -> None:
    """Restart nfsd while the holder of a delegation is disconnected, for much less than the grace period.

    ``then`` is called after the restart. The other client tries to open the file meanwhile.
    """
    file = lent(clients)
    cut = ClientNetworkCut(held_s=0)
    cut.inject(clients.context)
    clients.context.stack.export.restart()
    then()
    clients.one.begin("open", clients.path(FILE), "write")
    granted = answered_within(clients.one, TRIED_S)
    cut.heal(clients.context)
    clients.rouse()
    clients.two.do("write", file, "mine")
    clients.two.do("fsync", file)
    clients.end_grace()
    if not granted:
        clients.one.ended().require("open")


def answered_within(client: LockHolder, seconds: float) -> bool:
    """Return whether the client's request has an answer within some seconds."""
    try:
        client.ended(seconds)
    except DeadlineExceeded:
        return False
    return True


@pytest.mark.exhaustive
def test_delegation_of_a_client_that_reconnects_in_time_is_recalled(two_clients: Clients) -> None:
    with two_clients(stack={"export": EXPORT}) as clients:
        restart_without_the_holder(clients, lambda: None)
    assert "reclaimed: 1" in clients.must(judge_delegations, LEASE_S)


@pytest.mark.exhaustive
def test_server_that_gives_a_delegated_file_away_in_its_grace_period_is_found(two_clients: Clients) -> None:
    with two_clients(stack={"export": EXPORT}, may_say=RECLAIM_FAILED) as clients:

        def skip() -> None:
            clients.server.put("Y", "/proc/fs/nfsd/v4_end_grace")
            clients.end_grace()

        restart_without_the_holder(clients, skip)
    with pytest.raises(ProductError, match=r"delegation: .* opened the file"):
        clients.must(judge_delegations, LEASE_S)
