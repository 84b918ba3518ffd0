"""Three scenarios that `test_same_verdicts.py` runs on every provider; pytest does not collect this file by itself."""

import pytest

from raidproof.core.blame import Culprit
from raidproof.core.topology import Topology
from raidproof.disk.cache import CacheMode
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record import ControlSpec
from raidproof.workload.ledger import LedgerSpec

DATA = LedgerSpec(kinds=("fsync", "fdatasync", "o_sync", "msync", "close", "o_append"))
"""Fewer kinds of worker where a loss is expected, because emulated machines are slow."""


@pytest.fixture(scope="session")
def lab_topology(lab_topology: Topology) -> Topology:
    """One client, because emulated machines are slow; scenarios with several clients run on provider ``uml``."""
    return lab_topology.model_copy(update={"machines": (lab_topology.server, lab_topology.clients[0])})


def test_sync_export_keeps_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of()).must_keep_every_promise()


def test_async_export_loses_acknowledged_work(cycle: CrashTestRunner) -> None:
    cycle(stack_of(sync=False), ledger=DATA).must_lose_by_design()


def test_lying_disks_are_found(cycle: CrashTestRunner) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    cycle(stack_of(), cache_mode=CacheMode.LYING, control=control, ledger=DATA).must_pass()
