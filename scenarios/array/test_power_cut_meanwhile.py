"""The server loses power while its array is degraded or during a rebuild, resync, reshape or check.

The clients write blocks of 4 KiB and fsync each. A block is only a part of a stripe, so that each write also changes
parity; while a member is missing, the content of the neighbouring blocks depends on this parity. After the recovery
all blocks are read back. md refuses to start a dirty and degraded array without a PPL or a journal; the scenario of
this case expects the refusal.
"""

import pytest

from raidproof.core.blame import Culprit
from raidproof.disk.cache import CacheMode
from raidproof.fault.array import Degraded, Rebuilding, Reshaping, Resyncing, Scrubbing
from raidproof.fault.fault import Fault
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestResult, CrashTestRunner, stack_of
from raidproof.record import ControlSpec
from raidproof.record.outcome import Outcome
from scenarios.array.stacks import raid5

REFUSED = ControlSpec(expects_loss=True, expects_blame=Culprit.STACK)
"""A control that expects an array which does not start: the judge counts this as a loss, and blames the stack."""


def must_have_hit(ended: CrashTestResult, condition: type[Fault]) -> None:
    """Assert that a condition of the array lasted until the power cut, and that the array was complete at the end."""
    (injected,) = ended.record.during
    assert injected.fault == condition.name
    assert injected.lasted
    assert ended.record.observed.array is not None
    assert ended.record.observed.array.degraded == {}


@pytest.mark.parametrize(
    ("policy", "cache_mode"),
    [
        # With a PPL, md acknowledges flushes before the disks do (scenarios/crash/test_write_hole.py), so that disks
        # with a volatile cache lose data.
        ("ppl", CacheMode.NONE),
        pytest.param("journal", CacheMode.VOLATILE, marks=pytest.mark.exhaustive),
    ],
)
def test_degraded_array_without_write_hole_keeps_every_promise(
    cycle: CrashTestRunner, policy: str, cache_mode: CacheMode
) -> None:
    ended = cycle(raid5(policy), during=[Degraded("disk1")], cache_mode=cache_mode).must_keep_every_promise()
    must_have_hit(ended, Degraded)


@pytest.mark.exhaustive
def test_degraded_mirrors_keep_every_promise(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of("10"), during=[Degraded("disk1")]).must_keep_every_promise()
    must_have_hit(ended, Degraded)


def test_degraded_raid5_with_a_write_hole_does_not_start_by_itself(cycle: CrashTestRunner) -> None:
    ended = cycle(raid5("bitmap"), during=[Degraded("disk1")], control=REFUSED).must_pass()
    assert "not enough to start the array while not clean" in str(ended.record.not_recovered)


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["resync", "bitmap"])
def test_degraded_raid5_with_a_write_hole_starts_if_forced(cycle: CrashTestRunner, policy: str) -> None:
    # The array may lose data blocks or the end of the file system's log, depending on the instant of the cut. So only
    # the verdicts on the array and its members are checked here.
    ended = cycle(raid5(policy), during=[Degraded("disk1", starts_dirty=True)])
    assert ended.record.recovery.assemble_s is not None
    assert ended.record.during[0].lasted
    bad = [verdict for verdict in ended.record.verdicts if verdict.outcome is not Outcome.PASS]
    assert [verdict for verdict in bad if verdict.checker in {"array", "members"}] == []


def test_rebuild_of_raid5_keeps_every_promise(cycle: CrashTestRunner) -> None:
    ended = cycle(raid5("ppl"), during=[Rebuilding("disk2")], cache_mode=CacheMode.NONE).must_keep_every_promise()
    must_have_hit(ended, Rebuilding)


@pytest.mark.exhaustive
def test_rebuild_of_a_mirror_keeps_every_promise(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of("10"), during=[Rebuilding("disk2")]).must_keep_every_promise()
    must_have_hit(ended, Rebuilding)


def test_resync_keeps_every_promise(cycle: CrashTestRunner) -> None:
    ended = cycle(raid5("resync"), during=[Resyncing()]).must_keep_every_promise()
    must_have_hit(ended, Resyncing)


def test_reshape_keeps_every_promise(cycle: CrashTestRunner) -> None:
    stack = raid5("bitmap", members=MEMBERS[:-1], spares=MEMBERS[-1:])
    ended = cycle(stack, during=[Reshaping()]).must_keep_every_promise()
    must_have_hit(ended, Reshaping)


def test_check_keeps_every_promise(cycle: CrashTestRunner) -> None:
    ended = cycle(raid5("bitmap"), during=[Scrubbing()]).must_keep_every_promise()
    must_have_hit(ended, Scrubbing)
