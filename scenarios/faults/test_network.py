"""Machines are disconnected at the lab's bridge and reconnected; no acknowledged operation may be lost."""

import pytest

from raidproof.fault import (
    ClientNetworkCut,
    Fault,
    KernelPanic,
    LeaseExpiry,
    MissedGrace,
    NetworkCut,
    NfsdRestart,
    PowerCut,
)
from raidproof.namespace.network import Way
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec

SHORT_LEASE = ExportSpec(delegations=False, lease_s=10, grace_s=10)


@pytest.mark.parametrize(
    "way",
    [Way.BOTH, *(pytest.param(way, marks=pytest.mark.exhaustive) for way in (Way.TO, Way.FROM))],
    ids=lambda way: way.value,
)
def test_disconnected_server_keeps_all_acknowledged_operations(cycle: CrashTestRunner, way: Way) -> None:
    cycle(stack_of(), fault=NetworkCut(way)).must_keep_every_promise()


# With `soft`, an NFSv4 client returns an error only if the connection breaks, not if the server is silent
# (rpc_check_timeout in net/sunrpc/clnt.c).
@pytest.mark.parametrize(
    ("vers", "fault"),
    [("3", NetworkCut(held_s=12.0)), pytest.param("4.2", NfsdRestart(down_s=20.0), marks=pytest.mark.exhaustive)],
    ids=["3", "4.2"],
)
def test_soft_mount_reports_errors_of_a_silent_server(cycle: CrashTestRunner, vers: str, fault: Fault) -> None:
    mount = MountSpec.model_validate({"vers": vers, "recovery": "soft", "retrans": 1})
    ended = cycle(stack_of(mount=mount), fault=fault).must_keep_every_promise()
    told = next(one.reason for one in ended.record.verdicts if one.checker == "errors told to clients")
    assert "EIO" in told or "ETIMEDOUT" in told
    assert ended.went_on("client1")


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", [PowerCut(), KernelPanic()])
def test_soft_mount_may_report_errors_of_a_server_that_is_off(cycle: CrashTestRunner, fault: Fault) -> None:
    mount = MountSpec.model_validate({"vers": "3", "recovery": "soft", "timeo_s": 0.3, "retrans": 1})
    cycle(stack_of(mount=mount), fault=fault).must_keep_every_promise()


@pytest.mark.exhaustive
def test_operations_acknowledged_to_a_disconnected_client_are_kept(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), fault=ClientNetworkCut()).must_keep_every_promise()
    assert ended.went_on("client1")


def test_client_with_an_expired_lease_recovers_and_loses_nothing(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(export=SHORT_LEASE), fault=LeaseExpiry()).must_keep_every_promise()
    assert ended.went_on("client1")
    assert ended.went_on("client2")


def test_client_that_missed_the_grace_period_recovers_and_loses_nothing(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(export=SHORT_LEASE), fault=MissedGrace()).must_keep_every_promise()
    assert ended.went_on("client1")
    assert ended.went_on("client2")
