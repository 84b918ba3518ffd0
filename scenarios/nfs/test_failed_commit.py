"""If the disks fail while the server has unstable writes, fsync on the client reports an error (EIO).

After the disks work again, new writes are durable.
"""

import pytest

from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import pause
from raidproof.disk.disk_fault import failed
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.storage.filesystem import XfsSpec
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec
from raidproof.verdict.wire import failed_s, judge_verifier
from scenarios.nfs.two_clients import Clients, two_clients

LINK = LinkSpec(rate=40_000_000)
BEFORE_S = 0.4
SIZE = 4 * MIB
__all__ = ["two_clients"]


@pytest.mark.parametrize("vers", ["4.2", pytest.param("3", marks=pytest.mark.exhaustive)])
def test_client_gets_an_error_if_its_data_cannot_be_written(two_clients: Clients, vers: str) -> None:
    *members, log = MEMBERS
    # The log is on a separate disk without a fault: XFS shuts down if it cannot write its log.
    mount = MountSpec.model_validate({"vers": vers, "wsize": 64 * KIB})
    stack = {"members": len(members), "filesystem": XfsSpec(log=log), "mount": mount}
    with two_clients("0", link=LINK, ruins=True, stack=stack) as clients:
        writer, disks = clients.one, clients.context.lab.disks
        file = writer.open(clients.path("kept"))
        writer.do("write", file, "kept").require("write")
        writer.do("fsync", file).require("fsync")
        big = writer.open(clients.path("big"), "new")
        writer.do("pour", big, SIZE, "a").require("write")
        pause(BEFORE_S)
        for serial in members:
            disks.set_disk_fault(serial, failed())
        assert writer.do("fsync", big).error == "EIO"
        disks.clear_disk_faults()
        # Another file, because nfsd fails unstable writes to the first file until all clients have closed it
        # (docs/findings.md).
        other = clients.two.open(clients.path("other"))
        clients.two.do("write", other, "other").require("write")
        clients.two.do("fsync", other).require("fsync")
        writer.do("close", big)
        again = writer.open(clients.path("big"), "new")
        writer.do("pour", again, SIZE, "b").require("write")
        writer.do("fsync", again).require("fsync after the disk faults were cleared")
        assert clients.read_on_server("kept") == "kept"
        assert clients.read_on_server("other") == "other"
        assert clients.read_on_server("big") == "b" * SIZE
    clients.must(judge_verifier, after_s=failed_s(clients.exchanges))
