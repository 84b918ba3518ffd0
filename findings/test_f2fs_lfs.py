"""F2FS with ``mode=lfs`` keeps fsynced data in every crash state of a recorded run."""

from collections.abc import Iterator

import pytest

from findings.answer import Record, conclude
from raidproof.pytest_plugin.fixtures import Explore, stack_of
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.filesystem import F2fsSpec
from raidproof.workload.ledger import LedgerSpec
from scenarios.crash.small_lab import small_lab

NAME = "f2fs-lfs"
LFS = F2fsSpec(fsync_mode="strict", allocation="lfs")
DATA = LedgerSpec(kinds=("fsync", "fdatasync", "o_sync", "o_dsync"))
"""A ledger that changes only data: nfsd does not commit new names on F2FS."""
STATES = 200
MINUTES = 3.0


@pytest.fixture
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run with one client."""
    with small_lab(current_run, NAME) as one:
        yield one


def test_fsynced_data_survive_in_every_crash_state(own: Run, record: Record) -> None:
    recorded = own.cycle(CrashTestSpec(name=NAME, title=NAME, stack=stack_of(filesystem=LFS), ledger=DATA))
    explored = Explore(own)(recorded, STATES, minutes=MINUTES, explained=0).record
    measured = f"{explored.broken} of {explored.judged} crash states lack data that were fsynced"
    conclude(record, own.lab.server, measured, wrong=explored.broken, seen=explored.judged, least=STATES // 2)
