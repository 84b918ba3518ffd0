"""Machines are cut off at the lab's bridge and joined again: nothing that was acknowledged may be lost by that."""

import pytest

from raidproof.fault import ClientNetworkCut, Fault, LeaseExpiry, MissedGrace, NetworkCut, NfsdRestart
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
def test_server_that_was_cut_off_has_all_that_it_acknowledged(cycle: CrashTestRunner, way: Way) -> None:
    cycle(stack_of(), fault=NetworkCut(way)).must_keep_every_promise()


# NFSv4 gives up only when its connection is broken too, not while it is only silent (rpc_check_timeout in the kernel).
@pytest.mark.parametrize(
    ("vers", "fault"),
    [("3", NetworkCut(held_s=12.0)), pytest.param("4.2", NfsdRestart(down_s=20.0), marks=pytest.mark.exhaustive)],
    ids=["3", "4.2"],
)
def test_soft_mount_tells_of_a_server_that_does_not_answer(cycle: CrashTestRunner, vers: str, fault: Fault) -> None:
    mount = MountSpec.model_validate({"vers": vers, "recovery": "soft", "retrans": 1})
    ended = cycle(stack_of(mount=mount), fault=fault).must_keep_every_promise()
    told = next(one.reason for one in ended.record.verdicts if one.checker == "errors told to clients")
    assert "EIO" in told or "ETIMEDOUT" in told
    assert ended.went_on("client1")


@pytest.mark.exhaustive
def test_client_that_was_cut_off_has_all_that_it_was_told(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), fault=ClientNetworkCut()).must_keep_every_promise()
    assert ended.went_on("client1")


def test_client_whose_lease_expired_recovers_and_has_all_that_it_was_told(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(export=SHORT_LEASE), fault=LeaseExpiry()).must_keep_every_promise()
    assert ended.went_on("client1")
    assert ended.went_on("client2")


def test_client_that_missed_the_grace_period_recovers_and_has_all_that_it_was_told(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(export=SHORT_LEASE), fault=MissedGrace()).must_keep_every_promise()
    assert ended.went_on("client1")
    assert ended.went_on("client2")
