"""The NFS client reports and repairs what a restart or a silence of the server does to the files of an application."""

from findings.answer import Record, conclude
from raidproof.core.errors import DeadlineExceeded, Inconclusive
from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import now_ns, pause
from raidproof.fault import NetworkCut, NfsdRestart, PowerCut
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import USUAL_LEASE_S, ExportSpec
from scenarios.nfs.client_states import delegations_on
from scenarios.nfs.two_clients import LEASE_S, Clients, two_clients

LINK = LinkSpec(rate=40_000_000)
"""So slow that the client still sends unstable writes when the server loses its power."""
BEFORE_S = 0.4
SIZE = 4 * MIB
FILES = 5
GONE = "NFSv4: state recovery failed for open file"
"""Message of the client's kernel about files that were removed while the client had them open."""
WRITEBACK = "/proc/sys/vm/dirty_writeback_centisecs"
SOFT = MountSpec(recovery="soft", retrans=1)
LIMIT_S = 20.0
"""Seconds in which a mount with timeo=30 and retrans=1 must report an error: nfs(5) says 9, 3 + 6."""
__all__ = ["two_clients"]


def test_close_writes_what_a_restarted_server_has_forgotten(two_clients: Clients, record: Record) -> None:
    with two_clients(link=LINK, stack={"mount": MountSpec(wsize=64 * KIB)}) as clients:
        writer = clients.one
        path = clients.path("file")
        file = writer.open(path)
        writer.do("pour", file, SIZE, "a").require("write")
        writer.do("fsync", file).require("fsync")
        usual = writer.client.get(WRITEBACK)
        writer.client.put("0", WRITEBACK)
        writer.do("pour", file, SIZE, "b").require("write")
        pause(BEFORE_S)
        # The client sends the rest after the restart, and then one COMMIT.
        clients.suffer(PowerCut(), meanwhile=lambda: writer.begin("close", file))
        closed = writer.ended().ok
        other = clients.two.open(path, "read")
        found = clients.two.do("letters", other).require("read")
        writer.client.put(usual, WRITEBACK)
        server = clients.server
    old = SIZE - found.get("b", 0)
    measured = (
        f"close {'succeeded' if closed else 'failed'}; then another client read {old} of {SIZE} bytes of old data"
    )
    conclude(record, server, measured, wrong=int(closed and old > 0), seen=int(closed), least=1)


def said(errors: list[str | None]) -> str:
    """Return the errors of some calls, each once."""
    return " or ".join(sorted({error or "no error" for error in errors}))


def test_a_removed_file_is_refused_with_one_error(two_clients: Clients, record: Record) -> None:
    with two_clients(may_say=GONE) as clients:
        names = [f"gone{number}" for number in range(FILES)]
        kept, *files = (clients.one.open(clients.path(name)) for name in ("kept", *names))
        for file in (kept, *files):
            clients.one.do("write", file, "before").require("write")
            clients.one.do("fsync", file).require("fsync")
        gone = ["rm", *map(clients.on_server, names)]
        clients.suffer(NfsdRestart(), meanwhile=lambda: clients.server.succeed(gone))
        # The client has recovered its state when this write has returned from the server.
        clients.one.do("write", kept, "after").require("write")
        clients.one.do("fsync", kept).require("fsync")
        wrote = [clients.one.do("write", file, "lost").error for file in files]
        read = [clients.one.do("read", file, 6).error for file in files]
        server = clients.server
    errors = {str(error) for error in (*wrote, *read)}
    measured = f"{FILES} removed files: writes get {said(wrote)}, reads get {said(read)}"
    conclude(record, server, measured, wrong=len(errors) - 1, seen=FILES, least=FILES)


def test_a_soft_mount_reports_a_silent_server(two_clients: Clients, record: Record) -> None:
    # With the shortest lease, fsync gets EIO after 12 s.
    export = ExportSpec(delegations=False, lease_s=USUAL_LEASE_S, grace_s=USUAL_LEASE_S)
    with two_clients(stack={"mount": SOFT, "export": export}, ruins=True) as clients:
        file = clients.one.open(clients.path("file"))
        clients.one.do("write", file, "before").require("write")
        clients.one.do("fsync", file).require("fsync")
        silence = NetworkCut(held_s=0)
        silence.inject(clients.context)
        clients.one.do("write", file, "silent").require("write")
        begin_ns = now_ns()
        clients.one.begin("fsync", file)
        try:
            error = clients.one.ended(LIMIT_S).error
        except DeadlineExceeded:
            error = None
        waited_s = (now_ns() - begin_ns) / 1e9
        silence.heal(clients.context)
        if error is None and waited_s < LIMIT_S:
            raise Inconclusive("fsync succeeded although the server was silent")
        measured = f"fsync on a soft mount of NFSv4.2 has {error or 'no error'} after {waited_s:.0f} s of silence"
        conclude(record, clients.server, measured, wrong=int(error is None), seen=1, least=1)


def test_a_client_writes_its_data_before_it_returns_a_delegation(two_clients: Clients, record: Record) -> None:
    with two_clients(stack={"export": ExportSpec(delegations=True, lease_s=LEASE_S, grace_s=LEASE_S)}) as clients:
        clients.end_grace()
        paths = [clients.path(f"lent{number}") for number in range(FILES)]
        files = [clients.two.open(path) for path in paths]
        for file in files:
            clients.two.do("write", file, "mine").require("write")
        lent = sum(access == "w" for _, access, _ in delegations_on(clients.server))
        others = [clients.one.open(path, "read") for path in paths]
        left = sum(access == "w" for _, access, _ in delegations_on(clients.server))
        read = [clients.one.do("read", other, 4).require("read") for other in others]
        server = clients.server
    if lent < FILES or left:
        raise Inconclusive(f"write delegations of {FILES} files: {lent} before the recall, {left} after it")
    wrong = sum(text != "mine" for text in read)
    measured = f"after the recall of {FILES} write delegations, another client does not read the data of {wrong} files"
    conclude(record, server, measured, wrong=wrong, seen=FILES, least=FILES)
