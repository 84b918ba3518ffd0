"""The lab of the scenarios about a pair of servers: a second server has the same disks."""

from collections.abc import Iterator

import pytest

from raidproof.core.topology import with_standby
from raidproof.run.run import Run


@pytest.fixture(scope="package")
def current_run(current_run: Run) -> Iterator[Run]:
    """Yield a run whose lab has two servers; the shared lab ends before, because both together need much memory."""
    current_run.discard_lab()
    with Run("pair", current_run.store.path, with_standby(current_run.topology)) as own:
        yield own
