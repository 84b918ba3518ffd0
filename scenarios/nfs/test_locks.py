"""A lock survives the server's restart; a client that stays away for too long loses it and gets an error."""

from collections.abc import Callable

import pytest

from raidproof.core.errors import ProductError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.fault import ClientNetworkCut, Fault, MissedGrace, NfsdRestart, PowerCut
from raidproof.verdict.wire import judge_late_reclaim, judge_locks_kept
from raidproof.workload.lock import LockHolder
from scenarios.nfs.two_clients import LEASE_S, Clients, TwoClients, two_clients

RECLAIM_FAILED = "Lock reclaim failed"
"""Message in a client's kernel log when it loses a lock (nfs4_reclaim_open_state in fs/nfs/nfs4state.c)."""
__all__ = ["two_clients"]


def take(clients: TwoClients) -> tuple[int, int]:
    """Lock a file on the second client, and verify that the first client cannot lock it; return both descriptors."""
    clients.end_grace()
    held, wanted = clients.two.open(clients.path("locked")), clients.one.open(clients.path("locked"))
    clients.two.do("lock", held, "write").require("lock")
    clients.record_clients()
    assert clients.one.do("lock", wanted, "write").error == "EAGAIN"
    return held, wanted


def must_know_that_it_is_lost(holder: LockHolder, file: int) -> None:
    """Assert that write or fsync on a process's locked file gives EIO, after another client has got the lock.

    The write may succeed in the client's cache; then fsync must fail.
    """
    wrote, synced = holder.do("write", file, "mine"), holder.do("fsync", file)
    assert "EIO" in {wrote.error, synced.error}, f"write: {wrote}, fsync: {synced}"


@pytest.mark.parametrize("fault", [NfsdRestart(), PowerCut()], ids=lambda fault: fault.name)
def test_lock_is_still_held_after_a(fault: Fault, two_clients: Clients) -> None:
    with two_clients() as clients:
        held, wanted = take(clients)
        clients.suffer(fault)
        clients.one.begin("lock", wanted, "write")
        clients.two.do("write", held, "mine").require("write")
        clients.two.do("fsync", held).require("fsync")
        clients.end_grace()
        assert clients.one.ended().error == "EAGAIN"
        clients.two.do("lock", held, "none").require("unlock")
        clients.one.do("lock", wanted, "write").require("lock")
    clients.must(judge_locks_kept)


def test_lock_of_a_client_that_reconnects_in_time_is_still_held(two_clients: Clients) -> None:
    with two_clients() as clients:
        restart_without_the_holder(clients, lambda: None)
    clients.must(judge_locks_kept)


def test_server_that_skips_its_grace_period_is_found(two_clients: Clients) -> None:
    with two_clients(may_say=RECLAIM_FAILED) as clients:

        def skip() -> None:
            clients.server.put("Y", "/proc/fs/nfsd/v4_end_grace")
            clients.end_grace()

        restart_without_the_holder(clients, skip)
    with pytest.raises(ProductError, match="locks in grace: "):
        clients.must(judge_locks_kept)


def restart_without_the_holder(clients: TwoClients, then: Callable[[], None]) -> None:
    """Restart nfsd while the client with a lock is disconnected, for much less than the grace period.

    ``then`` is called after the restart. The other client tries to lock the file meanwhile.
    """
    held, wanted = take(clients)
    cut = ClientNetworkCut(held_s=0)
    cut.inject(clients.context)
    clients.context.stack.export.restart()
    then()
    clients.one.begin("lock", wanted, "write")
    cut.heal(clients.context)
    clients.rouse()
    clients.two.do("write", held, "mine")
    clients.two.do("fsync", held)
    clients.end_grace()
    clients.one.ended()


def test_client_that_missed_the_grace_period_loses_its_lock_and_gets_an_error(two_clients: Clients) -> None:
    with two_clients(may_say=RECLAIM_FAILED) as clients:
        held, wanted = take(clients)
        fault = MissedGrace()
        fault.inject(clients.context)
        clients.one.do("lock", wanted, "write").require("lock")
        fault.heal(clients.context)
        clients.rouse()
        must_know_that_it_is_lost(clients.two, held)
    clients.must(judge_late_reclaim, clients.context.lab.clients[1].address)


def test_lock_of_a_disconnected_client_is_granted_to_another_after_its_lease(two_clients: Clients) -> None:
    with two_clients(may_say=RECLAIM_FAILED) as clients:
        held, wanted = take(clients)
        fault = ClientNetworkCut()
        fault.inject(clients.context)
        assert clients.one.do("lock", wanted, "write").error == "EAGAIN"
        wait_until(
            lambda: clients.one.do("lock", wanted, "write").ok,
            Deadline.after(3 * LEASE_S),
            f"the lease of {clients.two.client.name} to end, so that {clients.one.client.name} gets the lock",
            0.5,
        )
        fault.heal(clients.context)
        clients.rouse()
        must_know_that_it_is_lost(clients.two, held)


# The two edge conditions of RFC 8881, section 8.4.3: a client that was disconnected must not reclaim a lock in the
# grace period of a restart if another client may have had the lock meanwhile. The server must have recorded this.


def test_lock_that_another_client_had_before_the_restart_is_not_reclaimed(two_clients: Clients) -> None:
    with two_clients(may_say=RECLAIM_FAILED) as clients:
        held, wanted = take(clients)
        cut = ClientNetworkCut(held_s=0)
        cut.inject(clients.context)
        wait_until(
            lambda: clients.one.do("lock", wanted, "write").ok,
            Deadline.after(3 * LEASE_S),
            f"the lease of {clients.two.client.name} to end, so that {clients.one.client.name} gets the lock",
            0.5,
        )
        come_back_in_the_grace_period(clients, cut, held, wanted)
    clients.must(judge_late_reclaim, clients.context.lab.clients[1].address)


@pytest.mark.exhaustive
def test_lock_of_a_client_that_missed_a_whole_grace_period_is_not_reclaimed_in_the_next_one(
    two_clients: Clients,
) -> None:
    with two_clients(may_say=RECLAIM_FAILED) as clients:
        held, wanted = take(clients)
        fault = MissedGrace()
        fault.inject(clients.context)
        clients.one.do("lock", wanted, "write").require("lock")
        come_back_in_the_grace_period(clients, fault, held, wanted)
    clients.must(judge_late_reclaim, clients.context.lab.clients[1].address)


def come_back_in_the_grace_period(clients: TwoClients, cut: ClientNetworkCut, held: int, wanted: int) -> None:
    """Let the first client write and unlock; restart the server, and connect the second client in its grace period.

    Assert that the process of the second client gets an error, and that what the first client wrote is unchanged.
    """
    clients.one.do("write", wanted, "theirs").require("write")
    clients.one.do("fsync", wanted).require("fsync")
    clients.one.do("lock", wanted, "none").require("unlock")
    clients.context.stack.export.restart()
    cut.heal(clients.context)
    clients.rouse()
    must_know_that_it_is_lost(clients.two, held)
    clients.end_grace()
    clients.one.do("lock", wanted, "write").require("lock")
    assert clients.read_on_server("locked").startswith("theirs")
