"""Locks of NFSv3 survive a reboot of the server: its rpc.statd notifies the clients, which claim their locks again."""

import pytest

from raidproof.core.blame import Culprit
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outcome import Outcome
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.server.status_monitor import StatusMonitor
from raidproof.storage.stack import StackSpec
from raidproof.verdict.checks.locks import EXCLUSIVE
from raidproof.workload.ledger import LedgerSpec

GRACE_S = 10
"""Grace period in seconds of nfsd and lockd: the shortest that nfsd accepts. Clients get new locks after it."""
LEDGER = LedgerSpec(kinds=("fsync", "locks", "o_append"))


def nfsv3() -> StackSpec:
    return stack_of(mount=MountSpec(vers="3"), export=ExportSpec(lease_s=GRACE_S, grace_s=GRACE_S))


def test_locks_survive_a_power_cut(cycle: CrashTestRunner) -> None:
    ended = cycle(nfsv3(), ledger=LEDGER).must_keep_every_promise()
    assert not ended.record.workload["left_out"]
    assert EXCLUSIVE in {one.checker for one in ended.record.verdicts}


@pytest.mark.exhaustive
def test_a_server_that_notifies_no_client_grants_locks_twice(
    cycle: CrashTestRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StatusMonitor, "notify", lambda _: None)
    record = cycle(nfsv3(), ledger=LEDGER).record
    [locks] = [one for one in record.verdicts if one.checker == EXCLUSIVE]
    assert locks.outcome is Outcome.FAIL, locks.reason
    assert locks.blame is not None
    assert locks.blame.culprit is Culprit.STACK
