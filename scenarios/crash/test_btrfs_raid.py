"""The RAID of btrfs itself: promises after a power cut and in crash states, and copies or parity that are wrong."""

import pytest

from raidproof.core.blame import Culprit
from raidproof.disk.cache import CacheMode
from raidproof.fault.disk import CorruptedAtRest
from raidproof.guest.ledger_format import MAGIC
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestRunner, Explore, stack_of
from raidproof.record import ControlSpec
from raidproof.record.outcome import Outcome
from raidproof.record.run import BlockClass
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.array import ARRAYS
from raidproof.storage.filesystem import BtrfsSpec
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import LedgerSpec

STATES = 80
SECONDS = 0.5
"""Seconds of work on a lying disk."""
DATA = LedgerSpec(kinds=("fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "shared", "o_append"))
"""A ledger that changes only data: nfsd does not commit new names on btrfs (docs/findings.md)."""
LEVELS = ["1", "5", pytest.param("6", marks=pytest.mark.exhaustive), pytest.param("10", marks=pytest.mark.exhaustive)]


def stack_with(level: str) -> StackSpec:
    """Return a stack with a btrfs that makes its own RAID of all disks."""
    array = ARRAYS["btrfs"].model_validate({"level": level, "members": MEMBERS})
    return StackSpec.model_validate({**dict(stack_of()), "array": array, "filesystem": BtrfsSpec()})


@pytest.mark.parametrize("level", LEVELS)
def test_data_survive_in_every_crash(cycle: CrashTestRunner, explore: Explore, level: str) -> None:
    explored = explore(cycle(stack_with(level), ledger=DATA).must_pass(), states=STATES).must_keep_every_promise()
    assert explored.record.judged == STATES
    assert explored.record.cold.checked


@pytest.mark.parametrize("level", [pytest.param("1", marks=pytest.mark.exhaustive), "5"])
def test_a_lying_disk_is_found(cycle: CrashTestRunner, level: str) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    lying = CacheMode.LYING
    cycle(stack_with(level), cache_mode=lying, ledger=DATA, ledger_seconds=SECONDS, control=control).must_pass()


@pytest.mark.parametrize("level", [pytest.param("1", marks=pytest.mark.exhaustive), "5"])
def test_changed_blocks_are_reported_and_corrected(current_run: Run, level: str) -> None:
    # btrfs allocates the first chunks of RAID1 on the last disks.
    fault = CorruptedAtRest("disk3", MAGIC)
    spec = CrashTestSpec(name="changed", title="changed blocks", stack=stack_with(level), fault=fault, ledger=DATA)
    current_run.discard_lab()
    # A separate run, so that the expected messages of the kernel do not fail the shared run.
    with Run("changed", current_run.store.path, current_run.topology) as own:
        record = own.cycle(spec)
    failed = {one.checker for one in record.verdicts if one.outcome is not Outcome.PASS}
    assert failed == {"kernel log"}
    assert record.on_server is not None
    assert BlockClass.GARBAGE not in record.on_server.blocks
    assert record.observed.array is not None
    assert not any(record.observed.array.repaired.values())


@pytest.mark.exhaustive
def test_copies_outlive_a_member_that_is_lost_with_the_power(cycle: CrashTestRunner, explore: Explore) -> None:
    ended = cycle(stack_with("1"), ledger=DATA).must_pass()
    explored = explore(ended, states=STATES, lost_member="disk1", cold=False).must_keep_every_promise()
    assert explored.record.judged == STATES


@pytest.mark.exhaustive
def test_checksums_show_the_write_hole_of_raid5(cycle: CrashTestRunner, explore: Explore) -> None:
    ended = cycle(stack_with("5"), ledger=DATA).must_pass()
    explored = explore(ended, states=STATES, lost_member="disk1", cold=False)
    assert explored.must_find("the block is unreadable").confirmed
    assert not explored.record.silent, "no wrong data may be read without an error"
