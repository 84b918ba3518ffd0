"""Several faults, one after the other: a member fails and then the power, the network flaps, the power fails twice."""

import pytest

from raidproof.core.blame import Cause, Culprit
from raidproof.disk.cache import CutPolicy
from raidproof.fault import (
    Degraded,
    Fault,
    FilesystemFull,
    FlushesDropped,
    MemberFails,
    MemberVanishes,
    NetworkCut,
    PowerCut,
)
from raidproof.fault.schedule import after_recovery, after_replies, at, in_recovery, when_served
from raidproof.pytest_plugin.fixtures import CrashTestResult, CrashTestRunner, stack_of
from raidproof.record import ControlSpec
from raidproof.storage.filesystem import Ext4Spec, FilesystemSpec, XfsSpec
from raidproof.storage.server import ExportSpec
from raidproof.workload.ledger import LedgerSpec

LEDGER = LedgerSpec(kinds=("fsync", "o_sync", "close", "metadata", "metadata", "o_append", "locks"))
"""Work that needs little time until a few operations of each kind were acknowledged, locks included."""
FAILS, CUTS = at(1.0, MemberFails("disk1")), at(2.5, PowerCut())


def must_have_started_without_it(ended: CrashTestResult) -> None:
    """Assert that the member failed while clients worked, and that the array was started without it after the cut."""
    (failed,) = ended.record.during
    begun_ns, cut_ns = ended.record.ledger_begun_ns, ended.record.fault_begun_ns
    assert begun_ns is not None
    assert failed.begun_ns is not None
    assert failed.ended_ns is not None
    assert cut_ns is not None
    assert begun_ns < failed.begun_ns < failed.ended_ns < cut_ns
    members, array = ended.record.observed.members, ended.record.observed.array
    assert members is not None
    assert members.absent == ["disk1"]
    assert members.active
    assert "disk1" not in members.active
    assert array is not None
    assert array.degraded == {}, "the new drive was rebuilt at the end"


@pytest.mark.parametrize("level", ["1", pytest.param("10", marks=pytest.mark.exhaustive)])
def test_mirrors_whose_member_fails_before_the_power_keep_every_promise(cycle: CrashTestRunner, level: str) -> None:
    # A mirror of two of these disks is too small for XFS.
    stack = stack_of("1", members=2, filesystem=Ext4Spec()) if level == "1" else stack_of(level)
    must_have_started_without_it(cycle(stack, faults=[FAILS, CUTS], ledger=LEDGER).must_keep_every_promise())


def test_raid5_with_a_bitmap_whose_member_fails_before_the_power_does_not_start_by_itself(
    cycle: CrashTestRunner,
) -> None:
    # A bitmap does not close the write hole: md refuses an array that is dirty and degraded.
    refused = ControlSpec(expects_loss=True, expects_blame=Culprit.STACK)
    ended = cycle(stack_of(), faults=[FAILS, CUTS], ledger=LEDGER, control=refused).must_pass()
    assert "not enough to start the array while not clean" in str(ended.record.not_recovered)


@pytest.mark.exhaustive
def test_a_pulled_disk_that_a_boot_finds_again_is_not_taken_as_current(cycle: CrashTestRunner) -> None:
    vanishes = at(1.0, MemberVanishes("disk1"))
    ended = cycle(stack_of("10"), faults=[vanishes, CUTS], ledger=LEDGER).must_keep_every_promise()
    members = ended.record.observed.members
    assert members is not None
    assert members.before is not None
    assert "disk1" in members.before, "its old superblock is readable again"
    assert "disk1" not in (members.active or ())


@pytest.mark.exhaustive
def test_a_member_that_came_back_before_the_power_failed_is_current(cycle: CrashTestRunner) -> None:
    away = at(1.0, Degraded("disk1"), lasts_s=1.0)
    ended = cycle(stack_of("10"), faults=[away, at(3.0, PowerCut())], ledger=LEDGER).must_keep_every_promise()
    (back,) = ended.record.during
    assert back.healed_ns is not None
    assert back.healed_ns < (ended.record.fault_begun_ns or 0)
    members = ended.record.observed.members
    assert members is not None
    assert "disk1" in (members.active or ())


def test_a_network_that_goes_off_and_on_costs_no_promise(cycle: CrashTestRunner) -> None:
    export = ExportSpec(delegations=False, lease_s=10, grace_s=10)
    faults = [at(1.0 + 2.5 * number, NetworkCut(held_s=1.0)) for number in range(3)]
    ended = cycle(stack_of(export=export), faults=faults, ledger=LEDGER).must_keep_every_promise()
    assert [one.fault for one in ended.record.injected] == ["network-cut"] * 3
    assert all("dropped" in one.proof for one in ended.record.injected)
    assert ended.went_on("client1")
    assert ended.went_on("client2")


def test_a_second_power_cut_in_the_recovery_costs_no_promise(cycle: CrashTestRunner) -> None:
    cut, again = at(1.0, PowerCut(CutPolicy.RANDOM, 1)), in_recovery("assemble", PowerCut(CutPolicy.RANDOM, 2))
    ended = cycle(stack_of(), faults=[cut, again], ledger=LEDGER).must_keep_every_promise()
    (second,) = ended.record.during
    assert second.after_stage == "assemble"
    members = ended.record.observed.members
    assert members is not None
    assert [one.active is not None for one in members.earlier] == [True]


def test_a_power_cut_after_the_recovery_costs_no_promise(cycle: CrashTestRunner) -> None:
    faults = [at(1.0, PowerCut()), after_replies(200, PowerCut())]
    ended = cycle(stack_of(), faults=faults, ledger=LEDGER).must_keep_every_promise()
    first, (second,) = ended.record.on_server, ended.record.during
    assert first is not None
    assert second.on_server is not None
    assert second.on_server.acknowledged_total > first.acknowledged_total


@pytest.mark.parametrize(
    "fault", [NetworkCut(held_s=2.0), pytest.param(PowerCut(), marks=pytest.mark.exhaustive)], ids=lambda one: one.name
)
def test_a_fault_in_the_grace_period_costs_no_promise(cycle: CrashTestRunner, fault: Fault) -> None:
    faults = [at(1.0, PowerCut()), when_served(fault)]
    ended = cycle(stack_of(), faults=faults, ledger=LEDGER).must_keep_every_promise()
    assert [one.fault for one in ended.record.injected] == ["power-cut", fault.name]
    assert ended.went_on("client1")
    assert ended.went_on("client2")


@pytest.mark.parametrize(
    "filesystem", [XfsSpec(), pytest.param(Ext4Spec(), marks=pytest.mark.exhaustive)], ids=["xfs", "ext4"]
)
def test_a_power_cut_of_a_full_file_system_costs_no_promise(
    cycle: CrashTestRunner, filesystem: FilesystemSpec
) -> None:
    # The space is free again only after the recovery.
    faults = [at(1.0, FilesystemFull(held_s=0), lasts_s=3.0), at(2.5, PowerCut())]
    ended = cycle(stack_of(filesystem=filesystem), faults=faults, ledger=LEDGER).must_keep_every_promise()
    (full,) = ended.record.during
    assert full.healed_ns is not None
    assert full.healed_ns > (ended.record.resumed_ns or 0)
    errors = next(one.reason for one in ended.record.verdicts if one.checker == "errors told to clients")
    assert "ENOSPC" in errors
    assert ended.went_on("client1")


@pytest.mark.plants
def test_what_only_the_second_power_cut_loses_is_found_and_blamed(cycle: CrashTestRunner) -> None:
    # The disk begins to drop flushes after the first cut, so that only the scan after the second one shows a loss.
    control = ControlSpec(expects_loss=True, expects_blame=Cause.LOST_FLUSHES)
    drops, again = after_recovery(0.3, FlushesDropped("disk1")), after_replies(200, PowerCut())
    faults = [at(1.0, PowerCut()), drops, again]
    record = cycle(stack_of(), faults=faults, ledger=LEDGER, control=control).must_pass().record
    assert not any(counters["broken_promises"] for counters in record.disks.values())
    assert record.during[-1].disks["disk1"]["broken_promises"] > 0
