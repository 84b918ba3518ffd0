"""Two servers on the same disks: the active one loses its power, and the standby takes over."""

from raidproof.fault import Takeover
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.storage.pair import PairSpec


def test_a_takeover_keeps_every_promise(cycle: CrashTestRunner) -> None:
    cycle(stack_of(pair=PairSpec()), fault=Takeover()).must_keep_every_promise()
