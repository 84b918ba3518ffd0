"""A disk of the server dies while clients write, then the power fails: the array starts without the dead disk."""

import pytest

from raidproof.core.blame import Cause, Culprit
from raidproof.disk.cache import CacheMode
from raidproof.fault.disk import CorruptedAtRest, MemberFails
from raidproof.guest.ledger_format import MAGIC
from raidproof.pytest_plugin.fixtures import CrashTestResult, CrashTestRunner, stack_of
from raidproof.record import ControlSpec
from scenarios.array.stacks import raid5

DEAD = MemberFails("disk1")


def must_have_started_without_it(ended: CrashTestResult) -> None:
    """Assert that the array was started without the dead disk, and was complete at the end with a new drive."""
    members, array = ended.record.observed.members, ended.record.observed.array
    assert members is not None
    assert "disk1" not in (members.active or ())
    assert array is not None
    assert array.degraded == {}


def test_mirrors_with_a_dead_disk_keep_every_promise(cycle: CrashTestRunner) -> None:
    must_have_started_without_it(cycle(stack_of("10"), during=[DEAD]).must_keep_every_promise())


def test_raid5_with_ppl_and_a_dead_disk_keeps_every_promise(cycle: CrashTestRunner) -> None:
    # With a PPL, md acknowledges flushes before the disks do: see scenarios/array/test_power_cut_meanwhile.py.
    ended = cycle(raid5("ppl"), during=[DEAD], cache_mode=CacheMode.NONE)
    must_have_started_without_it(ended.must_keep_every_promise())


@pytest.mark.exhaustive
def test_raid6_with_a_dead_disk_does_not_start_by_itself(cycle: CrashTestRunner) -> None:
    refused = ControlSpec(expects_loss=True, expects_blame=Culprit.STACK)
    ended = cycle(stack_of("6"), during=[DEAD], control=refused).must_pass()
    assert "not enough to start the array while not clean" in str(ended.record.not_recovered)


def test_raid5_with_a_bitmap_and_a_dead_disk_does_not_start_by_itself(cycle: CrashTestRunner) -> None:
    # A bitmap does not close the write hole: md refuses an array that is dirty and degraded.
    refused = ControlSpec(expects_loss=True, expects_blame=Culprit.STACK)
    ended = cycle(raid5("bitmap"), during=[DEAD], control=refused).must_pass()
    assert "not enough to start the array while not clean" in str(ended.record.not_recovered)


@pytest.mark.plants
def test_a_dead_disk_does_not_hide_that_another_one_changed_data(cycle: CrashTestRunner) -> None:
    changed = ControlSpec(expects_loss=True, expects_blame=Cause.CHANGED_CONTENT)
    cycle(stack_of("10"), during=[DEAD], fault=CorruptedAtRest("disk0", MAGIC), control=changed).must_pass()
