"""A commit block reaches the members only after the flushes that must precede it.

One member is slow, so that each of its flushes takes 20 ms. A process on the server writes with O_DSYNC, so that each
of its writes ends with a commit block of ext4, or a log record of XFS. The write log has the order of the requests.
"""

from pathlib import Path

import pytest

from findings.answer import Record, conclude
from findings.flush_order import flush_order
from findings.stacks import stack_without_bitmap
from raidproof.disk.disk_fault import slow
from raidproof.disk.writelog import WriteLog
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.storage.array import LEVELS
from raidproof.storage.filesystem import Ext4Spec, XfsSpec
from raidproof.storage.stack import Stack

SLOW = slow(20)
COUNT = 40
"""Number of writes, and least number of transactions."""
LEAST = 20
"""Least number of barrier writes that a flush of the slow member preceded, to conclude that their order is right."""
SHORT = ("5", "ext4")
CASES = [
    pytest.param(level, kind, id=f"{level}-{kind}", marks=() if (level, kind) == SHORT else pytest.mark.exhaustive)
    for level in LEVELS
    for kind in ("ext4", "xfs")
    # One of the disks is too small for XFS.
    if kind == "ext4" or LEVELS[level].chunked
]


@pytest.mark.parametrize(("level", "kind"), CASES)
def test_barrier_writes_wait_for_the_flushes(lab: Lab, record: Record, tmp_path: Path, level: str, kind: str) -> None:
    spec = stack_without_bitmap(level, Ext4Spec() if kind == "ext4" else XfsSpec())
    stack = Stack(spec, lab.server, ())
    stack.create()
    stack.array.activate()
    stack.filesystem.activate()
    log = tmp_path / "write.log"
    lab.disks.set_disk_fault(MEMBERS[-1], SLOW)
    lab.disks.log_start(log)
    file = f"{stack.filesystem.directory}/file"
    lab.server.succeed(["dd", "if=/dev/zero", f"of={file}", "oflag=dsync", "bs=4096", f"count={COUNT}"])
    lab.disks.log_stop()
    lab.disks.clear_disk_faults()
    stack.filesystem.deactivate()
    stack.array.deactivate()
    found = flush_order(WriteLog(log))
    conclude(record, lab.server, str(found), wrong=found.early, seen=found.barriers, least=LEAST)
