"""nfsd grants locks as soon as it serves opens, and keeps the locks of all clients over a power cut."""

import pytest

from findings.answer import Record, conclude
from raidproof.core.errors import DeadlineExceeded, Inconclusive
from raidproof.core.waiting import Deadline, now_ns
from raidproof.fault import ClientNetworkCut, NfsdRestart, PowerCut
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.workload.lock import LockHolder
from scenarios.nfs.two_clients import LEASE_S, Clients, TwoClients, two_clients

SOON_S = 3.0
"""Seconds in which a server that is ready opens or locks a file; a client repeats a refused LOCK within less."""
LOST = "Lock reclaim failed"
"""Message of a client's kernel about a lock that it has lost."""
LIMIT_S = 10.0
"""Seconds in which a client that returns to the server recovers and writes."""
GRACE_S = 15
"""Seconds of the grace period in the test with a shared file."""
__all__ = ["two_clients"]


def test_a_lock_is_granted_as_soon_as_a_file_opens(two_clients: Clients, record: Record) -> None:
    with two_clients() as clients:
        begin_ns = now_ns()
        file = clients.one.open(clients.path("locked"))
        opened_s = (now_ns() - begin_ns) / 1e9
        clients.one.do("lock", file, "write").require("lock")
        locked_s = (now_ns() - begin_ns) / 1e9 - opened_s
        server = clients.server
    if opened_s > SOON_S:
        raise Inconclusive(f"the open took {opened_s:.1f} s: nfsd's own grace period had not ended")
    measured = f"the open took {opened_s:.1f} s, and the lock {locked_s:.1f} s, with a grace period of {LEASE_S} s"
    conclude(record, server, measured, wrong=int(locked_s > SOON_S), seen=1, least=1)


def take(clients: TwoClients) -> tuple[int, int]:
    """Lock a file on the second client; return the descriptors of the second and of the first client.

    Raises:
        Inconclusive: the first client got the lock, too.
    """
    clients.end_grace()
    held, wanted = clients.two.open(clients.path("locked")), clients.one.open(clients.path("locked"))
    clients.two.do("lock", held, "write").require("lock")
    if clients.one.do("lock", wanted, "write").ok:
        raise Inconclusive("two clients had the lock at once before the fault")
    return held, wanted


def test_a_client_of_some_seconds_keeps_its_lock_after_a_power_cut(two_clients: Clients, record: Record) -> None:
    with two_clients(may_say=LOST) as clients:
        # nfsdcld must store the record of the client with the lock as the last one.
        newest = clients.two.client
        newest.succeed(["umount", clients.path("")])
        clients.context.stack.activate_client(newest.name)
        held, wanted = take(clients)
        clients.suffer(PowerCut())
        clients.one.begin("lock", wanted, "write")
        clients.two.do("write", held, "mine")
        clients.two.do("fsync", held)
        clients.end_grace()
        lost = clients.one.ended().ok
        server = clients.server
    measured = f"after the power cut, the other client {'got' if lost else 'did not get'} the lock"
    conclude(record, server, measured, wrong=int(lost), seen=1, least=1)


# NFSv4 is the control.
@pytest.mark.parametrize("vers", ["3", "4.2"])
def test_a_client_keeps_its_lock_after_a_restart_of_nfsd(two_clients: Clients, record: Record, vers: str) -> None:
    with two_clients(stack={"mount": MountSpec(vers=vers)}) as clients:
        held, wanted = take(clients)
        clients.suffer(NfsdRestart())
        clients.two.do("write", held, "mine")
        clients.end_grace()
        lost = clients.one.do("lock", wanted, "write").ok
        wrote, synced = clients.two.do("write", held, "mine"), clients.two.do("fsync", held)
        clients.two.do("lock", held, "none")
        server = clients.server
    knows = not (wrote.ok and synced.ok)
    got = "got" if lost else "did not get"
    error = "got an error" if knows else "wrote without an error"
    measured = f"NFSv{vers}: after a restart of nfsd, another client {got} the lock, and the holder {error}"
    conclude(record, server, measured, wrong=int(lost and not knows), seen=1, least=1)


# Without delegations is the control.
@pytest.mark.parametrize("delegations", [True, False], ids=["delegations", "no-delegations"])
def test_clients_that_share_a_file_do_not_wait_for_each_other(
    two_clients: Clients, record: Record, delegations: bool
) -> None:
    export = ExportSpec(delegations=delegations, lease_s=GRACE_S, grace_s=GRACE_S)
    with two_clients(stack={"export": export}, ruins=True) as clients:
        holders = (clients.one, clients.two)
        files = [holder.open(clients.path("shared")) for holder in holders]
        for holder, file in zip(holders, files, strict=True):
            holder.do("write", file, "before").require("write")
            holder.do("fsync", file).require("fsync")
        # The first client has recovered before the second one returns.
        cut = ClientNetworkCut(held_s=0)
        cut.inject(clients.context)
        clients.context.stack.export.restart()
        clients.one.do("write", files[0], "one").require("write")
        clients.one.do("fsync", files[0]).require("fsync")
        cut.heal(clients.context)
        waits = waits_for(clients.two, files[1])
        measured = (
            f"a client that returned after the other had recovered {'still waited' if waits else 'had written'} after "
            f"{LIMIT_S:g} s, with a grace period of {GRACE_S} s"
        )
        conclude(record, clients.server, measured, wrong=int(waits), seen=1, least=1)


def waits_for(client: LockHolder, file: int) -> bool:
    """Return whether the client does not write and sync a file in `LIMIT_S`."""
    deadline = Deadline.after(LIMIT_S)
    try:
        client.do("write", file, "two", deadline_s=deadline.remaining_s).require("write")
        client.do("fsync", file, deadline_s=deadline.remaining_s).require("fsync")
    except DeadlineExceeded:
        return True
    return False
