from raidproof.core.units import KIB
from raidproof.workload.bonnie import BonnieSpec
from raidproof.workload.dd import DdSpec
from raidproof.workload.hdparm import HdparmSpec


def test_a_dd_that_writes_through_the_page_cache() -> None:
    access = DdSpec(bs=64 * KIB, count=16).access()
    assert access is not None
    assert (access.size, access.read_share, access.direct, access.sync_every) == (64 * KIB, 0.0, False, None)
    assert access.working_set == 1024 * KIB


def test_a_dd_that_waits_for_each_block() -> None:
    access = DdSpec(bs=4 * KIB, oflag=("dsync", "direct"), all_machines=True).access(clients=3)
    assert access is not None
    assert (access.sync_every, access.direct, access.clients, access.streams) == (4 * KIB, True, 3, 3)


def test_hdparm_reads_on_the_server() -> None:
    access = HdparmSpec().access()
    assert access is not None
    assert (access.read_share, access.remote) == (1.0, False)
    assert HdparmSpec(timing="T").access() is None


def test_no_formula_is_no_expectation() -> None:
    assert BonnieSpec().access() is None
