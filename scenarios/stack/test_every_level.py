"""For each RAID level and file system: the stack is created, two clients share a file, and the stack is removed.

After the removal the disks have no signature of md or a file system.
"""

import pytest

from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.array import LEVELS, MdSpec
from raidproof.storage.filesystem import Ext4Spec, XfsSpec
from raidproof.storage.member import disk_path
from raidproof.storage.stack import Stack, StackSpec

NAMES = MdSpec.named_levels()
PAIRS = [(level, "ext4") for level in NAMES] + [(level, "xfs") for level in NAMES if LEVELS[level].chunked]
"""Levels of md with file systems: all with ext4; all but RAID1 with XFS, for which one of the disks is too small."""


def spec_of(level: str, filesystem: str) -> StackSpec:
    """Return a stack with a RAID level and a file system, by their names."""
    return stack_of(level, filesystem=Ext4Spec() if filesystem == "ext4" else XfsSpec())


@pytest.mark.parametrize(("level", "filesystem"), PAIRS)
def test_stack_is_created_serves_and_is_removed(lab: Lab, level: str, filesystem: str) -> None:
    stack = Stack(spec_of(level, filesystem), lab.server, lab.clients)
    stack.create()
    state = stack.activate()
    assert state.filesystem.type == filesystem
    writer, reader = lab.clients
    word = f"{stack.mounts[writer.name].directory}/word"
    writer.put("kept", word)
    assert reader.get(word) == "kept"
    stack.deactivate()
    stack.array.activate()
    stack.filesystem.activate()
    assert lab.server.get(f"{stack.filesystem.directory}/word") == "kept"
    stack.filesystem.deactivate()
    stack.array.deactivate()
    stack.destroy()
    assert not lab.server.succeed(["wipefs", *map(disk_path, stack.spec.disks)])
