"""A restarted server may lose unstable writes: its write verifier must change, and clients must resend the writes."""

import pytest

from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import Deadline, wait_until
from raidproof.fault import Fault, NfsdRestart, PowerCut
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec
from raidproof.verdict.wire import judge_resent, judge_verifier
from scenarios.nfs.two_clients import Clients, TwoClients, two_clients

SIZE = 8 * MIB
LINK = LinkSpec(rate=40_000_000)
"""A link on which the data take 1.7 s. The client sends a COMMIT only afterwards, thus after the fault."""
UNSTABLE = 1 * MIB
"""Number of bytes that the server has received before the fault, without a COMMIT."""
RECEIVED_S = 60.0
"""Time limit in seconds for the server to receive them."""
__all__ = ["two_clients"]


@pytest.mark.parametrize(
    ("fault", "vers"),
    [
        pytest.param(NfsdRestart(), "4.2", id="nfsd-restart"),
        pytest.param(PowerCut(), "4.2", id="power-cut"),
        pytest.param(NfsdRestart(), "3", id="nfsd-restart-v3"),
        pytest.param(PowerCut(), "3", id="power-cut-v3", marks=pytest.mark.exhaustive),
    ],
)
def test_unstable_writes_are_sent_again_after_a(fault: Fault, vers: str, two_clients: Clients) -> None:
    mount = MountSpec.model_validate({"vers": vers, "wsize": 64 * KIB})
    with two_clients(link=LINK, stack={"mount": mount}) as clients:
        writer = clients.one
        file = writer.open(clients.path("big"), "new")
        writer.do("pour", file, SIZE, "a").require("write")
        received = Deadline.after(RECEIVED_S)
        wait_until(lambda: size_on_server(clients) >= UNSTABLE, received, "the server to receive unstable writes")
        clients.suffer(fault)
        writer.do("fsync", file).require("fsync")
        assert clients.read_on_server("big") == "a" * SIZE
    clients.must(judge_verifier)
    clients.must(judge_resent)


def size_on_server(clients: TwoClients) -> int:
    """Return the size in bytes of the file on the server, which has what the server received."""
    return int(clients.server.succeed(["stat", "--format=%s", clients.on_server("big")]))
