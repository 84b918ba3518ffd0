"""A step of the server's clock changes no lease or grace period and loses no acknowledged operation."""

import pytest

from raidproof.fault import ClockStep
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of


@pytest.mark.parametrize(
    "step_s", [3600.0, pytest.param(-3600.0, marks=pytest.mark.exhaustive)], ids=["forward", "backward"]
)
def test_step_of_the_servers_clock_loses_nothing(cycle: CrashTestRunner, step_s: float) -> None:
    ended = cycle(stack_of(), fault=ClockStep(step_s)).must_keep_every_promise()
    assert ended.went_on("client1")
    assert ended.went_on("client2")
