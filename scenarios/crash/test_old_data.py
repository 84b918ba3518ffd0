"""A new array on disks with old data is consistent without a resync, and its unwritten blocks read as old data."""

import pytest

from raidproof.core.errors import ProductError, RequirementMissing
from raidproof.disk.sparse_image import OLD_DATA
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.storage.array import capacity, holders_of_old_data
from raidproof.storage.filesystem import Ext4Spec, FilesystemSpec, XfsSpec
from raidproof.storage.stack import Stack

KINDS: dict[str, FilesystemSpec] = {"xfs": XfsSpec(), "ext4": Ext4Spec()}
OTHERS = [
    *((level, "xfs") for level in ("0", "4", "10", "1+0", "0+1")),
    *((level, "ext4") for level in ("0", "1", "10")),
]


@pytest.mark.parametrize(
    ("level", "kind"),
    [("5", "xfs"), ("5", "ext4"), *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in OTHERS)],
)
def test_an_array_of_used_disks_is_consistent_without_a_resync(lab: Lab, level: str, kind: str) -> None:
    if not lab.disks.zeroed:
        raise RequirementMissing("real disks hold unknown old data, which this test cannot recognise")
    stack = Stack(stack_of(level, filesystem=KINDS[kind]), lab.server, lab.clients)
    lab.disks.reset(holders_of_old_data(stack.spec.array))
    stack.create()
    stack.activate()
    directory = stack.mounts[lab.clients[0].name].directory
    lab.clients[0].put("kept" * (1 << 20), f"{directory}/word")
    # A place without metadata: in XFS the middle of the last of four allocation groups, in ext4 far behind the first
    # block group.
    place = capacity(stack.spec.array, lab.topology.disks[0].size) * 7 // 8 // 4096 * 4096
    seen = lab.server.succeed(["od", "-A", "n", "-t", "c", "-j", str(place), "-N", "8", stack.array.device])
    stack.deactivate_clients()
    stack.export.deactivate()
    stack.filesystem.deactivate()
    check = stack.filesystem.check()
    scrub = stack.array.scrub()
    stack.array.deactivate()
    if "".join(seen.split()) != OLD_DATA[:8].decode():
        raise ProductError(
            f"{stack.array.device}, unwritten byte {place}: found {seen.strip()!r}, expected {OLD_DATA[:8]!r}"
        )
    if check.outcome != "clean" or scrub.mismatches:
        raise ProductError(
            f"file system {check.outcome} {check.reasons}, {scrub.mismatches} sectors differ; expected: clean, 0"
        )


def test_no_acknowledged_operation_is_lost_on_used_disks(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of()).must_keep_every_promise()
    if not ended.record.observed.old_data:
        raise RequirementMissing("the disks of this provider do not begin with raidproof's old data")
