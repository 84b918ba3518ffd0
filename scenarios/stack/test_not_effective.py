"""If the system accepts a setting but applies another value, the harness raises NotEffective and measures nothing."""

import pytest

from raidproof.core.errors import NotEffective
from raidproof.core.units import KIB, MIB
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.mount import Mount, MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import Stack


def test_wsize_clamped_by_the_server_is_reported(lab: Lab) -> None:
    stack = Stack(stack_of(export=ExportSpec(max_block_size=64 * KIB)), lab.server, lab.clients)
    stack.create()
    stack.activate()
    client = lab.clients[0]
    source = stack.mounts[client.name].source
    second = Mount(MountSpec(wsize=MIB), client, source, "/mnt/second")
    client.succeed(["mkdir", "--parents", second.directory])
    # A second mount from the same server shares the superblock of the first mount, with its rsize and wsize. So the
    # first mount is removed before.
    stack.deactivate_clients()
    with pytest.raises(NotEffective, match=f"wsize: requested {MIB}, effective {64 * KIB}"):
        second.activate()
    second.deactivate()
    stack.export.deactivate()
    stack.filesystem.deactivate()
    stack.array.deactivate()
