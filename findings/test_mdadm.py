"""mdadm names a member that it cannot read, and reports the others."""

from findings.answer import Record, conclude
from raidproof.core.errors import RequirementMissing
from raidproof.disk.client import EngineClient
from raidproof.disk.disk_fault import failed
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import MEMBERS, stack_of
from raidproof.storage.array import examine_bitmap_command
from raidproof.storage.member import disk_path
from raidproof.storage.stack import Stack

DEAD = "disk1"


def test_a_member_that_cannot_be_read_does_not_end_the_examination(lab: Lab, record: Record) -> None:
    if not isinstance(lab.disks, EngineClient):
        raise RequirementMissing("these disks are not the disk engine's, which lets requests fail")
    stack = Stack(stack_of("10"), lab.server, lab.clients)
    stack.create()
    stack.array.activate()
    stack.array.deactivate()
    lab.disks.set_disk_fault(DEAD, failed())
    try:
        ended = lab.server.run(examine_bitmap_command(map(disk_path, MEMBERS)))
    finally:
        lab.disks.clear_disk_faults([DEAD])
    reported = ended.stdout.count("Events Cleared")
    measured = f"mdadm ended with status {ended.status}, and reported {reported} of {len(MEMBERS)} bitmaps"
    conclude(record, lab.server, measured, wrong=len(MEMBERS) - 1 - reported, seen=reported, least=len(MEMBERS) - 1)
