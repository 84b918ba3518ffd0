"""After its disks had an error and work again, nfsd writes a file that stays open on a client without an error."""

from findings.answer import Record, conclude
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import pause
from raidproof.disk.client import EngineClient
from raidproof.disk.disk_fault import failed
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.storage.filesystem import XfsSpec
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec
from scenarios.nfs.two_clients import Clients, two_clients

LINK = LinkSpec(rate=40_000_000)
"""So slow that the client still sends unstable writes when the disks fail."""
BEFORE_S = 0.4
SIZE = 4 * MIB
ROUNDS = 3
__all__ = ["two_clients"]


def test_an_open_file_works_again_after_a_failed_commit(two_clients: Clients, record: Record) -> None:
    *members, log = MEMBERS
    # The log is on a separate disk without a fault: XFS shuts down if it cannot write its log.
    stack = {"members": len(members), "filesystem": XfsSpec(log=log), "mount": MountSpec(wsize=64 * KIB)}
    with two_clients("0", link=LINK, ruins=True, stack=stack) as clients:
        writer, disks, server = clients.one, clients.context.lab.disks, clients.server
        if not isinstance(disks, EngineClient):
            raise RequirementMissing("these disks are not the disk engine's, which lets requests fail")
        file = writer.open(clients.path("big"), "new")
        writer.do("pour", file, SIZE, "a").require("write")
        pause(BEFORE_S)
        for serial in members:
            disks.set_disk_fault(serial, failed())
        if writer.do("fsync", file).ok:
            raise RigError("fsync succeeded although the disks failed")
        disks.clear_disk_faults()
        refused = kept = 0
        for number in range(ROUNDS):
            letter = "bcd"[number]
            writer.do("pour", file, SIZE, letter)
            error = writer.do("fsync", file).error
            refused += error is not None
            kept += error is not None and clients.read_on_server("big") == letter * SIZE
        measured = (
            f"after the disks worked again, {refused} of {ROUNDS} calls of fsync failed; after {kept} of these the "
            "server had all data"
        )
        conclude(record, server, measured, wrong=refused, seen=ROUNDS, least=ROUNDS)
