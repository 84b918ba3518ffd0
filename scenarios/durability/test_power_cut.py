"""The server loses power while clients write; afterwards all acknowledged operations must be there."""

import pytest

from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.storage.filesystem import Ext4Spec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec


def test_sync_export_keeps_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of()).must_keep_every_promise()


def test_a_cut_that_tears_requests_breaks_no_promise(cycle: CrashTestRunner) -> None:
    # XFS of stock kernels does not always recover from torn metadata (docs/findings.md, xfs-torn-recovery).
    cycle(stack_of(filesystem=Ext4Spec()), policy=CutPolicy.TORN).must_keep_every_promise()


@pytest.mark.exhaustive
def test_sync_export_keeps_every_promise_if_the_caches_kept_all(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), policy=CutPolicy.KEEP).must_keep_every_promise()


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1, 12))
@pytest.mark.parametrize("policy", [CutPolicy.RANDOM, CutPolicy.TORN], ids=lambda policy: policy.value)
def test_sync_export_keeps_every_promise_whatever_the_caches_kept(
    cycle: CrashTestRunner, policy: CutPolicy, seed: int
) -> None:
    cycle(stack_of(), policy=policy, seed=seed).must_keep_every_promise()


def test_async_export_loses_acknowledged_work(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(sync=False)).must_lose_by_design()
    assert ended.record.loss_window_s
    assert ended.record.loss_window_s > 0


def test_ext4_keeps_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of(filesystem=Ext4Spec())).must_keep_every_promise()


@pytest.mark.parametrize("level", ["10", pytest.param("6", marks=pytest.mark.exhaustive)])
def test_level_keeps_every_promise(cycle: CrashTestRunner, level: str) -> None:
    cycle(stack_of(level)).must_keep_every_promise()


def test_mirror_keeps_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of("1", filesystem=Ext4Spec(), members=2)).must_keep_every_promise()


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", ["0", "4", "1+0", "0+1"])
def test_further_level_keeps_every_promise(cycle: CrashTestRunner, level: str) -> None:
    cycle(stack_of(level)).must_keep_every_promise()


@pytest.mark.parametrize("vers", ["3", pytest.param("4.1", marks=pytest.mark.exhaustive)])
def test_nfs_version_keeps_every_promise(cycle: CrashTestRunner, vers: str) -> None:
    cycle(stack_of(mount=MountSpec.model_validate({"vers": vers}))).must_keep_every_promise()


@pytest.mark.exhaustive
def test_nfs_4_0_keeps_every_promise(cycle: CrashTestRunner) -> None:
    # NFSv4.0 has no RECLAIM_COMPLETE, so that nfsd cannot end the grace period early. 10 s is the shortest possible.
    export = ExportSpec(delegations=False, lease_s=10, grace_s=10)
    cycle(stack_of(export=export, mount=MountSpec(vers="4.0"))).must_keep_every_promise()


@pytest.mark.exhaustive
def test_sync_mount_keeps_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of(mount=MountSpec(sync=True))).must_keep_every_promise()


@pytest.mark.exhaustive
def test_disks_without_a_cache_keep_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), cache_mode=CacheMode.NONE).must_keep_every_promise()


@pytest.mark.exhaustive
def test_disks_with_a_battery_keep_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), cache_mode=CacheMode.PROTECTED).must_keep_every_promise()


@pytest.mark.exhaustive
def test_a_battery_in_the_disks_does_not_save_data_in_the_servers_memory(cycle: CrashTestRunner) -> None:
    # An async export replies before the server has sent the data to a disk.
    cycle(stack_of(sync=False), cache_mode=CacheMode.PROTECTED).must_lose_by_design()
