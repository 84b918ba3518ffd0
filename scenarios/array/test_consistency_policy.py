"""With each consistency policy of md, a power cut loses no acknowledged operation."""

import pytest

from raidproof.disk.cache import CacheMode
from raidproof.pytest_plugin.fixtures import CrashTestRunner
from scenarios.array.stacks import raid5

SLOW = pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("policy", "cache_mode"),
    [
        ("journal", CacheMode.VOLATILE),
        pytest.param("resync", CacheMode.VOLATILE, marks=SLOW),
        pytest.param("bitmap", CacheMode.VOLATILE, marks=SLOW),
        # With a PPL, md acknowledges flushes before the disks do (scenarios/crash/test_write_hole.py), so that disks
        # with a volatile cache lose data.
        pytest.param("ppl", CacheMode.NONE, marks=SLOW),
    ],
)
def test_policy_keeps_every_promise(cycle: CrashTestRunner, policy: str, cache_mode: CacheMode) -> None:
    ended = cycle(raid5(policy), cache_mode=cache_mode).must_keep_every_promise()
    assert ended.record.observed.array is not None
    assert ended.record.observed.array.mismatch_cnt == {"/dev/md0": 0}
