"""What the server holds unstable it may lose; it must show that it did, and the clients must send it again."""

import pytest

from harness.fault import Fault, NfsdRestart, PowerCut
from harness.link import LinkSpec
from harness.mount import MountSpec
from harness.units import KIB, MIB
from harness.verdict.wire import judge_resent, judge_verifier
from harness.waiting import pause
from scenarios.nfs.two_clients import Clients, two_clients

SIZE = 8 * MIB
LINK = LinkSpec(rate=40_000_000)
"""It carries that in 1.7 s, and only then the client sends a COMMIT."""
BEFORE_S = 0.5
__all__ = ["two_clients"]


@pytest.mark.parametrize("fault", [NfsdRestart(), PowerCut()], ids=lambda fault: fault.name)
def test_what_was_unstable_is_sent_again_after_a(fault: Fault, two_clients: Clients) -> None:
    with two_clients(link=LINK, stack={"mount": MountSpec(wsize=64 * KIB)}) as clients:
        writer = clients.one
        file = writer.open(clients.path("big"), "new")
        writer.do("pour", file, SIZE, "a").require("write")
        pause(BEFORE_S)
        clients.suffer(fault)
        writer.do("fsync", file).require("fsync")
        assert clients.read_on_server("big") == "a" * SIZE
    clients.must(judge_verifier)
    clients.must(judge_resent)
