"""The NFS service stops, briefly or for longer than a lease; no acknowledged operation may be lost."""

import pytest

from raidproof.fault import NfsdKilled, NfsdRestart, ServerRestart
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.storage.server import ExportSpec

SHORT_LEASE = ExportSpec(delegations=False, lease_s=10, grace_s=10)
BEYOND_S = 15.0
"""Duration of the outage in seconds: longer than the lease of 10 s."""


def test_killed_nfs_service_loses_nothing(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fault=NfsdKilled()).must_keep_every_promise()


def test_nfsd_stopped_for_longer_than_a_lease_loses_nothing(cycle: CrashTestRunner) -> None:
    cycle(stack_of(export=SHORT_LEASE), fault=NfsdRestart(down_s=BEYOND_S)).must_keep_every_promise()


@pytest.mark.exhaustive
@pytest.mark.parametrize("down_s", [0.0, BEYOND_S], ids=["within", "beyond"])
def test_server_that_is_off_within_and_beyond_a_lease_loses_nothing(cycle: CrashTestRunner, down_s: float) -> None:
    cycle(stack_of(export=SHORT_LEASE), fault=ServerRestart(down_s=down_s)).must_keep_every_promise()
