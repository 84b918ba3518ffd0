"""md's partial parity log (PPL) restores the parity of its newest entry, wherever the header of the entry is.

One process writes the same block of a degraded RAID5 again and again, so that the log of the member with the parity
fills up with entries of one size. The power is cut after a write whose header is the last that fits, or the last but
one. The page with the parity then gets its content from before this write, as if the cut had come after the log entry
and the data, and before the parity.
"""

from functools import partial

import pytest

from findings.answer import Record, conclude
from findings.device import read_device, write_device
from raidproof.core.errors import Inconclusive, RigError
from raidproof.core.units import KIB
from raidproof.disk.cache import CutPolicy
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.run.run import Run
from raidproof.storage.array import MdArray, MdSpec
from raidproof.storage.array.mdadm import assemble_command
from raidproof.storage.array.superblock import superblock_of
from raidproof.storage.member import disk_path
from scenarios.crash.ppl import HEADER, newest

CHUNK = 64 * KIB
PAGE = 4 * KIB
FIRST, MISSING, THIRD, PARITY = range(4)
"""The roles of the members in the first stripe: three chunks of data, and the parity (left-symmetric)."""
ENTRY = HEADER + PAGE
"""Bytes of a log entry for a write of one page: its header, and the partial parity."""
KEPT, OTHER = b"k", b"o"
"""Content of the blocks on the missing and on the third member."""
BEFORE, LAST = b"b", b"l"
"""Content of the first block before the last write, and after it."""
ALWAYS_DIRTY_S = 3600
"""Seconds without writes after which md marks the array as clean: longer than the test."""
WRITE = """
import mmap, os, sys
page = mmap.mmap(-1, 4096)
array = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
for number in range(int(sys.argv[2]) + 1):
    page[:] = (b"l" if number == int(sys.argv[2]) else b"b") * 4096
    os.pwrite(array, page, 0)
"""
"""Writes one page of an array a number of times, and once more with other content."""


# The last header but one is the control.
@pytest.mark.parametrize("place", ["last", "last but one"], ids=["last", "last-but-one"])
def test_the_parity_of_the_newest_entry_is_restored(current_run: Run, record: Record, place: str) -> None:
    lab, server = current_run.lab, current_run.lab.server
    lab.disks.reset()
    asked = {"level": 5, "members": MEMBERS, "chunk_size": CHUNK, "consistency_policy": "ppl", "assume_clean": True}
    array = MdArray(MdSpec.model_validate(asked), server)
    array.create()
    (md,) = array.spec.devices
    for number, content in enumerate((BEFORE, KEPT, OTHER)):
        write_device(server, array.device, number * CHUNK, content * CHUNK)
    array.deactivate()
    with_parity = disk_path(MEMBERS[PARITY])
    superblock = superblock_of(partial(read_device, server, with_parity))
    if superblock is None or superblock.ppl_offset is None or superblock.ppl_size % ENTRY:
        raise RigError("the array has no PPL of whole entries")
    # A start of the array begins a new log.
    degraded = assemble_command(md, starts_dirty=True, without=[disk_path(MEMBERS[MISSING])])
    server.succeed(degraded)
    server.succeed(["tee", f"/sys/block/{md.name}/md/safe_mode_delay"], stdin=f"{ALWAYS_DIRTY_S}\n")
    entries = superblock.ppl_size // ENTRY - (place != "last")
    server.succeed(["python3", "-c", WRITE, array.device, str(entries - 1)])
    server.crash(CutPolicy.KEEP)
    server.start()
    log = newest(partial(read_device, server, with_parity), superblock)
    if log is None or log.end != entries * ENTRY:
        raise Inconclusive(f"the newest header of the log is not the {place} that fits: {log}")
    parity = bytes([BEFORE[0] ^ KEPT[0] ^ OTHER[0]]) * PAGE
    write_device(server, with_parity, superblock.data_offset, parity)
    server.succeed(degraded)
    # The member is missing, so that md computes its block.
    wrong = read_device(server, array.device, MISSING * CHUNK, PAGE) != KEPT * PAGE
    array.deactivate()
    measured = (
        f"the newest header of a log with room for {log.room // ENTRY} entries is the {place} that fits; after the "
        f"recovery md computes {'wrong' if wrong else 'the right'} data for the missing member"
    )
    conclude(record, server, measured, wrong=int(wrong), seen=1, least=1)
