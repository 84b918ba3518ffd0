"""An open file stays usable after a fault of the server; data written before close are read after the next open."""

import pytest

from raidproof.fault import ClientPowerCut, Fault, NfsdRestart, PowerCut
from raidproof.storage.server import ExportSpec
from raidproof.verdict.delegations import judge_delegations
from scenarios.nfs.two_clients import LEASE_S, Clients, two_clients

GENERATIONS = 20
GONE = "NFSv4: state recovery failed for open file /gone, error = -116"
"""Message of the client's kernel about the file that was removed while the client had it open."""
__all__ = ["two_clients"]


@pytest.mark.parametrize("fault", [NfsdRestart(), PowerCut()], ids=lambda fault: fault.name)
def test_open_file_is_usable_after_a_fault_and_a_removed_file_is_stale(fault: Fault, two_clients: Clients) -> None:
    with two_clients(may_say=GONE) as clients:
        holder = clients.one
        kept, gone = (holder.open(clients.path(name)) for name in ("kept", "gone"))
        for file in (kept, gone):
            holder.do("write", file, "before").require("write")
            holder.do("fsync", file).require("fsync")
        clients.suffer(fault, meanwhile=lambda: clients.server.succeed(["rm", clients.on_server("gone")]))
        holder.do("write", kept, " and after", 6).require("write")
        holder.do("fsync", kept).require("fsync")
        assert clients.read_on_server("kept") == "before and after"
        # EBADF: the client could not reclaim the open (NFS_CONTEXT_BAD in fs/nfs); see docs/findings.md.
        assert holder.do("write", gone, "lost").error in {"ESTALE", "EBADF"}
        assert holder.do("read", gone, 6).error == "ESTALE"
        assert holder.do("open", clients.path("gone"), "read").error == "ENOENT"


def test_data_written_before_close_are_seen_by_another_client_after_a_power_cut(two_clients: Clients) -> None:
    with two_clients() as clients:
        writer, reader = clients.one, clients.two

        def write(generation: int) -> None:
            file = writer.open(clients.path("shared"), "new")
            writer.do("write", file, f"{generation:08}").require("write")
            writer.do("close", file).require("close")

        def read() -> int:
            file = reader.open(clients.path("shared"), "read")
            found = reader.do("read", file, 8).require("read")
            reader.do("close", file).require("close")
            return int(found)

        write(1)
        # After this read, the reader's cache has the old content.
        assert read() == 1
        for generation in range(2, GENERATIONS):
            write(generation)
        clients.suffer(PowerCut())
        assert read() == GENERATIONS - 1
        write(GENERATIONS)
        assert read() == GENERATIONS


def test_lock_and_delegation_of_a_client_without_power_are_revoked(two_clients: Clients) -> None:
    with two_clients(stack={"export": ExportSpec(lease_s=LEASE_S, grace_s=LEASE_S)}) as clients:
        clients.end_grace()
        file = clients.two.open(clients.path("lent"))
        clients.two.do("write", file, "lent").require("write")
        clients.two.do("fsync", file).require("fsync")
        held, wanted = (holder.open(clients.path("locked")) for holder in (clients.two, clients.one))
        clients.two.do("lock", held, "write").require("lock")
        fault = ClientPowerCut()
        fault.inject(clients.context)
        assert clients.one.do("lock", wanted, "write").error == "EAGAIN"
        mine = clients.one.open(clients.path("lent"))
        assert clients.one.do("read", mine, 4).require("read") == "lent"
        clients.one.do("write", mine, "mine").require("write")
        clients.one.do("fsync", mine).require("fsync")
        assert clients.read_on_server("lent") == "mine"
        clients.one.do("lock", wanted, "write").require("lock")
        fault.heal(clients.context)
        clients.context.stack.activate_client(clients.two.client.name)
    assert "revoked: 1" in clients.must(judge_delegations, LEASE_S)
