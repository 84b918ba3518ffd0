"""What keeps parity and data together over a power cut is a choice; none may cost what clients had been told."""

import pytest

from raidproof.pytest_plugin.fixtures import Cycle
from scenarios.array.stacks import raid5


@pytest.mark.parametrize(
    "policy", ["journal", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("resync", "bitmap", "ppl"))]
)
def test_policy_keeps_every_promise(cycle: Cycle, policy: str) -> None:
    ended = cycle(raid5(policy)).must_keep_every_promise()
    assert ended.record.checks["array"]["mismatch_cnt"] == {"/dev/md0": 0}
