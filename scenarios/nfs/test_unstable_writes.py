"""A restarted server may lose unstable writes: its write verifier must change, and clients must resend the writes."""

import pytest

from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import pause
from raidproof.fault import Fault, NfsdRestart, PowerCut
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec
from raidproof.verdict.wire import judge_resent, judge_verifier
from scenarios.nfs.two_clients import Clients, two_clients

SIZE = 8 * MIB
LINK = LinkSpec(rate=40_000_000)
"""A link on which the data take 1.7 s. The client sends a COMMIT only afterwards, thus after the fault."""
BEFORE_S = 0.5
"""Seconds from the begin of the writes to the fault."""
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
        pause(BEFORE_S)
        clients.suffer(fault)
        writer.do("fsync", file).require("fsync")
        assert clients.read_on_server("big") == "a" * SIZE
    clients.must(judge_verifier)
    clients.must(judge_resent)
