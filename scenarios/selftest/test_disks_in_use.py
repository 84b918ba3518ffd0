"""A scenario that leaves an array or a mount on the shared lab's disks is an error that names both."""

import pytest

from raidproof.core.errors import RigError
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.disks_in_use import must_be_free
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.stack import Stack


def test_disks_in_use_are_an_error(lab: Lab) -> None:
    stack = Stack(stack_of(), lab.server, lab.clients)
    stack.create()
    stack.activate()
    stack.deactivate_clients()
    with pytest.raises(
        RigError, match=rf"still uses member disks: disk0 is part of md\d+, mounted on {stack.filesystem.directory}"
    ):
        must_be_free(lab)
    stack.export.deactivate()
    stack.filesystem.deactivate()
    with pytest.raises(RigError, match=r"disk0 is part of md\d+, cannot be claimed"):
        must_be_free(lab)
    stack.array.deactivate()
    must_be_free(lab)
