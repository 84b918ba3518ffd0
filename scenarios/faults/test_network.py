"""Machines are cut off at the lab's bridge and joined again: nothing that was acknowledged may be lost by that."""

import pytest

from harness.export import ExportSpec
from harness.fault import ClientNetworkCut, LeaseExpiry, MissedGrace, NetworkCut
from harness.fixtures import Cycle, stack_of
from harness.network import Way

SHORT_LEASE = ExportSpec(delegations=False, lease_s=10, grace_s=10)


@pytest.mark.parametrize("way", Way, ids=lambda way: way.value)
def test_server_that_was_cut_off_has_all_that_it_acknowledged(cycle: Cycle, way: Way) -> None:
    cycle(stack_of(), fault=NetworkCut(way)).must_keep_every_promise()


def test_client_that_was_cut_off_has_all_that_it_was_told(cycle: Cycle) -> None:
    ended = cycle(stack_of(), fault=ClientNetworkCut()).must_keep_every_promise()
    assert ended.went_on("client1")


def test_client_whose_lease_expired_recovers_and_has_all_that_it_was_told(cycle: Cycle) -> None:
    ended = cycle(stack_of(export=SHORT_LEASE), fault=LeaseExpiry()).must_keep_every_promise()
    assert ended.went_on("client1")
    assert ended.went_on("client2")


def test_client_that_missed_the_grace_period_recovers_and_has_all_that_it_was_told(cycle: Cycle) -> None:
    ended = cycle(stack_of(export=SHORT_LEASE), fault=MissedGrace()).must_keep_every_promise()
    assert ended.went_on("client1")
    assert ended.went_on("client2")
