"""The engine with two disks that the tests of disks share."""

import pytest

from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec
from tests.disk.engines import SIZE


@pytest.fixture
def engine() -> Engine:
    return Engine([MemberSpec("d0", SIZE), MemberSpec("d1", SIZE)])
