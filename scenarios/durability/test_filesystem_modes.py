"""File systems and their modes: which promises each of them keeps after a power cut of the server."""

import pytest

from raidproof.core.blame import Culprit
from raidproof.core.units import KIB
from raidproof.disk.cache import CacheMode
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record import ControlSpec
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.filesystem import BtrfsSpec, Ext4Spec, F2fsSpec, FilesystemSpec, XfsSpec
from raidproof.workload.ledger import LedgerSpec

MODES: dict[str, FilesystemSpec] = {
    "ext4-writeback": Ext4Spec(data="writeback"),
    "ext4-journal": Ext4Spec(data="journal"),
}
FEATURES: dict[str, FilesystemSpec] = {
    "ext4-bigalloc-inline-data": Ext4Spec(cluster_size=64 * KIB, inline_data=True, orphan_file=False),
    "xfs-without-rmapbt-and-reflink": XfsSpec(rmapbt=False, reflink=False),
}
DATA = LedgerSpec(kinds=("fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "shared", "o_append"))
"""A ledger that changes only data: nfsd does not commit new names on these file systems (docs/findings.md)."""
UNCOMMITTED: dict[str, FilesystemSpec] = {
    "btrfs": BtrfsSpec(),
    "btrfs-nodatacow": BtrfsSpec(nodatacow=True),
    "btrfs-flushoncommit-zstd": BtrfsSpec(flushoncommit=True, compress="zstd"),
    "f2fs": F2fsSpec(),
    # Not `fsync_mode=strict`, which acknowledges data before a flush (findings/f2fs-strict-no-flush.toml).
}
SECONDS = 0.5
"""Seconds of work on a lying disk."""


@pytest.mark.parametrize("mode", MODES)
def test_every_data_mode_of_ext4_keeps_every_promise(cycle: CrashTestRunner, mode: str) -> None:
    cycle(stack_of(filesystem=MODES[mode])).must_keep_every_promise()


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", FEATURES)
def test_features_of_the_superblock_keep_every_promise(cycle: CrashTestRunner, mode: str) -> None:
    cycle(stack_of(filesystem=FEATURES[mode])).must_keep_every_promise()


@pytest.mark.exhaustive
def test_fast_commits_acknowledge_data_before_they_are_durable(current_run: Run) -> None:
    # Of Linux 6.12.113: an fdatasync returns while its data are only in the volatile caches of the disks.
    stack = stack_of(filesystem=Ext4Spec(fast_commit=True))
    current_run.discard_lab()
    # A separate run, so that the expected failure does not fail the shared run.
    with Run("fast-commit", current_run.store.path, current_run.topology) as own:
        record = own.cycle(CrashTestSpec(name="fast-commit", title="fast commit", stack=stack, ledger_seconds=1.5))
    assert record.outcome is Outcome.FAIL
    failed = {one.checker: one.reason for one in record.verdicts if one.outcome is Outcome.FAIL}
    assert "data at the reply" in failed, failed


def test_without_a_journal_acknowledged_operations_are_lost(current_run: Run) -> None:
    stack = stack_of(filesystem=Ext4Spec(journal=False))
    current_run.discard_lab()
    # A separate run, so that the expected failure does not fail the shared run.
    with Run("no-journal", current_run.store.path, current_run.topology) as own:
        record = own.cycle(CrashTestSpec(name="no-journal", title="no journal", stack=stack, ledger_seconds=1.5))
    assert record.outcome is Outcome.FAIL
    lost = {one.kind for one in record.verdicts if one.outcome is Outcome.FAIL}
    assert lost >= {"mkdir", "create", "rename"}
    assert any("no journal" in caveat for caveat in record.effective["caveats"])
    blames = [one.blame for one in record.verdicts if one.kind == "mkdir" and one.blame is not None]
    assert {blame.culprit for blame in blames} == {Culprit.FILESYSTEM_SETTINGS}


@pytest.mark.parametrize("mode", UNCOMMITTED)
def test_data_survive_on_file_systems_without_commits_by_nfsd(cycle: CrashTestRunner, mode: str) -> None:
    cycle(stack_of(filesystem=UNCOMMITTED[mode]), ledger=DATA).must_keep_every_promise()


@pytest.mark.parametrize("kind", ["btrfs", "f2fs"])
def test_a_lying_disk_is_found(cycle: CrashTestRunner, kind: str) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    cycle(
        stack_of(filesystem=UNCOMMITTED[kind]),
        cache_mode=CacheMode.LYING,
        ledger=DATA,
        ledger_seconds=SECONDS,
        control=control,
    ).must_pass()
