"""After a power cut during writes, md makes copies and parity consistent where the bitmap marks a region.

The server is cut while a process writes to the array. Before the array is activated again, one page of a member
changes in a region that the bitmap of every member marks, as if the power cut had lost a write of this page only. The
resync must correct it.
"""

from functools import partial

import pytest

from findings.answer import Record, conclude
from findings.device import read_device, write_device
from raidproof.core.errors import Inconclusive, RigError
from raidproof.core.units import KIB
from raidproof.core.waiting import Deadline, wait_until
from raidproof.crash.redundancy import assembled, bitmaps_of
from raidproof.disk.cache import CutPolicy
from raidproof.machine.kernel_log import moment, said_since
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.run.run import Run
from raidproof.storage.array import ARRAYS
from raidproof.storage.array.striping import ROW, Assembled
from raidproof.storage.member import disk_path

WRITES = 50
"""Writes to each member after which the power is cut."""
CHANGED = b"\xa5"
RESYNC = "resync of RAID array"


def read_member(server: Machine, member: int, offset: int, length: int) -> bytes:
    """Return bytes of a member disk."""
    return read_device(server, disk_path(MEMBERS[member]), offset, length)


@pytest.mark.parametrize("kind", ["md", "lvm"])
def test_a_marked_region_is_resynced_after_a_power_cut(current_run: Run, record: Record, kind: str) -> None:
    lab, server = current_run.lab, current_run.lab.server
    lab.disks.reset()
    spec = ARRAYS[kind].model_validate(
        {"level": "5", "members": MEMBERS, "chunk_size": 64 * KIB, "assume_clean": True}
    )
    array = spec.array(server)
    array.create()
    array.wait_clean()
    server.start_command(["dd", "if=/dev/zero", f"of={array.device}", "bs=64k", "count=4000", "oflag=direct"])

    def written() -> bool | None:
        return all(lab.disks.counters()[serial].writes > WRITES for serial in MEMBERS) or None

    wait_until(written, Deadline.after(20), "the writes to the members", 0.05)
    server.crash(CutPolicy.KEEP)
    server.start()
    read = partial(read_member, server)
    found = assembled({number: spec.superblock(partial(read, number)) for number in range(len(MEMBERS))})
    if not isinstance(found, Assembled):
        raise RigError(f"the members do not make an array: {found}")
    bitmaps = bitmaps_of(found, read)
    marks = [one is not None and one.marked(read, number, 0) for number, one in bitmaps.items()]
    if not all(marks):
        raise Inconclusive(f"the bitmaps of {marks.count(False)} members do not mark the first region")
    begin = found.data_offsets[0] // ROW
    write_device(server, disk_path(MEMBERS[found.members[0]]), begin * ROW, CHANGED * ROW)
    since = moment(server)
    array.activate()
    array.wait_clean()
    resynced = RESYNC in said_since(server, since)
    differing = array.scrub().mismatches
    array.deactivate()
    measured = (
        f"after the power cut {'a' if resynced else 'no'} resync ran; a check then found {differing} sectors that "
        "differ, in a region that the bitmap of every member marks"
    )
    conclude(record, server, measured, wrong=int(differing > 0), seen=1, least=1)
