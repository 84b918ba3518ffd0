"""Explorations: the crash states of one recorded run, at many instants and with many outcomes of the disks' caches."""

from pathlib import Path

import pytest

from raidproof.core.blame import Cause, Culprit
from raidproof.core.topology import SoftwareSpec
from raidproof.disk.cache import CacheMode
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestRunner, Explore, stack_of
from raidproof.record import ControlSpec
from raidproof.record.failure import Gap
from raidproof.record.outcome import Outcome
from raidproof.record.results.names import crash_page_of
from raidproof.run.crash_file import SUFFIX, export, opened, recover
from raidproof.run.replay import locate
from raidproof.storage.filesystem import BtrfsSpec, Ext4Spec, F2fsSpec, FilesystemSpec, XfsSpec
from raidproof.workload.ledger import LedgerSpec
from scenarios.crash.known_findings import KNOWN

REPLAYS = 10
EXT4 = pytest.param(Ext4Spec(), marks=pytest.mark.exhaustive)
STATES = 80
FEW_STATES = 20
FEW_KINDS = LedgerSpec(kinds=("fsync", "o_sync", "close", "metadata", "metadata"))
"""A ledger with so few kinds of operation that each is judged in a few crash states."""
LYING_SECONDS = 0.3
"""Duration of the workload in seconds: short, because in later states XFS cannot replay its log. Such states do not
mount, and no promise is judged."""
LYING_STATES = 30
"""Number of crash states to check; more than half of them break a promise."""
DATA = LedgerSpec(kinds=("fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "shared", "o_append"))
"""A ledger that changes only data: nfsd does not commit new names on btrfs and F2FS (docs/findings.md)."""
FEW = LedgerSpec(kinds=("fsync", "fsync"))
"""A ledger with the one kind of worker whose promise is tested: the exploration shrinks the failure of each kind."""


@pytest.mark.parametrize("filesystem", [XfsSpec(), EXT4], ids=["xfs", "ext4"])
def test_sync_export_keeps_every_promise_in_every_crash(
    cycle: CrashTestRunner, explore: Explore, filesystem: FilesystemSpec
) -> None:
    explored = explore(cycle(stack_of(filesystem=filesystem)).must_pass(), states=STATES, crash_page=True)
    explored.must_keep_every_promise(but=KNOWN)
    assert explored.record.judged == STATES
    assert explored.record.cold.checked
    assert (explored.source.store.path / crash_page_of(explored.page.stem)).is_file()


def test_a_crash_state_from_a_file_has_the_same_verdict(
    cycle: CrashTestRunner, explore: Explore, tmp_path: Path
) -> None:
    ended = cycle(stack_of(), ledger=FEW_KINDS).must_pass()
    explored = explore(ended, states=FEW_STATES, cold=False).must_keep_every_promise(but=KNOWN)
    held = next(mark for mark in reversed(explored.record.marks) if not mark.broken)
    path = export(*locate(explored.source, held.name), tmp_path / f"state{SUFFIX}")
    with opened(path) as found:
        recovered = recover(found, SoftwareSpec(), tmp_path)
    assert recovered.outcome is Outcome.PASS, recovered.reason
    # The same disks lack what was acknowledged later.
    early = next(mark for mark in explored.record.marks if not mark.broken)
    with opened(export(*locate(explored.source, early.name), tmp_path / f"early{SUFFIX}")) as found:
        found.terms.acknowledged_ns = explored.source.recording.end_ns
        lost = recover(found, SoftwareSpec(), tmp_path)
    assert (lost.outcome, lost.kernel) == (Outcome.FAIL, recovered.kernel), lost.reason
    assert str(lost.blame).startswith("the stack")


def test_raid6_keeps_every_promise_in_every_crash(cycle: CrashTestRunner, explore: Explore) -> None:
    # Its checkers boot with RAID6 algorithms, without which the kernel dies at the first write to the array.
    explored = explore(cycle(stack_of("6")).must_pass(), states=STATES).must_keep_every_promise(but=KNOWN)
    assert explored.record.judged == STATES
    assert explored.record.cold.checked


@pytest.mark.parametrize(
    "filesystem", [BtrfsSpec(), pytest.param(F2fsSpec(), marks=pytest.mark.exhaustive)], ids=lambda spec: spec.type
)
def test_data_survive_in_every_crash_if_nfsd_commits_no_names(
    cycle: CrashTestRunner, explore: Explore, filesystem: FilesystemSpec
) -> None:
    ended = cycle(stack_of(filesystem=filesystem), ledger=DATA).must_pass()
    explored = explore(ended, states=STATES).must_keep_every_promise(but=KNOWN)
    assert explored.record.judged == STATES
    assert explored.record.cold.checked


def test_a_lying_disk_is_found_shrunk_blamed_and_reproduced(cycle: CrashTestRunner, explore: Explore) -> None:
    liars = ("disk1",)
    control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    *members, log = MEMBERS
    ended = cycle(
        # The log is on an honest disk: XFS does not mount with a damaged log, and then no promise is judged.
        stack_of(members=len(members), filesystem=XfsSpec(log=log)),
        cache_mode=CacheMode.LYING,
        cache_mode_of=liars,
        control=control,
        ledger=FEW,
        ledger_seconds=LYING_SECONDS,
    )
    explored = explore(ended, states=LYING_STATES, cold=False)
    assert explored.record.outcome is Outcome.PASS
    assert explored.record.reason.startswith("control behaved: ")
    failure = explored.must_find("write + fsync", blame=Cause.LOST_FLUSHES)
    assert failure.shrunk is not None
    assert failure.missing is not None
    # The smallest state lacks only writes to the lying disk, and names their place in the array.
    assert {write.member for write in failure.shrunk.lost} <= {*liars}
    assert all(write.stripe is not None for write in failure.shrunk.lost)
    # A good state differs from one of the failing states in one such write, before whose acknowledgement the disk only
    # claimed to flush. A state that lacks two writes may have no good neighbour: with either write it fails. Or its
    # good neighbour differs in the write about which the disk did not lie.
    differences = [one.difference for one in explored.record.failures if one.difference and one.difference.broken]
    told = [request for one in differences for request in one.requests if request.good_state]
    assert {(one.write.member, one.gap) for one in told if one.lying_flushes} == {(*liars, Gap.FLUSH_LIED)}
    again = explored.replay(failure, times=REPLAYS)
    assert {(one.outcome, one.damages) for one in again} == {(again[0].outcome, again[0].damages)}
    assert again[0].broken
