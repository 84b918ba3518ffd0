"""A volume (encryption, or a cache on a disk of its own) between array and file system keeps the promises."""

from typing import Any

import pytest

from raidproof.core.blame import Culprit
from raidproof.core.units import KIB
from raidproof.disk.cache import CacheMode
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestRunner, Explore, stack_of
from raidproof.record import ControlSpec
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.filesystem import XfsSpec
from raidproof.storage.stack import StackSpec
from scenarios.crash.known_findings import KNOWN

pytestmark = pytest.mark.exhaustive

CACHE_DISK = MEMBERS[3]
STATES = 80
SECONDS = 0.5
"""Seconds of work on a lying disk."""
VOLUMES: dict[str, dict[str, Any]] = {
    "crypt": {"type": "crypt"},
    "writeback": {"type": "cache", "cache_disk": CACHE_DISK},
    "writethrough": {"type": "cache", "cache_disk": CACHE_DISK, "cache_mode": "writethrough"},
    "bcache": {"type": "bcache", "cache_disk": CACHE_DISK},
    "bcache-writethrough": {"type": "bcache", "cache_disk": CACHE_DISK, "bcache_mode": "writethrough"},
}


def stack_with(volume: dict[str, Any]) -> StackSpec:
    """Return a stack with a volume on a RAID5 of three disks; dm-writecache has sectors of 4 KiB."""
    usual = stack_of(members=3, filesystem=XfsSpec(sector_size=4 * KIB)).model_dump(mode="json")
    return StackSpec.model_validate({**usual, "volume": volume})


@pytest.mark.parametrize("kind", VOLUMES)
def test_every_promise_is_kept_in_every_crash(cycle: CrashTestRunner, explore: Explore, kind: str) -> None:
    explored = explore(
        cycle(stack_with(VOLUMES[kind])).must_pass(), states=STATES, cold=False
    ).must_keep_every_promise(but=KNOWN)
    assert explored.record.judged == STATES


@pytest.mark.parametrize("kind", VOLUMES)
def test_a_lying_disk_is_found(cycle: CrashTestRunner, kind: str) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    cycle(stack_with(VOLUMES[kind]), cache_mode=CacheMode.LYING, ledger_seconds=SECONDS, control=control).must_pass()


def test_a_write_cache_that_writes_to_the_array_loses_synced_files(current_run: Run) -> None:
    # dm-writecache acknowledges FUA too early (docs/findings.md): it shows when the cache is written to the array.
    volume = {"type": "writecache", "cache_disk": CACHE_DISK, "high_watermark": 4, "low_watermark": 2}
    current_run.discard_lab()
    # A separate run, so that the expected failure does not fail the shared run.
    with Run("writecache", current_run.store.path, current_run.topology) as own:
        record = own.cycle(CrashTestSpec(name="writecache", title="writecache", stack=stack_with(volume)))
        explored = Explore(own)(record, states=3 * STATES, cold=False)
    assert explored.record.outcome is Outcome.FAIL
    assert any(one.confirmed for one in explored.record.failures)
