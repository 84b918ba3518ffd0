"""nfsd's I/O modes: effective on a kernel that has them, refused on another one."""

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.server.knfsd import DEBUGFS, ExportSpec, ExportState
from raidproof.storage.stack import Stack

MODES = ExportSpec(delegations=False, lease_s=10, grace_s=10, io_cache_read="dontcache", io_cache_write="direct")
NAMES = ("io_cache_read", "io_cache_write", "disable-splice-read")


def test_io_modes_are_effective_or_refused_and_end_with_the_export(lab: Lab) -> None:
    server = lab.server
    server.run(["mount", "--types", "debugfs", "debugfs", DEBUGFS])
    stack = Stack(stack_of(export=MODES), server, lab.clients)
    stack.create()
    if not server.exists(f"{DEBUGFS}/nfsd/{NAMES[0]}"):
        with pytest.raises(RequirementMissing, match="nfsd has no I/O modes"):
            stack.activate()
        stack.filesystem.deactivate()
        stack.array.deactivate()
        return
    state = stack.activate()
    assert isinstance(state.export, ExportState)
    assert (state.export.io_cache_read, state.export.io_cache_write) == ("dontcache", "direct")
    client = lab.clients[0]
    client.put("kept", f"{stack.mounts[client.name].directory}/word")
    stack.deactivate_clients()
    assert server.get(f"{stack.filesystem.directory}/word") == "kept"
    stack.activate_clients()
    stack.deactivate()
    assert [server.get(f"{DEBUGFS}/nfsd/{name}").strip() for name in NAMES] == ["0", "0", "0"]
