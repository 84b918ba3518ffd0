"""Every level with every file system: created, shared by two clients, and removed without a trace."""

import pytest

from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.array import LEVELS
from raidproof.storage.array.spec import disk_path
from raidproof.storage.filesystem import Ext4Spec, XfsSpec
from raidproof.storage.stack import Stack, StackSpec

PAIRS = [(level, "ext4") for level in LEVELS] + [(level, "xfs") for level in LEVELS if LEVELS[level].chunked]
"""All levels with ext4, and all but RAID1 with XFS, which does not fit on one of the lab's disks."""


def spec_of(level: str, filesystem: str) -> StackSpec:
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
