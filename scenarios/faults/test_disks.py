"""Faults of member disks while clients write: failed, missing, slow, lying disks, and silent corruption."""

import pytest

from raidproof.core.blame import Cause
from raidproof.core.units import MIB, SECTOR
from raidproof.disk.cache import CutPolicy
from raidproof.fault.disk import (
    CorruptedAtRest,
    FlushesDropped,
    LatentSectorDuringRebuild,
    LatentSectorError,
    MemberFails,
    MemberVanishes,
    SecondMemberFails,
    SilentCorruption,
    SlowMember,
)
from raidproof.guest.ledger_format import MAGIC
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.run import BlockClass, ControlSpec

UNUSED = 250 * MIB
"""Byte offset on a member at which the ledger has no data."""


@pytest.mark.parametrize("level", ["5", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("6", "10"))])
def test_a_failed_member_costs_no_promise(cycle: CrashTestRunner, level: str) -> None:
    ended = cycle(stack_of(level), fault=MemberFails("disk1")).must_keep_every_promise()
    assert ended.went_on("client1")


def test_a_member_that_is_pulled_out_costs_no_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fault=MemberVanishes("disk1")).must_keep_every_promise()


def test_a_second_failure_during_the_rebuild_fails_raid5_and_stops_the_clients(
    cycle: CrashTestRunner,
) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Cause.SECOND_MEMBER_FAILED)
    ended = cycle(stack_of(), fault=SecondMemberFails("disk2", other="disk1"), control=control).must_pass()
    assert "the array has failed" in (ended.record.not_recovered or "")
    assert not ended.went_on("client1")


@pytest.mark.exhaustive
def test_raid6_survives_a_second_failure_during_the_rebuild(cycle: CrashTestRunner) -> None:
    cycle(stack_of("6"), fault=SecondMemberFails("disk2", other="disk1")).must_keep_every_promise()


def test_a_check_rewrites_an_unreadable_sector(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fault=LatentSectorError("disk2", UNUSED)).must_keep_every_promise()


def test_an_unreadable_sector_during_a_rebuild_loses_only_this_sector(cycle: CrashTestRunner) -> None:
    fault = LatentSectorDuringRebuild("disk2", UNUSED, other="disk1")
    ended = cycle(stack_of(), fault=fault).must_keep_every_promise()
    assert "md lists as bad: {" in (ended.record.fault_proof or "")
    assert ended.record.observed.array is not None
    assert set(ended.record.observed.array.bad_blocks) == {"disk1", "disk2"}


def test_corrupt_parity_is_found_by_scrubbing_and_repaired(cycle: CrashTestRunner) -> None:
    # RAID4 keeps all its parity on the last member.
    ended = cycle(stack_of("4"), during=[SilentCorruption("disk3", UNUSED)], fault="clean-reboot")
    array = ended.must_keep_every_promise().record.observed.array
    assert array is not None
    assert array.mismatch_cnt == {"/dev/md0": SilentCorruption("disk3", UNUSED).length // SECTOR}
    assert array.repaired == {"/dev/md0": 0}


def test_corrupt_data_is_found_by_the_ledger(cycle: CrashTestRunner) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Cause.CHANGED_CONTENT)
    ended = cycle(stack_of(), fault=CorruptedAtRest("disk1", MAGIC), control=control).must_pass()
    assert ended.record.on_server
    assert ended.record.on_server.blocks[BlockClass.GARBAGE] > 0


@pytest.mark.exhaustive
def test_a_slow_member_loses_nothing(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), during=[SlowMember("disk1", 5)], ledger_seconds=3.0).must_keep_every_promise()
    (slow,) = ended.record.disks["disk1"]["struck"]
    assert slow["times"] > ended.acknowledged / 4


def test_a_member_that_begins_to_drop_flushes_is_blamed_by_name(cycle: CrashTestRunner) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Cause.LOST_FLUSHES)
    during = [FlushesDropped("disk1")]
    cycle(stack_of(), during=during, policy=CutPolicy.DROP, control=control).must_pass()
